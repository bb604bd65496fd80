"""The state of one run of the stages from tensor graph to kernels: a stage reads the notes of earlier stages and adds notes for later stages. There is
one at a time. If a fusion does not pay, the stages run again (_fusion.py), each time as a new Attempt."""
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Callable, NamedTuple
from tinygrad.schedule.indexing import IndexingContext
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay.schedule._refusals import Refusal

Ranges = tuple[UOp, ...]
# node -> why it keeps its realize point, and node -> the cost of storing a value that is computed again
Decisions = tuple[dict[UOp, Refusal], dict[UOp, Refusal]]
# schedules a part of a graph, and returns its decisions
DecideGraph = Callable[[UOp], Decisions]
# ops whose result is a buffer
IS_BUFFER = {Ops.BUFFER, Ops.BUFFER_VIEW, Ops.MSTACK, Ops.MSELECT, Ops.AFTER}

class NodeRanges(NamedTuple):
  """Stock's pair (ranges on the inputs, ranges on the output), and what each ambient range of the inputs is bound to."""
  ins: Ranges
  outs: Ranges
  ambient: dict[UOp, UOp]

@dataclass
class VmapContext(IndexingContext):
  """What stock's context holds, and `vmap_map`: node -> the ambient ranges it depends on."""
  # stock's pairs, with a third member
  range_map: dict[UOp, NodeRanges] = field(default_factory=dict)  # pyright: ignore[reportIncompatibleVariableOverride]
  vmap_map: dict[UOp, Ranges] = field(default_factory=dict)
  # nodes in a scope that are a LOCAL buffer although all their axes are realized: their batch is not
  local_in_scope: set[UOp] = field(default_factory=set)

class MadeKernel(NamedTuple):
  """A kernel of an attempt: the node that it writes (None: added later), its AST, and the bytes of its LOCAL buffers by node."""
  node: UOp|None
  ast: UOp
  device: str
  local_bytes: dict[UOp, int]

@dataclass
class Attempt:
  """The fusions that a run of the stages may make, and the results of the fusions that it makes. No fusion removes `realize_points`;
  with `keeps_all` no realize point is removed, as in stock. `is_compared`: the guard will compare the kernels. `rounds`: earlier attempts."""
  realize_points: dict[UOp, Refusal] = field(default_factory=dict)
  keeps_all: bool = False
  decide_part: DecideGraph|None = None  # set: the pass decides in parts (_parts.py); `is_decided` says whether it could
  is_decided: bool = False
  known_as: str = ""  # the key of the graph's decisions on disk (_known.py)
  is_recalled: bool = False
  is_compared: bool = False
  rounds: int = 0
  toposort: dict[UOp, None] = field(default_factory=dict)
  forced: frozenset[UOp] = frozenset()  # the nodes that a rule realizes, whatever their ranges are
  consumers: dict[UOp, dict[UOp, None]] = field(default_factory=dict)
  ctx: VmapContext = field(default_factory=VmapContext)
  scope_ranges: frozenset[UOp] = frozenset()  # the vmap RANGEs of the graph
  tagged: list[UOp] = field(default_factory=list)  # the nodes of the original graph: a node's tag is an index into this list
  # node that stock lets its readers compute again -> the cost of storing it (_reuse.py); stored nodes are in `realize_points` too
  reused: dict[UOp, Refusal] = field(default_factory=dict)
  fused: dict[UOp, list[int]] = field(default_factory=dict)  # fused node -> its realized axes: none, or the axes of a LOCAL buffer
  refused: dict[UOp, Refusal] = field(default_factory=dict)  # node -> why it keeps its realize point
  local_ranges: dict[int, UOp] = field(default_factory=dict)  # id of a RANGE that a LOCAL buffer closes -> its node
  row_values: dict[UOp, list[UOp]] = field(default_factory=dict)  # value read by the reduce of a row and by its elements -> its ranges along the row
  inlined: set[UOp] = field(default_factory=set)  # the nodes that some reader computes again instead of reading a buffer
  buffers: dict[UOp, UOp] = field(default_factory=dict)  # BUFFER -> the node it holds
  kernels: list[MadeKernel] = field(default_factory=list)

current = Attempt()

def begin(attempt:Attempt) -> Attempt:
  global current
  current = attempt
  return attempt

def end(attempt:Attempt) -> None:
  """Forgets the attempt, which holds the whole graph, but not its scopes and tags: the schedule of its kernels needs them."""
  begin(Attempt(scope_ranges=attempt.scope_ranges, tagged=attempt.tagged))

def node_of(buf:UOp) -> UOp|None:
  """Returns the node of a BUFFERIZE; None if it was not recorded (_apply.py)."""
  return getattr(buf.arg, "node", None)
