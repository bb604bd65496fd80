"""Which shared values become buffers: answers for the backward walk (indexing.py) and for the removal of buffers (rangeify.py). They change nothing.

tinygrad 0.12.0 stores a value if ranges end below it, so that it is not computed again in each of their steps (indexing.py:211-229 and 231-241).
fuse-broadcast removes the realize point if no ending range crosses the value's ranges: its loop is around theirs, and it is computed there
once. Crossed axes stay realized, in a LOCAL buffer if other axes are not crossed. The current attempt may refuse that: the guard found that the fusion
does not pay, or the LOCAL buffer would be too large or too slow (patches local-budget, fusion-guard)."""
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Iterable
from tinygrad.dtype import AddrSpace
from tinygrad.helpers import PCONTIG, all_same
from tinygrad.uop.ops import AxisType, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.codegen._work import count_elements, count_steps, find_renderer, is_cheap_again
from tinygrad_overlay.schedule._pass import Attempt, NodeRanges, Ranges, node_of
from tinygrad_overlay.schedule._refusals import Refusal

@dataclass(frozen=True)
class EndingNode:
  """A node below which the ranges `ending` end. `realized`: the axes that are realized already because its consumers disagree. `ambient` binds its
  ambient ranges. `is_batch_alone`: its only axis is the batch of its scope, which its shape does not show."""
  x: UOp
  out_rngs: Ranges
  ambient: dict[UOp, UOp]
  ending: dict[UOp, UOp]
  realized: list[int]
  is_batch_alone: bool

  @property
  def rest(self) -> list[int]: return [i for i in range(len(self.out_rngs)) if i not in self.realized]

  def is_crossed(self, r:UOp) -> bool:
    """Whether `r` is inside an ending loop: then x is computed in each step of that loop, unless it is stored (indexing.py:236)."""
    return any(rr.arg > e.arg for e in self.ending for rr in r.ranges)

  def realize_all(self) -> Choice: return Choice(self.rest, realizes_batch=self.is_batch_alone)

@dataclass(frozen=True)
class Choice:
  """More axes to realize for a node.
  `local_axes`: the axes of its LOCAL buffer, or none. `is_local_in_scope`: it is a LOCAL buffer although all its axes are realized, because its batch
  is not. `realizes_batch`: the node is realized although it has no axis. `fuses`: stock would have realized more."""
  axes: list[int]
  local_axes: list[int] = field(default_factory=list)
  is_local_in_scope: bool = False
  realizes_batch: bool = False
  fuses: bool = False

class Policy:
  def __init__(self, attempt:Attempt):
    self.attempt, self.fuses = attempt, "fuse-broadcast" in _state.patches and not attempt.keeps_all
    self.may_compute_again = self.fuses and attempt.is_compared and "fusion-guard" in _state.patches

  def may_be_partial(self, x:UOp) -> bool:
    """Whether x may be realized in LOCAL memory, only on the axes on which its consumers disagree (indexing.py:219). Never a VMAPOUT: it has the
    batch in its axes, and a LOCAL buffer is inside one step of the batch."""
    return bool(PCONTIG) and x.op is not Ops.VMAPOUT

  def choose_axes(self, node:EndingNode) -> Choice:
    """Stock chooses all axes, with PCONTIG above 1 only the crossed axes (indexing.py:234-237); fuse-broadcast chooses the crossed axes. Inside a
    scope the batch is one more axis, which x's shape does not show. If it is not crossed, a LOCAL buffer of all other axes is inside its loop; if it
    is crossed, everything is realized, because a LOCAL buffer cannot hold the batch."""
    takes_all = not PCONTIG > 1
    if self.fuses: takes_all = any(map(node.is_crossed, node.ambient.values()))
    if takes_all: return node.realize_all()
    crossed = [i for i in node.rest if node.is_crossed(node.out_rngs[i])]
    in_scope = self.fuses and not node.realized and bool(crossed) and bool(node.ambient)
    some = len(crossed) < len(node.rest)
    local_axes = node.realized+crossed if in_scope or some else []
    if not self.fuses: return Choice(crossed, local_axes, realizes_batch=node.is_batch_alone)
    return Choice(crossed, local_axes, is_local_in_scope=in_scope and not some, fuses=some or node.is_batch_alone or in_scope)

  def find_refusal(self, x:UOp, local_axes:list[int]) -> Refusal|None:
    """Returns why x may not be a LOCAL buffer of these axes or, without axes, may not be fused; None if it may."""
    return self.attempt.realize_points.get(x) or too_large_for_local(x, local_axes)

  def find_refusal_at(self, node:EndingNode, choice:Choice, batch:Ranges) -> Refusal|None:
    refusal = self.find_refusal(node.x, choice.local_axes)
    return too_slow_for_local(node.x, choice.local_axes, node.ending, batch) if refusal is None and self.fuses else refusal

