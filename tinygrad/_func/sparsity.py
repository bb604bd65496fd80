"""The pattern of a Jacobian, from index sets that are pushed through the tensor graph.

The value of a node is an array with one id for each of its elements, that of a set of columns in a table (`index_sets.py`): the elements of
x that it can move with. Movement ops move the ids, as views where numpy has one; elementwise ops unite sets pair by pair, each distinct
pair once; a reduce unites those along its axes. A value inside a vmap scope has the RANGEs that it varies over as first axes, so VMAPIN and
VMAPOUT only name and place axes.

ZERO marks elements that are zero whatever x is: PAD makes them, constants have them, and a product with one of them depends on nothing.
"""
from __future__ import annotations
import itertools, math
from dataclasses import dataclass
from typing import Any
from tinygrad.dtype import dtypes
from tinygrad.engine import realize
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import GroupOp, Ops, UOp
from tinygrad_overlay._func.index_sets import NONE, ZERO, IndexSets
from tinygrad_overlay._func.lazy_numpy import np
from tinygrad_overlay.schedule._scopes import collect_batch, describe_place

@dataclass(frozen=True)
class SetIds:
  """The ids of a node's sets: `ids` has one axis for each of `ranges`, then those of the node."""
  ranges: tuple[UOp, ...]
  ids: Any

def find_rows(out:UOp, x:UOp) -> tuple[Any, Any]:
  """Returns (rows, cols), sorted: for each element of `out`, by its offset, the elements of `x` that it can move with."""
  return Propagation(x, out).find_rows(out)

