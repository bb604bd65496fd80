"""Decides for each part of a graph separately, and once for equal parts, such as the layers of a network (patches fusion-guard, realize-reused).

A part has the nodes between values that are buffers in any case, such as the result of a matmul. It is scheduled as a graph whose inputs are those
buffers. An equal part has the same nodes at the same positions, so it takes over the decisions. Then the whole graph is scheduled once."""
from __future__ import annotations
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import GroupOp, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay._state import process
from tinygrad_overlay.codegen._work import find_renderer
from tinygrad_overlay.schedule import _pass
from tinygrad_overlay.schedule._pass import IS_BUFFER, Attempt, Decisions, DecideGraph
from tinygrad_overlay.schedule._refusals import Refusal
from tinygrad_overlay.schedule._reuse import Reuse, reduce_shape

# limit for the nodes of all different parts that are scheduled: a constant, or a share of a large graph's nodes
FREE_NODES, SHARE = 1500, 0.2

# ops that a part may hold; other ops are buffers, or read buffers
PLAIN = GroupOp.Elementwise|GroupOp.Movement|{Ops.REDUCE_AXIS, Ops.CONTIGUOUS, Ops.CONST, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.NOOP}
# nodes that parts may share without becoming one part
LEAVES = {Ops.DEVICE, Ops.UNIQUE, Ops.LUNIQUE, Ops.CONST, Ops.DEFINE_VAR, Ops.BIND, Ops.RANGE, Ops.BUFFER}
NOTHING: frozenset[UOp] = frozenset()
# share of the graph's nodes that its different parts may have to be scheduled by themselves
MOST_NODES = 0.5
# stock keeps the buffer of a value that reads more buffers
MAX_BUFFERS = 3

class DisjointSets:
  """Disjoint sets. Each set is represented by one of its elements."""
  def __init__(self): self.parent: dict[Any, Any] = {}
  def find(self, x:Any) -> Any:
    # `is`, because != of two UOps is a UOp
    root = self.parent.setdefault(x, x)
    while (up:=self.parent[root]) is not root: root = up
    # path compression: a graph may be a chain of thousands
    while self.parent[x] is not root: self.parent[x], x = root, self.parent[x]
    return root
  def join(self, a:Any, b:Any) -> None: self.parent[self.find(a)] = self.find(b)

@dataclass
class Part:
  """Nodes that are computed together, in graph order; `outputs` are the nodes that are buffers in any case."""
  nodes: list[UOp] = field(default_factory=list)
  outputs: list[UOp] = field(default_factory=list)
  is_plain: bool = True
  may_fuse: bool = False  # a fusion would remove a buffer that stock keeps
  may_store: bool = False  # a value without a buffer may be worth one

# a part cannot be scheduled by itself
class NoParts(Exception): pass

class Values:
  """The buffers that each node's value reads."""
  def __init__(self, buffers:set[UOp]):
    self.buffers = buffers
    self.reads: dict[UOp, frozenset[UOp]|None] = {}  # None: more buffers than stock lets a value without its own buffer read
    self.reduces: dict[UOp, bool] = {}  # whether a reduce in the value reads any of them

  def note(self, x:UOp) -> bool:
    """Returns whether stock keeps the buffer of `x`, if it has one (rangeify.py:169-200). The sources of `x` must be noted before."""
    read: frozenset[UOp]|None = NOTHING
    for s in x.src:
      mine = frozenset({s}) if s in self.buffers or s.op is Ops.BUFFER else self.reads[s]
      read = None if read is None or mine is None or len(read|mine) > MAX_BUFFERS else read|mine
    self.reads[x] = read
    self.reduces[x] = any(self.reduces[s] for s in x.src if s not in self.buffers) or (x.op is Ops.REDUCE_AXIS and read != NOTHING)
    return read is None or self.reduces[x]

def find_kept(walked:Attempt) -> set[UOp]:
  """Returns the nodes that have a buffer in stock's schedule. A fusion of another node changes nothing."""
  values, realize_map = Values(set()), walked.ctx.realize_map
  for x in walked.toposort:
    is_kept = values.note(x) and x.op is not Ops.THREEFRY and (x in realize_map or x in walked.fused)
    if is_kept or x in walked.forced or x.op in IS_BUFFER: values.buffers.add(x)
  return values.buffers

