"""Arrays with the set ids of a node, and movement ops on them, as numpy views if possible."""
from __future__ import annotations
import itertools, math
from dataclasses import dataclass
from typing import Any
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay._func.index_sets import ZERO
from tinygrad_overlay._func.lazy_numpy import np
from tinygrad_overlay.schedule._scopes import describe_place

@dataclass(frozen=True)
class SetIds:
  """The set ids of a node: `ids` has one axis for each of `ranges`, then the axes of the node."""
  ranges: tuple[UOp, ...]
  ids: Any

# *** arrays

def prod(shape:tuple[int, ...], axes) -> int: return math.prod(shape[a] for a in axes)
def with_ones(shape:tuple[int, ...], axes) -> list[int]: return [1 if a in axes else size for a,size in enumerate(shape)]

def everywhere(i:int, u:UOp) -> SetIds: return SetIds((), np.broadcast_to(np.int32(i), u._shape or ()))
def smallest(ids):
  """Returns a part of the array with all of its values: one element along each axis on which it repeats."""
  return ids[tuple(slice(0, 1) if size > 1 and stride == 0 else slice(None) for size,stride in zip(ids.shape, ids.strides))]
def has_zero(ids) -> bool: return bool((smallest(ids) == ZERO).any())

def align(values) -> tuple[tuple[UOp, ...], list]:
  """Returns all ranges of the values, and their arrays with an axis for each range, broadcast to one shape."""
  ranges = tuple(sorted({r for v in values for r in v.ranges}, key=lambda r: r.arg[:-1], reverse=True))
  arrays = []
  for v in values:
    own = np.transpose(v.ids, [v.ranges.index(r) for r in ranges if r in v.ranges]+list(range(len(v.ranges), v.ids.ndim)))
    arrays.append(own[tuple(slice(None) if r in v.ranges else None for r in ranges)])
  shape = np.broadcast_shapes(*[a.shape for a in arrays])
  return ranges, [np.broadcast_to(a, shape) for a in arrays]

def along_strides(fn, *arrays):
  """Returns fn(*arrays) elementwise, computed once along axes on which all arrays repeat."""
  shape = arrays[0].shape
  one = tuple(slice(0, 1) if size > 1 and all(a.strides[axis] == 0 for a in arrays) else slice(None) for axis,size in enumerate(shape))
  return np.broadcast_to(fn(*[a[one] for a in arrays]), shape)

# *** movement, as views of the ids if possible

def reshape(u:UOp, value:SetIds) -> SetIds: return SetIds(value.ranges, value.ids.reshape(batch_shape(value)+fixed(u, u.shape)))
def expand(u:UOp, value:SetIds) -> SetIds: return SetIds(value.ranges, np.broadcast_to(value.ids, batch_shape(value)+fixed(u, u.shape)))
def batch_shape(value:SetIds) -> tuple[int, ...]: return value.ids.shape[:len(value.ranges)]

def permute(u:UOp, value:SetIds) -> SetIds:
  batch = len(value.ranges)
  order: Any = u.marg
  return SetIds(value.ranges, value.ids.transpose(list(range(batch))+[batch+a for a in order]))

def flip(u:UOp, value:SetIds) -> SetIds:
  return SetIds(value.ranges, value.ids[..., *[slice(None, None, -1) if f else slice(None) for f in u.marg]])

def shrink(u:UOp, value:SetIds) -> SetIds:
  return at_each_step(u, value, lambda ids, marg: ids[..., *[slice(*bounds) for bounds in marg]])

def pad(u:UOp, value:SetIds) -> SetIds:
  return at_each_step(u, value, lambda ids, marg: np.pad(ids, [(0, 0)]*(ids.ndim-len(marg))+list(marg), constant_values=ZERO))

def at_each_step(u:UOp, value:SetIds, move) -> SetIds:
  """Applies a SHRINK or PAD whose bounds may depend on RANGEs: the result has an axis for each such RANGE."""
  steps = tuple({r:None for s in u.src[1:] for r in s.ranges})
  bounds_of_axes: Any = u.marg
  if not steps: return SetIds(value.ranges, move(value.ids, [fixed(u, bounds) for bounds in bounds_of_axes]))
  known, rest = tuple(r for r in value.ranges if r in steps), tuple(r for r in value.ranges if r not in steps)
  ids = value.ids.transpose([*map(value.ranges.index, known+rest), *range(len(value.ranges), value.ids.ndim)])
  counts, moved = count_steps(steps), []
  for step in itertools.product(*map(range, counts)):
    at = {r:r.const_like(i) for r,i in zip(steps, step)}
    moved.append(move(ids[tuple(at[r].arg for r in known)], [bounds_at(u, bounds, at) for bounds in bounds_of_axes]))
  return SetIds(steps+rest, np.stack(moved).reshape(*counts, *moved[0].shape))

def count_steps(ranges:tuple[UOp, ...]) -> tuple[int, ...]: return tuple(int(r.vmax)+1 for r in ranges)

def bounds_at(u:UOp, bounds, at:dict[UOp, UOp]) -> tuple[int, ...]:
  return fixed(u, [b.substitute(at).ssimplify() if isinstance(b, UOp) else b for b in bounds])

def fixed(u:UOp, sizes) -> tuple[int, ...]:
  if all(isinstance(s, int) for s in sizes): return tuple(sizes)
  raise NotImplementedError(f"jacobian_sparsity: {describe_place(u)} has a symbolic size, and there is no pattern for all of its values")

def vmapin(u:UOp, value:SetIds) -> SetIds:
  batch = len(value.ranges)
  mapped = {r:batch+a for a,r in enumerate(u.src[1:]) if r.op is Ops.RANGE}
  stay = [a for a in range(value.ids.ndim) if a not in mapped.values()]
  return SetIds((*mapped, *value.ranges), value.ids.transpose([*mapped.values(), *stay]))

def vmapout(u:UOp, value:SetIds) -> SetIds:
  ended = [r for r in u.src[1:] if r.op is Ops.RANGE]
  batch = tuple(r for r in value.ranges if r not in ended)
  axis_of, inner = {r:a for a,r in enumerate(value.ranges)}, iter(range(len(value.ranges), value.ids.ndim))
  # None: a value that does not vary over a RANGE has no axis for it
  order = [axis_of[r] for r in batch]+[axis_of.get(r) if r in ended else next(inner) for r in u.src[1:]]
  ids = value.ids.transpose([a for a in order if a is not None])[tuple(None if a is None else slice(None) for a in order)]
  return SetIds(batch, np.broadcast_to(ids, count_steps(batch)+fixed(u, u.shape)))

MOVEMENT = {Ops.RESHAPE:reshape, Ops.EXPAND:expand, Ops.PERMUTE:permute, Ops.FLIP:flip, Ops.SHRINK:shrink, Ops.PAD:pad,
            Ops.VMAPIN:vmapin, Ops.VMAPOUT:vmapout}