# *** LOCAL memory

# on any target, one thread needs about one or two launch times for so many steps
MAX_LOCAL_READS = 1 << 14

def too_large_for_local(x:UOp, axes:list[int]) -> Refusal|None:
  if "local-budget" not in _state.patches or not axes or x._device is None: return None
  needs, limit = count_elements(x, axes)*x.dtype.itemsize, find_renderer(x._device).shared_max
  return Refusal("local-budget", "local-too-large", {"bytes": needs, "limit": limit}) if needs > limit else None

def too_slow_for_local(x:UOp, axes:list[int], ending:Iterable[UOp], batch:Iterable[UOp]) -> Refusal|None:
  """Refuses a LOCAL buffer that is read so often that its kernel, which gets no opts from the heuristics, is slow on every target. Each step of the
  ranges `ending` reads the buffer again; each step of the RANGEs `batch` of x's scopes fills and reads it."""
  if "fusion-guard" not in _state.patches or not axes: return None
  reads = count_steps(batch)*count_elements(x, range(len(x.shape)))*count_steps(ending)
  return Refusal("fusion-guard", "local-read-often", {"reads": reads, "limit": MAX_LOCAL_READS}) if reads > MAX_LOCAL_READS else None

# *** values of a row: both the reduce of a row and its elements read them, such as exp(x - max) in a softmax

@dataclass
class RowValues:
  """Invariants 5 and 6 of the walk.
  `values`: node whose readers differ along a row -> for each axis and each ambient range, the index of all readers; None if they differ.
  `row_of`: range of such a node on which all readers agree -> their range. If computed again, the node is in their row."""
  values: dict[UOp, tuple[list[UOp|None], dict[UOp, UOp|None]]] = field(default_factory=dict)
  row_of: dict[UOp, UOp] = field(default_factory=dict)

  def note_readers(self, x:UOp, readers:list[NodeRanges], mine:Ranges) -> None:
    axes = [self.find_row([n.ins[i] for n in readers]) for i in range(len(x.shape))]
    self.values[x] = axes, {r:self.find_row([n.ambient.get(r, r) for n in readers]) for r in mine}

  def find_row(self, asked:list[UOp]) -> UOp|None:
    """Returns the index of all readers on one axis; None if they differ. A reader that is itself a value of a row is in the row of its readers."""
    rows = [self.row_of.get(r.get_idx(), r.get_idx()) for r in asked]
    return rows[0] if all_same(rows) else None

  def note_ranges(self, x:UOp, out_rngs:Ranges, ambient:dict[UOp, UOp]) -> list[UOp]:
    """Notes the ranges of x. Returns the ranges along the row."""
    axes, batch = self.values[x]
    pairs = [*zip(out_rngs, axes), *((ambient[r], row) for r,row in batch.items())]
    self.row_of.update((r, row) for r,row in pairs if row is not None and r.op is Ops.RANGE)
    return [r for r,row in pairs if row is None]

# ops that always keep their buffer: upstream's ALWAYS_RUN_OPS (rangeify.py:127)
NEVER_REMOVED = {Ops.CONTIGUOUS, Ops.COPY, Ops.ASSIGN, Ops.ENCDEC, Ops.NOOP}

def is_computed_again(attempt:Attempt, src:UOp, buf:UOp, idx:UOp) -> bool:
  """Whether the readers of a value of a row compute it again, in one kernel: the sum and the quotient of a softmax both compute exp(x - max). Stock
  keeps its buffer because it contains a reduce (rangeify.py:189-213). But its reduces run once for each row of its reader: the reader has a loop for
  each range that they depend on, and no such range is along the row."""
  if (x:=node_of(buf)) is None or x not in attempt.row_values or x in attempt.realize_points: return False
  if src.op in NEVER_REMOVED or not buf.arg.removable or buf.arg.addrspace != AddrSpace.GLOBAL: return False
  read_at, along = dict(zip(buf.src[1:], idx.src[1:])), attempt.row_values[x]
  in_kernel = src.toposort(gate=lambda u: u.op is not Ops.BUFFERIZE or u.arg.addrspace != AddrSpace.GLOBAL)
  reduces = [u for u in in_kernel if u.op is Ops.REDUCE]
  loops = [(r, read_at[r]) for u in reduces for r in u.ranges if r in read_at]
  if not reduces or any(r in along or at.op is not Ops.RANGE or at.arg[-1] is not AxisType.LOOP for r,at in loops): return False
  return is_cheap_again(src, find_renderer(x.device))