class Parts:
  def __init__(self, walked:Attempt, decide_graph:DecideGraph):
    self.walked, self.decide_graph = walked, decide_graph
    self.realize_map = walked.ctx.realize_map
    self.limit = self.budget = max(FREE_NODES, int(SHARE*len(walked.toposort)))
    self.seen: set[tuple] = set()

  def find_parts(self) -> list[Part]:
    """Returns the parts with something to decide."""
    self.find_buffers()
    found: dict[UOp, Part] = {}
    for x in self.walked.toposort:
      # values of constants alone do not join parts: each part has its own copy
      if x.op in LEAVES or x.op is Ops.SINK or self.is_constant(x): continue
      part = found.setdefault(self.together.find(x), Part())
      part.nodes.append(x)
      if x in self.cuts: part.outputs.append(x)
      part.is_plain &= x.op in PLAIN
      part.may_fuse |= x in self.kept and (x in self.walked.fused or self.may_be_computed_again(x))
      part.may_store |= x in self.realize_map and x not in self.kept
    return [p for p in found.values() if p.may_fuse or (p.may_store and self.may_store(p))]

  def may_store(self, part:Part) -> bool:
    """Whether a value of a part without fusions may be worth a buffer: counts on the tensor graph, which does not show a gather's loads."""
    if "realize-reused" not in _state.patches: return False
    if any(x.op is Ops.REDUCE_AXIS and x.arg[0] is Ops.ADD for x in part.nodes) and any(map(is_comparison, part.nodes)): return True
    def count(root:UOp) -> Counter[tuple]:
      inside = root.toposort(gate=lambda u: u is root or u not in self.kept)
      return Counter(reduce_shape(u) for u in inside if u.op is Ops.REDUCE_AXIS and not self.is_constant(u))
    reduces = {x:count(x) for x in part.nodes if x in self.kept and x in self.walked.ctx.range_map}
    inlined = {x for x in part.nodes if x in self.realize_map and x not in self.kept}
    return Reuse(self.walked, find_renderer(part.outputs[0].device), reduces, inlined, self.kept).may_pay(part.nodes)

  def find_buffers(self) -> None:
    """Finds the nodes that are buffers in any case, and joins each other node with its readers."""
    self.cuts: set[UOp] = set()
    # reads with all fusions; `kept`: stock's schedule has none
    self.fused, self.kept, self.together = Values(self.cuts), find_kept(self.walked), DisjointSets()
    for x in self.walked.toposort:
      is_kept, axes = self.fused.note(x) and x in self.kept, self.realize_map.get(x)
      # forced by rule, or realized and kept by stock's cost function
      is_realized = axes is not None and len(axes) == len(x.shape) and is_kept and not self.may_be_computed_again(x)
      if x in self.walked.forced or x.op in IS_BUFFER or is_realized: self.cuts.add(x)
      for s in x.src:
        if s not in self.cuts and s.op not in LEAVES and not self.is_constant(s): self.together.join(s, x)

  def may_be_computed_again(self, x:UOp) -> bool:
    """Whether x is a value of a row with reduces, all over whole rows (_policy.py)."""
    if x not in self.walked.row_values or not self.fused.reduces[x]: return False
    range_map, along = self.walked.ctx.range_map, set(self.walked.row_values[x])
    reduces = [u for u in x.toposort(gate=lambda u: u is x or u not in self.cuts) if u.op is Ops.REDUCE_AXIS and u in range_map]
    return not any(along.intersection(UOp.sink(*range_map[u].outs).ranges) for u in reduces)

  def is_constant(self, x:UOp) -> bool: return x not in self.cuts and self.fused.reads[x] == NOTHING

  def decide_part(self, part:Part, sink:UOp, nodes:dict[UOp, UOp]) -> Decisions:
    """Returns the decisions of an equal part, or schedules this part, the graph `sink` with the nodes `nodes`. Raises NoParts."""
    key = (_state.patches, type(find_renderer(sink.src[0].device)).__name__, sink.key)
    # a part known from another graph counts too: a schedule must not depend on earlier schedules
    if key not in self.seen:
      if len(nodes) > self.budget:
        if "fusion-guard" not in _state.patches: return {}, {}
        refusal = Refusal("fusion-guard", "not-tried", {"nodes": len(part.nodes), "limit": self.limit})
        return {x:refusal for x in part.nodes if x in self.walked.fused or x in self.walked.row_values}, {}
      self.budget -= len(nodes)
      self.seen.add(key)
    if key not in process.parts: process.parts[key] = self.place(self.decide_graph(sink), list(nodes.values()))
    if (found:=process.parts[key]) is None: raise NoParts
    order = list(nodes)
    points, again = ({order[i]:refusal for i,refusal in places.items()} for places in found)
    return points, again

  def cut_out(self, part:Part) -> tuple[UOp, dict[UOp, UOp]]:
    """Returns the part as a separate graph, and node -> its node there. Equal parts give the same graph: input buffers and unique constants are
    numbered in the order in which the walk meets them. Raises NoParts if a size is a variable."""
    numbers: dict[UOp, int] = {}
    new: dict[UOp, UOp] = {}
    def number(x:UOp) -> UOp: return UOp(Ops.LUNIQUE, arg=numbers.setdefault(x, len(numbers)))
    inside, root = set(part.nodes), UOp.sink(*part.outputs)
    for x in root.toposort(gate=lambda u: u is root or u in inside or u.op in LEAVES or self.is_constant(u)):
      if x is root: continue
      for s in x.src:
        if s in new: continue
        # a BUFFER replaces a node of another part
        if s._shape is None or not all(isinstance(n, int) for n in s.shape) or s._device is None: raise NoParts
        new[s] = UOp(Ops.BUFFER, s.dtype, (number(s), UOp(Ops.DEVICE, arg=s.device)), math.prod(s.shape)).reshape(s.shape)
      new[x] = number(x) if x.op in {Ops.UNIQUE, Ops.LUNIQUE} else x.replace(src=tuple(new[s] for s in x.src), tag=None)
    return UOp.sink(*[new[x] for x in part.outputs]), {x:new[x] for x in new if x in inside or self.is_constant(x)}

  def place(self, decisions:Decisions, nodes:list[UOp]) -> tuple[dict[int, Refusal], dict[int, Refusal]]|None:
    """Returns the decisions by the positions of their nodes; None if a node is not in the part."""
    places = {x:i for i,x in enumerate(nodes)}
    memo: dict[UOp, UOp] = {}
    found = tuple({places.get(find_tagged(x, _pass.current.tagged, memo), -1):refusal for x,refusal in refused.items()} for refused in decisions)
    return None if any(-1 in refused for refused in found) else (found[0], found[1])