class Propagation:
  def __init__(self, x:UOp, out:UOp):
    self.x, self.sets = x, IndexSets(x.size)
    self.toposort = list(out.toposort())
    self.constants: dict[UOp, SetIds] = {}
    each = self.sets.add_sets(np.arange(x.size), np.ones(x.size, np.int64))
    self.found: dict[UOp, SetIds] = {x: SetIds((), each.reshape(x.shape))}

  def find_rows(self, out:UOp) -> tuple[Any, Any]:
    moving = self.find_moving()
    if out not in moving: return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # each array is dropped after its last reader
    last = {s:u for u in self.toposort for s in u.src}
    for u in self.toposort:
      if u in moving and u not in self.found: self.found[u] = self.without_derivative(u, self.push(u))
      for s in set(u.src):
        if last[s] is u and s is not out: self.found.pop(s, None)
    return self.sets.gather_rows(self.over_steps(self.found[out]).reshape(-1))

  def find_moving(self) -> set[UOp]:
    """The nodes that move with x, those among them that have no derivative too."""
    moving = {self.x}
    for u in self.toposort:
      if any(s in moving for s in u.src): moving.add(u)
    return moving

  def without_derivative(self, u:UOp, value:SetIds) -> SetIds:
    # integers and bools only jump, and so does TRUNC
    if dtypes.is_float(u.dtype.scalar()) and u.op not in {Ops.DETACH, Ops.TRUNC}: return value
    return SetIds(value.ranges, along_strides(lambda ids: np.minimum(ids, NONE), value.ids))

  def push(self, u:UOp) -> SetIds:
    """The sets of a node of which a source moves with x."""
    if u.op in MOVEMENT: return MOVEMENT[u.op](u, self.of(u.src[0]))
    if u.op is Ops.BITCAST: return everywhere(NONE, u)
    if u.op in UNCHANGED: return self.of(u.src[0])
    if u.op in {Ops.REDUCE_AXIS, Ops.REDUCE}: return self.reduce(u, self.of(u.src[0]))
    if u.op is Ops.WHERE: return self.select(u)
    if u.op in PRODUCT: return self.product(u)
    if u.op in ZERO_OF_ZEROS: return self.sum(u)
    if u.op in GroupOp.Elementwise:
      ids = self.unite(*[self.of(s) for s in u.src])
      return SetIds(ids.ranges, along_strides(lambda v: np.maximum(v, NONE), ids.ids))
    raise NotImplementedError(f"jacobian_sparsity: {describe_place(u)} moves with x, and there is no rule for what its elements depend on")

  def over_steps(self, value:SetIds) -> Any:
    """The union over the steps of the scopes that x and the result are in: a constant can differ from step to step."""
    return self.sets.reduce(value.ids.reshape(math.prod(batch_shape(value)), -1).T, False) if value.ranges else value.ids

  # *** constants

  def of(self, u:UOp, exact:bool=False) -> SetIds:
    """The sets of a source. `exact` asks for all zeros of a constant; without it, for those found without running a kernel."""
    if u in self.found: return self.found[u]
    # 1/20 is a number, and needs no kernel
    if u._shape == (): u = u.simplify()
    if u.op is Ops.CONST: return everywhere(ZERO if u.arg == 0 else NONE, u)
    if u.op in MOVEMENT: return MOVEMENT[u.op](u, self.of(u.src[0], exact))
    # what has no shape is a number that a RANGE counts
    if not exact or u._shape is None: return everywhere(NONE, u)
    if u not in self.constants: self.constants[u] = evaluate(u)
    return self.constants[u]

  def of_factor(self, u:UOp) -> SetIds: return self.of(u, exact=True)

  # *** elementwise

  def unite(self, *values:SetIds) -> SetIds:
    """The union, element by element. ZERO where all are."""
    ranges, arrays = align(values)
    ret = arrays[0]
    for ids in arrays[1:]: ret = along_strides(self.sets.join, ret, ids)
    return SetIds(ranges, ret)

  def sum(self, u:UOp) -> SetIds:
    values = [self.of(s) for s in u.src]
    # a constant is looked at where its zeros can meet zeros, as in a matrix that is put together from numbers and elements of x
    if any(s not in self.found for s in u.src) and all(has_zero(v.ids) for s,v in zip(u.src, values) if s in self.found):
      values = [self.of(s, exact=True) for s in u.src]
    return self.unite(*values)

  def product(self, u:UOp) -> SetIds:
    # of a division, a shift and a MULACC only the first factors make zero
    factors = u.src[:PRODUCT[u.op]]
    value = self.mask(self.unite(*[self.of_factor(s) for s in u.src[:2]]), [self.of_factor(s) for s in factors])
    return self.unite(value, self.of(u.src[2])) if u.op is Ops.MULACC else value

  def mask(self, value:SetIds, factors:list[SetIds]) -> SetIds:
    """`value`, ZERO where a factor is."""
    ranges, arrays = align([value, *factors])
    for factor in arrays[1:]:
      if has_zero(factor): arrays[0] = along_strides(lambda ids, f: np.where(f == ZERO, np.int32(ZERO), ids), arrays[0], factor)
    return SetIds(ranges, arrays[0])

  def select(self, u:UOp) -> SetIds:
    condition, *branches = u.src
    ranges, (chosen, yes, no) = align([self.of_factor(condition), *[self.of(b, exact=True) for b in branches]])
    # of a condition that depends on x only the zeros are known
    def pick(chosen, yes, no): return np.where(chosen == ZERO, no, yes if condition not in self.found else self.sets.join(yes, no))
    return SetIds(ranges, along_strides(pick, chosen, yes, no))

  # *** reduces

  def reduce(self, u:UOp, value:SetIds) -> SetIds:
    """REDUCE_AXIS over axes of the node, and the REDUCE over a RANGE of pad_reduce, which is one of the first axes."""
    if u.op is Ops.REDUCE_AXIS:
      return SetIds(value.ranges, self.reduce_axes(value.ids, tuple(a+len(value.ranges) for a in u.arg[1]), u.arg[0]))
    axes = tuple(value.ranges.index(r) for r in u.src[1:] if r in value.ranges)
    return SetIds(tuple(r for r in value.ranges if r not in u.src[1:]), self.reduce_axes(value.ids, axes, u.arg).squeeze(axes))

  def reduce_axes(self, ids, axes:tuple[int, ...], op:Ops):
    """The union along `axes`, which have size 1 after it. Where the ids repeat along other axes each is worked out once."""
    small, kept = smallest(ids), [a for a in range(ids.ndim) if a not in axes]
    rows = small.transpose(*kept, *axes).reshape(prod(small.shape, kept), prod(small.shape, axes))
    ret = self.sets.reduce(rows, op is Ops.MUL).reshape(with_ones(small.shape, axes))
    return np.broadcast_to(ret, with_ones(ids.shape, axes))

# *** arrays

