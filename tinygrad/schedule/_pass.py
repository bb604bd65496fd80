"""The current pass: what one run of the stages, from tensor graph to kernels, knows and finds. There is one at a time.

A stage reads what an earlier one left here, and notes what a later one needs. The stages run again where a fusion does not pay (_fusion.py): each run
is a Pass of its own. `current` is the last one, also after it is done: the schedule that is made of its kernels asks for its scopes.
"""
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Callable
from tinygrad.uop.ops import UOp
from tinygrad_overlay.schedule._ranges import VmapContext
from tinygrad_overlay.schedule._refusals import Refusal

# node -> why its realize point stands, and node -> what it costs to store a value that is computed again
Decisions = tuple[dict[UOp, Refusal], dict[UOp, Refusal]]
# schedules a part of a graph by itself, and returns what was decided
SettlePart = Callable[[UOp], Decisions]

@dataclass(frozen=True)
class MadeKernel:
  """A kernel of an attempt: the node whose buffer it writes (None: it was put in later), its AST, the LOCAL buffers in it by node, in bytes."""
  node: UOp|None
  ast: UOp
  device: str
  local_bytes: dict[UOp, int]

@dataclass
class Attempt:
  """Which fusions a pass may make, and what is found about those that it makes.

  At the nodes of `realize_points` none may take the realize point away; with `keeps_all` nowhere: each stands, as in stock. `is_judged`: somebody
  will look at what is found. `rounds` attempts were made before.
  """
  realize_points: dict[UOp, Refusal] = field(default_factory=dict)
  keeps_all: bool = False
  # the pass decides in parts, where there is one (_parts.py), and notes so
  settle_part: SettlePart|None = None
  is_decided: bool = False
  is_judged: bool = False
  rounds: int = 0
  toposort: dict[UOp, None] = field(default_factory=dict)
  # the nodes that are realized by rule, whatever their ranges are
  forced: frozenset[UOp] = frozenset()
  consumers: dict[UOp, dict[UOp, None]] = field(default_factory=dict)
  ctx: VmapContext = field(default_factory=VmapContext)
  # node that stock lets its readers compute again -> what it costs to store it (_reuse.py); those that are stored are among `realize_points`
  reused: dict[UOp, Refusal] = field(default_factory=dict)
  # node -> its axes that are realized all the same: none, or those of a LOCAL buffer
  fused: dict[UOp, list[int]] = field(default_factory=dict)
  # node -> why a realize point stands there
  refused: dict[UOp, Refusal] = field(default_factory=dict)
  # id of a RANGE that a LOCAL buffer closes -> its node
  local_ranges: dict[int, UOp] = field(default_factory=dict)
  # value of a row that the row's reduce and its elements read -> its ranges along the row
  row_values: dict[UOp, list[UOp]] = field(default_factory=dict)
  # the nodes that a reader computes again instead of reading their buffer; another reader may keep it
  inlined: set[UOp] = field(default_factory=set)
  # BUFFER -> the node it holds
  buffers: dict[UOp, UOp] = field(default_factory=dict)
  kernels: list[MadeKernel] = field(default_factory=list)

@dataclass
class Pass:
  """One run of the stages. `ctx` has the maps of the rangeify pass, which begins with `has_maps`; `scope_ranges` are the vmap RANGEs of the graph."""
  attempt: Attempt
  ctx: VmapContext = field(default_factory=VmapContext)
  scope_ranges: frozenset[UOp] = frozenset()
  has_maps: bool = False
  # what the stages were given: a node's tag is its index here
  tagged: list[UOp] = field(default_factory=list)

current = Pass(Attempt())

def begin(attempt:Attempt) -> Pass:
  global current
  current = Pass(attempt)
  return current

def begin_rangeify(ctx:VmapContext, scope_ranges:frozenset[UOp]) -> Pass:
  """The current pass gets its maps. One that has some is over: the rangeify pass is called by hand then, without the other stages."""
  this = begin(Attempt()) if current.has_maps else current
  this.ctx, this.scope_ranges, this.has_maps = ctx, scope_ranges, True
  return this

def begin_again(ctx:VmapContext) -> None:
  """The walk is made anew, with what was decided after the first: what that one noted is forgotten."""
  attempt = current.attempt
  current.ctx = attempt.ctx = ctx
  for noted in (attempt.fused, attempt.refused, attempt.local_ranges, attempt.row_values): noted.clear()

def node_of(buf:UOp) -> UOp|None:
  """The node that a BUFFERIZE is the buffer of; None: nobody asked for it to be remembered (_apply.py)."""
  return getattr(buf.arg, "node", None)