def is_comparison(x:UOp) -> bool: return x.op in {Ops.CMPNE, Ops.CMPEQ} and x.src[0].dtype != dtypes.bool

def find_tagged(x:UOp, tagged:list[UOp], memo:dict[UOp, UOp]) -> UOp:
  """Returns the node of the original graph that became `x` in the stages, by its tag; a movement op has the tag of its source."""
  for u in x.toposort():
    if u in memo: continue
    memo[u] = tagged[u.tag[0]] if u.tag else u.replace(src=tuple(memo[s] for s in u.src))
  return memo[x]

def decide(walked:Attempt, decide_graph:DecideGraph) -> Decisions|None:
  """Returns the decisions for a graph that was walked once with every fusion that the ranges allow; None if it cannot be decided in parts."""
  around = _pass.current
  realize_points: dict[UOp, Refusal] = {}
  reused: dict[UOp, Refusal] = {}
  parts = Parts(walked, decide_graph)
  try:
    found = parts.find_parts()
    if not all(p.is_plain for p in found): return None
    cut = [(p, *parts.cut_out(p)) for p in found]
    # to schedule most of a graph as parts and then the graph takes longer than to schedule only the graph
    different = {sink:len(nodes) for _,sink,nodes in cut}
    if MOST_NODES*len(walked.toposort) < sum(different.values()) <= parts.limit: return None
    # the smallest first: many small parts need as much as one large part
    for part,sink,nodes in sorted(cut, key=lambda c: len(c[0].nodes)):
      points, again = parts.decide_part(part, sink, nodes)
      realize_points.update(points)
      reused.update(again)
    return realize_points, reused
  except NoParts: return None
  finally: _pass.begin(around)