def prod(shape:tuple[int, ...], axes) -> int: return math.prod(shape[a] for a in axes)
def with_ones(shape:tuple[int, ...], axes) -> list[int]: return [1 if a in axes else size for a,size in enumerate(shape)]

def everywhere(i:int, u:UOp) -> SetIds: return SetIds((), np.broadcast_to(np.int32(i), u._shape or ()))
def smallest(ids):
  """A part of the array that has all of its values: one element along each axis that it repeats along."""
  return ids[tuple(slice(0, 1) if size > 1 and stride == 0 else slice(None) for size,stride in zip(ids.shape, ids.strides))]
def has_zero(ids) -> bool: return bool((smallest(ids) == ZERO).any())

def align(values) -> tuple[tuple[UOp, ...], list]:
  """Returns all ranges of the values, and their arrays with an axis for each of them, broadcast to one shape."""
  ranges = tuple(sorted({r for v in values for r in v.ranges}, key=lambda r: r.arg[:-1], reverse=True))
  arrays = []
  for v in values:
    own = np.transpose(v.ids, [v.ranges.index(r) for r in ranges if r in v.ranges]+list(range(len(v.ranges), v.ids.ndim)))
    arrays.append(own[tuple(slice(None) if r in v.ranges else None for r in ranges)])
  shape = np.broadcast_shapes(*[a.shape for a in arrays])
  return ranges, [np.broadcast_to(a, shape) for a in arrays]

def along_strides(fn, *arrays):
  """fn(*arrays), element by element, worked out once where all arrays repeat along an axis."""
  shape = arrays[0].shape
  one = tuple(slice(0, 1) if size > 1 and all(a.strides[axis] == 0 for a in arrays) else slice(None) for axis,size in enumerate(shape))
  return np.broadcast_to(fn(*[a[one] for a in arrays]), shape)

def evaluate(u:UOp) -> SetIds:
  """ZERO where a node that does not depend on x is zero, NONE elsewhere. It is computed by tinygrad."""
  if realize.capturing:
    raise RuntimeError(f"jacobian_sparsity: {describe_place(u)} is computed while TinyJit captures, and the pattern would be that of this call alone;"
                       " call jacobian_sparsity before, and give the pattern to sparse_jacobian")
  # one axis for each open RANGE, as SetIds has them
  ranges = tuple(u.ranges)
  nonzero = u.ne(u.const_like(0)) if u.dtype != dtypes.bool else u
  values = Tensor(collect_batch(nonzero, list(ranges)) if ranges else nonzero, device=u.device).contiguous().numpy()
  return SetIds(ranges, np.broadcast_to(np.int32(NONE), values.shape) if values.all() else values.astype(np.int32)*NONE)

# *** movement: views of the ids where there is one

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
  """A SHRINK or PAD by bounds that may depend on RANGEs: then the result has an axis for each of those."""
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
  # a value that does not vary over a RANGE is the same at each step of it: it has no axis for it, None
  order = [axis_of[r] for r in batch]+[axis_of.get(r) if r in ended else next(inner) for r in u.src[1:]]
  ids = value.ids.transpose([a for a in order if a is not None])[tuple(None if a is None else slice(None) for a in order)]
  return SetIds(batch, np.broadcast_to(ids, count_steps(batch)+fixed(u, u.shape)))

MOVEMENT = {Ops.RESHAPE:reshape, Ops.EXPAND:expand, Ops.PERMUTE:permute, Ops.FLIP:flip, Ops.SHRINK:shrink, Ops.PAD:pad,
            Ops.VMAPIN:vmapin, Ops.VMAPOUT:vmapout}
# zero of zero, and each element depends on what its source does
UNCHANGED = {Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.COPY, Ops.CAST, Ops.NEG, Ops.SIN, Ops.SQRT, Ops.TRUNC}
# op -> how many of its first sources make the whole zero where they are zero
PRODUCT = {Ops.MUL:2, Ops.AND:2, Ops.MULACC:2, Ops.FDIV:1, Ops.IDIV:1, Ops.MOD:1, Ops.SHL:1, Ops.SHR:1}
# zero where all sources are zero
ZERO_OF_ZEROS = {Ops.ADD, Ops.SUB, Ops.MAX, Ops.OR, Ops.XOR, Ops.CMPLT, Ops.CMPNE}
