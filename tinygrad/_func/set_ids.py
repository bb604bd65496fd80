"""Arrays with the set ids of a node, and movement ops on them: SetIds has an id for each element and moves them as numpy views if possible; FewIds has
only the ids that are not ZERO, with their positions.

A gather or a scatter is a sum over `where(index == arange, x, 0)`. The summed array has rows * columns elements, but only as many nonzero elements as
the index has entries."""
from __future__ import annotations
import itertools, math
from dataclasses import dataclass, replace
from typing import Any, Iterator, cast
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay._func.index_sets import NONE, ZERO, IndexSets, np
from tinygrad_overlay.schedule._scopes import describe_place

@dataclass(frozen=True)
class SetIds:
  """The set ids of a node: `ids` has one axis for each of `ranges`, then the axes of the node."""
  ranges: tuple[UOp, ...]
  ids: Any

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
  return SetIds(value.ranges, value.ids.transpose(list(range(batch))+[batch+a for a in cast(Any, u.marg)]))

def flip(u:UOp, value:SetIds) -> SetIds:
  return SetIds(value.ranges, value.ids[..., *[slice(None, None, -1) if f else slice(None) for f in u.marg]])

def shrink(u:UOp, value:SetIds) -> SetIds:
  return at_each_step(u, value, lambda ids, marg: ids[..., *[slice(*bounds) for bounds in marg]])

def pad(u:UOp, value:SetIds) -> SetIds:
  return at_each_step(u, value, lambda ids, marg: np.pad(ids, [(0, 0)]*(ids.ndim-len(marg))+list(marg), constant_values=ZERO))

def at_each_step(u:UOp, value:SetIds, move) -> SetIds:
  """Applies a SHRINK or PAD whose bounds may depend on RANGEs: the result has an axis for each such RANGE."""
  steps, bounds_of_axes = tuple({r:None for s in u.src[1:] for r in s.ranges}), cast(Any, u.marg)
  if not steps: return SetIds(value.ranges, move(value.ids, [fixed(u, bounds) for bounds in bounds_of_axes]))
  known, rest = tuple(r for r in value.ranges if r in steps), tuple(r for r in value.ranges if r not in steps)
  ids = value.ids.transpose([*map(value.ranges.index, known+rest), *range(len(value.ranges), value.ids.ndim)])
  counts, moved = count_steps(steps), []
  for step in itertools.product(*map(range, counts)):
    at = {r:r.const_like(i) for r,i in zip(steps, step)}
    def at_step(bound): return bound.substitute(at).ssimplify() if isinstance(bound, UOp) else bound
    moved.append(move(ids[tuple(at[r].arg for r in known)], [fixed(u, [at_step(b) for b in bounds]) for bounds in bounds_of_axes]))
  return SetIds(steps+rest, np.stack(moved).reshape(*counts, *moved[0].shape))

def count_steps(ranges:tuple[UOp, ...]) -> tuple[int, ...]: return tuple(int(r.vmax)+1 for r in ranges)

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

# *** arrays that are nearly all ZERO

@dataclass(frozen=True)
class FewIds:
  """An array of `shape` with the nonzero `ids` at the positions `at`, and ZERO elsewhere. `at` has for each axis the positions of all ids, or None if
  the array repeats along the axis (always None for an axis of size 1)."""
  shape: tuple[int, ...]
  at: tuple[Any, ...]
  ids: Any

  def dense(self) -> Any:
    sizes = [1 if p is None else size for size,p in zip(self.shape, self.at)]
    ret = np.full(math.prod(sizes), ZERO, np.int32)
    ret[self.number([a for a,p in enumerate(self.at) if p is not None])] = self.ids
    return np.broadcast_to(ret.reshape(sizes), self.shape)

  def number(self, axes:list[int]) -> Any:
    """Returns a number for each element, equal for equal positions on `axes`."""
    if not axes: return np.zeros(len(self.ids), np.int64)
    return np.ravel_multi_index([self.at[a] for a in axes], [self.shape[a] for a in axes])

  def keep(self, chosen) -> FewIds:
    """Returns the elements that a bool mask or an index array chooses."""
    return replace(self, at=tuple(p if p is None else p[chosen] for p in self.at), ids=self.ids[chosen])

  def spread(self, axes) -> FewIds:
    """Returns the same array with explicit positions for `axes`, except axes of size 1."""
    ret = self
    for a in axes:
      if ret.at[a] is not None or (size:=self.shape[a]) == 1: continue
      each = ret.keep(np.repeat(np.arange(len(ret.ids)), size))
      ret = replace(each, at=each.at[:a]+(np.tile(np.arange(size), len(ret.ids)),)+each.at[a+1:])
    return ret

def of_array(array:Any, ids:Any) -> FewIds:
  """Returns all elements of an array with their ids; `array` repeats along axes of stride 0."""
  at = np.indices(array.shape).reshape(array.ndim, -1) if array.ndim else ()
  return FewIds(array.shape, tuple(None if size == 1 else p for size,p in zip(array.shape, at)), ids)

def find_pairs(a:Any, b:Any, most:float=math.inf) -> tuple[Any, Any]|None:
  """Returns (i, j): all pairs with a[i] == b[j]; None for more than `most` pairs. `a` and `b` are integers."""
  order = np.argsort(b, kind="stable")
  first, end = (np.searchsorted(b[order], a, side=side) for side in ("left", "right"))
  counts = end-first
  if counts.sum() > most: return None
  step = np.arange(counts.sum())-np.repeat(np.cumsum(counts)-counts, counts)
  return np.repeat(np.arange(len(a)), counts), order[np.repeat(first, counts)+step]

