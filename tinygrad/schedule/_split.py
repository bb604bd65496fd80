"""Keeps a gather in one kernel (patch whole-gathers).

Stock splits a REDUCE_AXIS whose result is 32,768 times smaller than its source (rangeify.py:32), and a gather can be such a reduce: the sum over all
r of `where(r == i, x[r], 0)`. Unsplit it is one load (codegen/_gather.py); split it is 256 loads, all but one useless, stored and then added up.
"""
from __future__ import annotations
import itertools
from dataclasses import dataclass, field
from typing import Iterator
from tinygrad.dtype import dtypes
from tinygrad.codegen.simplify import pm_reduce_simplify
from tinygrad.schedule.indexing import apply_movement_op
from tinygrad.uop.ops import AxisType, GroupOp, Ops, UOp, graph_rewrite, resolve, sint
from tinygrad.uop.symbolic import symbolic
from tinygrad_overlay import _state
from tinygrad_overlay.codegen._gather import pick_elements

# number of nodes to search for a comparison with an index: a gather has a few dozen
MAX_NODES = 500
# a BITCAST may have another shape than its source
ELEMENTWISE = GroupOp.Elementwise-{Ops.BITCAST}

@dataclass(frozen=True)
class LeftWhole:
  """A gather along `axes` in a reduce of a `source` shape. Stock would store the shape `between`, and reduce it to `result` in a second kernel.
  `rest`: the other axes of the reduce, which become a separate reduce here."""
  axes: tuple[int, ...]
  rest: tuple[int, ...]
  source: tuple[sint, ...]
  between: tuple[sint, ...]
  result: tuple[sint, ...]

def leave_whole(reduce:UOp, x:UOp, split:UOp) -> UOp|None:
  """Returns the replacement for a REDUCE_AXIS of `x` that stock splits into `split`: itself if it is a gather, None if it is not.

  A gather along only some of its axes becomes two reduces: the gather, and the sum along the other axes, which may be split.
  """
  if "whole-gathers" not in _state.patches or reduce.arg[0] is not Ops.ADD: return None
  if not (gathered:=find_gathered(reduce, x)): return None
  rest = tuple(a for a in reduce.arg[1] if a not in gathered and resolve(x.shape[a] != 1))
  gather = x.r(Ops.ADD, gathered) if rest else reduce
  _state.observer.split_left_out(gather, LeftWhole(gathered, rest, x.shape, find_stored(split).shape, reduce.shape))
  return gather.r(Ops.ADD, rest).replace(tag=reduce.tag) if rest else reduce

def find_stored(split:UOp) -> UOp:
  """Returns the CONTIGUOUS between the two kernels of stock's split (rangeify.py:58)."""
  return split.src[0].src[0]

def find_gathered(reduce:UOp, x:UOp) -> tuple[int, ...]:
  """Returns the reduce axes along which all elements of `x` but one are zero."""
  if not any(u.op is Ops.CMPNE for u in itertools.islice(walk_values(x), MAX_NODES)): return ()
  indexed = Indexed(x.ndim)
  ranges = [UOp.range(s, a, AxisType.REDUCE if a in reduce.arg[1] else AxisType.LOOP) if s != 1 else UOp.const(dtypes.index, 0)
            for a,s in enumerate(x.shape)]
  value = graph_rewrite(indexed.value(x, tuple(ranges)), symbolic+pm_reduce_simplify, name="find gathers")
  summed = [ranges[a] for a in reduce.arg[1] if ranges[a].op is Ops.RANGE]
  _, left = pick_elements(value, summed)
  return tuple(a for a in reduce.arg[1] if ranges[a] in summed and ranges[a] not in left)

def walk_values(x:UOp) -> Iterator[UOp]:
  """Yields `x` and the nodes below it that a kernel computes element by element."""
  seen, waiting = {x}, [x]
  while waiting:
    yield (u:=waiting.pop())
    new = [s for s in find_values(u) if s not in seen]
    seen.update(new)
    waiting += new

def find_values(u:UOp) -> tuple[UOp, ...]:
  """Returns the sources of `u` that a kernel computes element by element."""
  if u.op in ELEMENTWISE: return u.src
  return u.src[:1] if u.op in GroupOp.Movement else ()

@dataclass
class Indexed:
  """Writes elements of tensors as expressions of ranges, like the rangeify pass. A possible buffer becomes a placeholder."""
  next_range: int
  made: dict[tuple[UOp, tuple[UOp, ...]], UOp] = field(default_factory=dict)

  def value(self, u:UOp, ranges:tuple[UOp, ...]) -> UOp:
    if (known:=self.made.get((u, ranges))) is None: known = self.made[(u, ranges)] = self.make(u, ranges)
    return known

  def make(self, u:UOp, ranges:tuple[UOp, ...]) -> UOp:
    if u.op is Ops.CONST: return UOp.const(u.dtype, u.arg)
    if len(self.made) < MAX_NODES:
      if u.op in GroupOp.Movement: return self.move(u, ranges)
      if u.op in ELEMENTWISE: return UOp(u.op, u.dtype, tuple(self.value(s, ranges) for s in u.src), u.arg)
      if u.op is Ops.REDUCE_AXIS and is_counted(u): return self.count(u, ranges)
    return UOp(Ops.NOOP, u.dtype, arg=len(self.made)).index(*ranges)

  def move(self, u:UOp, ranges:tuple[UOp, ...]) -> UOp:
    moved = apply_movement_op(u.op, u.src[0].shape, u.marg, ranges)
    if u.op is not Ops.PAD: return self.value(u.src[0], moved)
    inside = UOp.const(dtypes.bool, True).prod(*[r.get_valid() for r in moved])
    return inside.where(self.value(u.src[0], tuple(r.get_idx() for r in moved)), UOp.const(u.dtype, 0))

  def count(self, u:UOp, ranges:tuple[UOp, ...]) -> UOp:
    """Writes an arange, a sum of ones, as a REDUCE over new ranges."""
    op, axes = u.arg
    own = {a:UOp.range(u.src[0].shape[a], self.next_range+i, AxisType.REDUCE) for i,a in enumerate(axes)}
    self.next_range += len(own)
    return self.value(u.src[0], tuple(own.get(a, r) for a,r in enumerate(ranges))).reduce(*own.values(), arg=op)

def is_counted(u:UOp) -> bool:
  """Whether a REDUCE_AXIS depends on constants alone."""
  return all(s.op in ELEMENTWISE or s.op in GroupOp.Movement or s.op is Ops.CONST for s in walk_values(u.src[0]))
