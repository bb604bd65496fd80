"""Values of a row: both the reduce of a row and its elements read them, such as exp(x - max) in a softmax (patches fuse-broadcast, fusion-guard).

Their readers differ only along the row, so stock gives them a buffer. The walk (indexing.py) notes them in `RowValues`; later the removal of buffers
(rangeify.py) asks `is_computed_again`.
"""
from __future__ import annotations
from dataclasses import dataclass, field
from tinygrad.dtype import AddrSpace
from tinygrad.helpers import all_same
from tinygrad.uop.ops import AxisType, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.codegen._work import is_cheap_again
from tinygrad_overlay.schedule._local import find_renderer
from tinygrad_overlay.schedule._pass import Attempt, node_of
from tinygrad_overlay.schedule._ranges import NodeRanges, Ranges

@dataclass
class RowValues:
  """Invariants 5 and 6 of the walk.

  `values`: node whose readers differ along a row -> for each axis and each ambient range, the index of all readers; None if they differ.
  `row_of`: range of such a node on which all readers agree -> their range. If computed again, the node is in their row.
  """
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

def may_compute_again(attempt:Attempt) -> bool:
  return attempt.is_judged and not attempt.keeps_all and {"fuse-broadcast", "fusion-guard"} <= _state.patches

# ops that always keep their buffer: upstream's ALWAYS_RUN_OPS (rangeify.py:127)
NEVER_REMOVED = {Ops.CONTIGUOUS, Ops.COPY, Ops.ASSIGN, Ops.ENCDEC, Ops.NOOP}

def is_computed_again(attempt:Attempt, src:UOp, buf:UOp, idx:UOp) -> bool:
  """Whether the readers of a value of a row compute it again, in one kernel: the sum and the quotient of a softmax both compute exp(x - max).

  Stock keeps its buffer because it contains a reduce (rangeify.py:189-213). But that reduce is over the row, and its readers share the row.
  """
  if (x:=node_of(buf)) is None or x not in attempt.row_values or x in attempt.realize_points: return False
  if src.op in NEVER_REMOVED or not buf.arg.removable or buf.arg.addrspace != AddrSpace.GLOBAL: return False
  return has_readers_row(src, dict(zip(buf.src[1:], idx.src[1:])), attempt.row_values[x]) and is_cheap_again(src, find_renderer(x.device))

def has_readers_row(src:UOp, read_at:dict[UOp, UOp], along:list[UOp]) -> bool:
  """Whether the reduces in a value run once for each row of its reader: the reader, which reads at `read_at`, has a loop for each range that they
  depend on, and no such range is `along` the row."""
  reduces = [u for u in src.toposort(gate=lambda u: not is_global_buffer(u)) if u.op is Ops.REDUCE]
  rows = [r for u in reduces for r in u.ranges if r in read_at]
  return bool(reduces) and all(r not in along and is_loop(read_at[r]) for r in rows)

def is_global_buffer(u:UOp) -> bool: return u.op is Ops.BUFFERIZE and u.arg.addrspace == AddrSpace.GLOBAL
def is_loop(r:UOp) -> bool: return r.op is Ops.RANGE and r.arg[-1] is AxisType.LOOP
