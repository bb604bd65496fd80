"""The current pass: the state of one run of the stages from tensor graph to kernels. There is one at a time.

A stage reads the notes of earlier stages here and adds notes for later stages. If a fusion does not pay, the stages run again (_fusion.py), each time
with a new Pass. `current` is the last Pass, also after it has ended: the schedule of its kernels needs its scopes.
"""
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Callable
from tinygrad.uop.ops import UOp
from tinygrad_overlay.schedule._ranges import VmapContext
from tinygrad_overlay.schedule._refusals import Refusal

# node -> why it keeps its realize point, and node -> the cost of storing a value that is computed again
Decisions = tuple[dict[UOp, Refusal], dict[UOp, Refusal]]
# schedules a part of a graph, and returns its decisions
SettlePart = Callable[[UOp], Decisions]

@dataclass(frozen=True)
class MadeKernel:
  """A kernel of an attempt: the node that it writes (None: added later), its AST, and the bytes of its LOCAL buffers by node."""
  node: UOp|None
  ast: UOp
  device: str
  local_bytes: dict[UOp, int]

@dataclass
class Attempt:
  """The fusions that a pass may make, and the results of the fusions that it makes.

  No fusion may remove the realize points of `realize_points`; with `keeps_all` no realize point is removed, as in stock. `is_judged`: the guard will
  compare the kernels. `rounds`: attempts before this one.
  """
  realize_points: dict[UOp, Refusal] = field(default_factory=dict)
  keeps_all: bool = False
  # set: the pass decides in parts (_parts.py); `is_decided` says whether it could
  settle_part: SettlePart|None = None
  is_decided: bool = False
  is_judged: bool = False
  rounds: int = 0
  toposort: dict[UOp, None] = field(default_factory=dict)
  # the nodes that a rule realizes, whatever their ranges are
  forced: frozenset[UOp] = frozenset()
  consumers: dict[UOp, dict[UOp, None]] = field(default_factory=dict)
  ctx: VmapContext = field(default_factory=VmapContext)
  # node that stock lets its readers compute again -> the cost of storing it (_reuse.py); stored nodes are in `realize_points` too
  reused: dict[UOp, Refusal] = field(default_factory=dict)
  # fused node -> its realized axes: none, or the axes of a LOCAL buffer
  fused: dict[UOp, list[int]] = field(default_factory=dict)
  # node -> why it keeps its realize point
  refused: dict[UOp, Refusal] = field(default_factory=dict)
  # id of a RANGE that a LOCAL buffer closes -> its node
  local_ranges: dict[int, UOp] = field(default_factory=dict)
  # value read by the reduce of a row and by its elements -> its ranges along the row
  row_values: dict[UOp, list[UOp]] = field(default_factory=dict)
  # the nodes that some reader computes again instead of reading a buffer
  inlined: set[UOp] = field(default_factory=set)
  # BUFFER -> the node it holds
  buffers: dict[UOp, UOp] = field(default_factory=dict)
  kernels: list[MadeKernel] = field(default_factory=list)

@dataclass
class Pass:
  """One run of the stages. `ctx` has the maps of the rangeify pass, if `has_maps`; `scope_ranges` are the vmap RANGEs of the graph."""
  attempt: Attempt
  ctx: VmapContext = field(default_factory=VmapContext)
  scope_ranges: frozenset[UOp] = frozenset()
  has_maps: bool = False
  # the nodes of the original graph: a node's tag is an index into this list
  tagged: list[UOp] = field(default_factory=list)

current = Pass(Attempt())

def begin(attempt:Attempt) -> Pass:
  global current
  current = Pass(attempt)
  return current

def begin_rangeify(ctx:VmapContext, scope_ranges:frozenset[UOp]) -> Pass:
  """Gives the current Pass its maps. If it has maps already, rangeify was called directly, without the other stages, and a new Pass begins."""
  this = begin(Attempt()) if current.has_maps else current
  this.ctx, this.scope_ranges, this.has_maps = ctx, scope_ranges, True
  return this

def begin_again(ctx:VmapContext) -> None:
  """Forgets the notes of the first walk: the second walk uses the decisions made after it."""
  attempt = current.attempt
  current.ctx = attempt.ctx = ctx
  for noted in (attempt.fused, attempt.refused, attempt.local_ranges, attempt.row_values): noted.clear()

def node_of(buf:UOp) -> UOp|None:
  """Returns the node of a BUFFERIZE; None if it was not recorded (_apply.py)."""
  return getattr(buf.arg, "node", None)