def pair(a:FewIds, b:FewIds, i:Any, j:Any, ids:Any) -> FewIds:
  """Combines the elements i of `a` with the elements j of `b`, which agree on positions that both have."""
  at = tuple(p[i] if p is not None else None if q is None else q[j] for p,q in zip(a.at, b.at))
  return FewIds(a.shape, at, ids)

def shared_axes(a:FewIds, b:FewIds) -> list[int]: return [axis for axis,(p,q) in enumerate(zip(a.at, b.at)) if p is not None and q is not None]

def find_equal(a:Any, b:Any, most:int) -> FewIds|None:
  """Returns NONE wherever two integer arrays of one shape are equal; None if that are more than `most` places."""
  shape = a.shape
  small_a, small_b = (smallest(v) for v in (a, b))
  if max(small_a.size, small_b.size) > most: return None
  few_a, few_b = (replace(of_array(v, v.reshape(-1)), shape=shape) for v in (small_a, small_b))
  axes = shared_axes(few_a, few_b)
  _, codes = np.unique(np.concatenate([few_a.ids, few_b.ids]), return_inverse=True)
  places = math.prod(shape[axis] for axis in axes)
  keys_a, keys_b = codes[:small_a.size]*places+few_a.number(axes), codes[small_a.size:]*places+few_b.number(axes)
  if (pairs:=find_pairs(keys_a, keys_b, most)) is None: return None
  i, j = pairs
  return pair(few_a, few_b, i, j, np.full(len(i), NONE, np.int32))

def multiply(sets:IndexSets, few:FewIds, other:FewIds|Any) -> FewIds:
  """Returns the union where neither is ZERO. `other` is an array of ids, or a FewIds."""
  if isinstance(other, FewIds):
    axes = shared_axes(few, other)
    pairs: Any = find_pairs(few.number(axes), other.number(axes))
    i, j = pairs
    return pair(few, other, i, j, sets.join(few.ids[i], other.ids[j]))
  few = few.spread(axis for axis,stride in enumerate(other.strides) if stride)
  ids = other[tuple(0 if p is None else p for p in few.at)]
  ids = np.broadcast_to(ids, few.ids.shape)
  return replace(few, ids=sets.join(few.ids, ids)).keep(ids != ZERO)

def reduce_few(sets:IndexSets, few:FewIds, axes:tuple[int, ...]) -> FewIds:
  """Returns the union along `axes`, which get size 1."""
  shape = tuple(1 if a in axes else size for a,size in enumerate(few.shape))
  kept = [a for a,p in enumerate(few.at) if p is not None and a not in axes]
  sizes = [shape[a] for a in kept]
  different, row_of = np.unique(few.number(kept), return_inverse=True)
  order = np.lexsort((few.ids, row_of))
  # an element without derivative is in no union
  order = order[few.ids[order] > NONE]
  ids = sets.unite(row_of[order], few.ids[order], len(different))
  found = dict(zip(kept, np.unravel_index(different, sizes))) if kept else {}
  return FewIds(shape, tuple(found.get(a) for a in range(len(shape))), ids)

def move_few(few:FewIds, op:Ops, marg:Any, shape:tuple[int, ...]) -> FewIds:
  """Applies a movement op with integer bounds; the result has `shape`."""
  match op:
    case Ops.RESHAPE: return reshape_few(few, shape)
    case Ops.EXPAND: return replace(few, shape=shape)
    case Ops.PERMUTE: return FewIds(shape, tuple(few.at[a] for a in marg), few.ids)
    case Ops.FLIP:
      return replace(few, at=tuple(size-1-p if f and p is not None else p for size,p,f in zip(few.shape, few.at, marg)))
    case Ops.PAD:
      few = few.spread(a for a,(low,high) in enumerate(marg) if low or high)
      # a padded axis of size 1 gets positions
      at = [np.zeros(len(few.ids), np.int64) if p is None and (low or high) else p for p,(low,high) in zip(few.at, marg)]
      return FewIds(shape, tuple(None if p is None else p+low for p,(low,_) in zip(at, marg)), few.ids)
    case Ops.SHRINK:
      inside = np.ones(len(few.ids), bool)
      for p,(low,high) in zip(few.at, marg):
        if p is not None: inside &= (low <= p) & (p < high)
      few = few.keep(inside)
      return FewIds(shape, tuple(None if p is None or size == 1 else p-low for p,(low,_),size in zip(few.at, marg, shape)), few.ids)
  raise AssertionError(f"{op} is not a movement op")

def reshape_few(few:FewIds, shape:tuple[int, ...]) -> FewIds:
  groups = list(group_axes(few.shape, shape))
  for old,new in groups:
    # an array that repeats along only some axes of a group does not repeat along the new axes
    if any(few.at[a] is not None for a in old) and [few.shape[a] for a in old] != [shape[a] for a in new]: few = few.spread(old)
  at: dict[int, Any] = {}
  for old,new in groups:
    if [few.shape[a] for a in old] == [shape[a] for a in new]: at.update((b, few.at[a]) for a,b in zip(old, new))
    elif any(few.at[a] is not None for a in old):
      at.update(zip(new, np.unravel_index(few.number(old), [shape[a] for a in new])))
  return FewIds(shape, tuple(at.get(a) for a in range(len(shape))), few.ids)

def group_axes(old:tuple[int, ...], new:tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
  """Yields the smallest groups of axes with equally many elements in both shapes, without axes of size 1."""
  waiting_old, waiting_new = ([a for a,size in enumerate(shape) if size != 1] for shape in (old, new))
  while waiting_old:
    from_old, from_new = [waiting_old.pop(0)], [waiting_new.pop(0)]
    while (a:=math.prod(old[i] for i in from_old)) != (b:=math.prod(new[i] for i in from_new)):
      if a < b: from_old.append(waiting_old.pop(0))
      else: from_new.append(waiting_new.pop(0))
    yield from_old, from_new
