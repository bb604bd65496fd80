"""Finds the pattern of a Jacobian by pushing index sets through the tensor graph.

The value of a node is an array with a set id for each element. The set (`index_sets.py`) holds the elements of x on which it depends. Movement ops
move the ids, as numpy views if possible; elementwise ops unite sets, each distinct pair once; a reduce unites sets along its axes. Inside a vmap
scope the first axes are the RANGEs over which a value varies, so VMAPIN and VMAPOUT only name and place axes. For a large product with a one-hot, as
in a gather or a scatter, only the nonzero elements are stored (FewIds).

ZERO marks elements that are zero for every x: PAD adds them, constants contain them, and a product with ZERO depends on nothing."""
from __future__ import annotations
import math
from dataclasses import replace
from typing import Any
from tinygrad.dtype import dtypes
from tinygrad.engine import realize
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import GroupOp, Ops, UOp
from tinygrad_overlay._func.index_sets import NONE, ZERO, IndexSets, np
from tinygrad_overlay._func.set_ids import (MOVEMENT, FewIds, SetIds, align, along_strides, batch_shape, everywhere, find_equal, fixed, has_zero, move_few,
                                            multiply, prod, reduce_few, smallest, with_ones)
from tinygrad_overlay.schedule._scopes import collect_batch, describe_place

# FewIds are used for values with at least MANY elements, of which at most one in PART is nonzero
MANY, PART = 1<<12, 8

class Propagation:
  def __init__(self, x:UOp, out:UOp):
    self.x, self.sets = x, IndexSets(x.size)
    self.toposort = list(out.toposort())
    self.constants: dict[UOp, SetIds] = {}
    each = self.sets.add_sets(np.arange(x.size), np.ones(x.size, np.int64))
    self.found: dict[UOp, SetIds|FewIds] = {x: SetIds((), each.reshape(x.shape))}
    self.known_few: dict[UOp, FewIds|None] = {}  # of constants
    self.numbers: dict[UOp, Any] = {}  # of constants

  def find_rows(self, out:UOp) -> tuple[Any, Any]:
    """Returns (rows, cols), sorted: for each element of `out`, by offset, the elements of `x` on which it can depend."""
    # the nodes that depend on x, with or without a derivative
    moving = {self.x}
    for u in self.toposort:
      if any(s in moving for s in u.src): moving.add(u)
    if out not in moving: return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # each array is dropped after its last reader
    last = {s:u for u in self.toposort for s in u.src}
    for u in self.toposort:
      if u in moving and u not in self.found: self.found[u] = self.without_derivative(u, self.push(u))
      for s in set(u.src):
        if last[s] is u and s is not out: self.found.pop(s, None)
    value = self.of(out)
    ids = value.ids
    # the union over the steps of the scopes around x and the result: a constant can differ from step to step
    if value.ranges: ids = self.sets.reduce(ids.reshape(math.prod(batch_shape(value)), -1).T, False)
    return self.sets.gather_rows(ids.reshape(-1))

  def without_derivative(self, u:UOp, value:SetIds|FewIds) -> SetIds|FewIds:
    # integers, bools and TRUNC are step functions
    if dtypes.is_float(u.dtype.scalar()) and u.op not in {Ops.DETACH, Ops.TRUNC}: return value
    if isinstance(value, FewIds): return replace(value, ids=np.minimum(value.ids, NONE))
    return SetIds(value.ranges, along_strides(lambda ids: np.minimum(ids, NONE), value.ids))

  def push(self, u:UOp) -> SetIds|FewIds:
    """Returns the sets of a node with a source that depends on x."""
    if (few:=self.push_few(u)) is not None: return few
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

  def of(self, u:UOp, exact:bool=False) -> SetIds:
    """Returns the sets of a source. `exact`: with all zeros of a constant; otherwise only zeros that need no kernel."""
    if (found:=self.found.get(u)) is not None: return SetIds((), found.dense()) if isinstance(found, FewIds) else found
    # a number such as 1/20 needs no kernel
    if u._shape == (): u = u.simplify()
    if u.op is Ops.CONST: return everywhere(ZERO if u.arg == 0 else NONE, u)
    if u.op in MOVEMENT: return MOVEMENT[u.op](u, self.of(u.src[0], exact))
    # a node without shape is a number that depends on a RANGE
    if not exact or u._shape is None: return everywhere(NONE, u)
    if u not in self.constants: self.constants[u] = evaluate(u)
    return self.constants[u]

  # *** arrays that are nearly all zero

  def push_few(self, u:UOp) -> FewIds|SetIds|None:
    """Returns the sets of a node that is nearly all zero, or a sum of such a node; None for other nodes."""
    first = u.src[0]
    if isinstance(few:=self.found.get(first), FewIds):
      if u.op in UNCHANGED: return few
      if is_movement(u): return move_few(few, u.op, u.marg, fixed(u, u.shape))
      if u.op is Ops.REDUCE_AXIS and u.arg[0] is not Ops.MUL: return self.fill(reduce_few(self.sets, few, u.arg[1]))
    return self.product_few(u)

  def product_few(self, u:UOp) -> FewIds|None:
    is_product = u.op in {Ops.MUL, Ops.AND} or (u.op is Ops.WHERE and u.src[0] not in self.found and is_zero(u.src[2]))
    if not is_product: return None
    a, b = u.src[:2]
    few_a, few_b = self.few(a), self.few(b)
    if few_a is None and few_b is None: return None
    if few_a is not None and few_b is not None: return multiply(self.sets, few_a, few_b)
    few, other = (few_a, b) if few_a is not None else (few_b, a)
    value = self.of(other, exact=True)
    return None if value.ranges or few is None else multiply(self.sets, few, value.ids)

  def few(self, u:UOp) -> FewIds|None:
    """Returns the FewIds of a node or constant; None if it has none."""
    if u in self.found: return found if isinstance(found:=self.found[u], FewIds) else None
    if u not in self.known_few: self.known_few[u] = self.find_few(u)
    return self.known_few[u]

  def find_few(self, u:UOp) -> FewIds|None:
    """Returns the FewIds of a constant that compares an index with an arange, or is computed from such a comparison."""
    if not is_fixed(u) or (size:=math.prod(fixed(u, u.shape))) < MANY or u.ranges: return None
    if (sides:=find_compared(u)) is not None: return find_equal(self.numbers_of(sides[0]), self.numbers_of(sides[1]), size//PART)
    if is_movement(u) and (few:=self.few(u.src[0])) is not None: return move_few(few, u.op, u.marg, fixed(u, u.shape))
    if u.op in {Ops.CAST, Ops.CONTIGUOUS} and not dtypes.is_float(u.src[0].dtype): return self.few(u.src[0])
    return self.product_few(u)

  def numbers_of(self, u:UOp) -> Any:
    """Returns the integers of a constant. tinygrad computes them before movement ops are applied."""
    if is_movement(u): return MOVEMENT[u.op](u, SetIds((), self.numbers_of(u.src[0]))).ids
    if u not in self.numbers:
      check_not_captured(u)
      self.numbers[u] = Tensor(u, device=u.device).contiguous().numpy()
    return self.numbers[u]

  def fill(self, few:FewIds) -> FewIds|SetIds:
    """Returns a dense array if it has few elements."""
    size = math.prod(size for size,p in zip(few.shape, few.at) if p is not None)
    return SetIds((), few.dense()) if size < max(MANY, PART*len(few.ids)) else few

  def unite(self, *values:SetIds) -> SetIds:
    """Returns the elementwise union; ZERO only if all are ZERO."""
    ranges, arrays = align(values)
    ret = arrays[0]
    for ids in arrays[1:]: ret = along_strides(self.sets.join, ret, ids)
    return SetIds(ranges, ret)

  def sum(self, u:UOp) -> SetIds:
    values = [self.of(s) for s in u.src]
    # exact zeros of a constant matter only if the other sources have zeros, as in a matrix built from numbers and elements of x
    if any(s not in self.found for s in u.src) and all(has_zero(v.ids) for s,v in zip(u.src, values) if s in self.found):
      values = [self.of(s, exact=True) for s in u.src]
    return self.unite(*values)

  def product(self, u:UOp) -> SetIds:
    # a division, a shift and a MULACC are zero only if their first sources are
    factors = u.src[:PRODUCT[u.op]]
    value = self.mask(self.unite(*[self.of(s, exact=True) for s in u.src[:2]]), [self.of(s, exact=True) for s in factors])
    return self.unite(value, self.of(u.src[2])) if u.op is Ops.MULACC else value

  def mask(self, value:SetIds, factors:list[SetIds]) -> SetIds:
    """Returns `value`, but ZERO if a factor is ZERO."""
    ranges, arrays = align([value, *factors])
    for factor in arrays[1:]:
      if has_zero(factor): arrays[0] = along_strides(lambda ids, f: np.where(f == ZERO, np.int32(ZERO), ids), arrays[0], factor)
    return SetIds(ranges, arrays[0])

  def select(self, u:UOp) -> SetIds:
    condition = u.src[0]
    ranges, (chosen, yes, no) = align([self.of(s, exact=True) for s in u.src])
    # for a condition that depends on x only zeros are known
    def pick(chosen, yes, no): return np.where(chosen == ZERO, no, yes if condition not in self.found else self.sets.join(yes, no))
    return SetIds(ranges, along_strides(pick, chosen, yes, no))

  def reduce(self, u:UOp, value:SetIds) -> SetIds:
    """Returns the sets of a REDUCE_AXIS, or of pad_reduce's REDUCE over a RANGE, which is one of the first axes."""
    if u.op is Ops.REDUCE_AXIS:
      return SetIds(value.ranges, self.reduce_axes(value.ids, tuple(a+len(value.ranges) for a in u.arg[1]), u.arg[0]))
    axes = tuple(value.ranges.index(r) for r in u.src[1:] if r in value.ranges)
    return SetIds(tuple(r for r in value.ranges if r not in u.src[1:]), self.reduce_axes(value.ids, axes, u.arg).squeeze(axes))

  def reduce_axes(self, ids, axes:tuple[int, ...], op:Ops):
    """Returns the union along `axes`, which get size 1. If ids repeat along other axes it is computed once."""
    small, kept = smallest(ids), [a for a in range(ids.ndim) if a not in axes]
    rows = small.transpose(*kept, *axes).reshape(prod(small.shape, kept), prod(small.shape, axes))
    ret = self.sets.reduce(rows, op is Ops.MUL).reshape(with_ones(small.shape, axes))
    return np.broadcast_to(ret, with_ones(ids.shape, axes))

def is_movement(u:UOp) -> bool: return u.op in GroupOp.Movement and is_fixed(u) and is_fixed(u.src[0]) and not any(s.ranges for s in u.src[1:])
def is_fixed(u:UOp) -> bool: return u._shape is not None and all(isinstance(s, int) for s in u.shape)
def is_zero(u:UOp) -> bool: return u.base.op is Ops.CONST and u.base.arg == 0

def find_compared(u:UOp) -> tuple[UOp, ...]|None:
  """Returns the sides of `a == b`, which tinygrad writes as `(a != b) != True`."""
  if u.op is not Ops.CMPNE: return None
  unequal, true = u.src
  while true.op in {Ops.CAST, Ops.RESHAPE, Ops.EXPAND}: true = true.src[0]
  if true.op is not Ops.CONST or true.arg is not True: return None
  # a bool is cast to int and back before it is negated
  while unequal.op is Ops.CAST: unequal = unequal.src[0]
  return unequal.src if unequal.op is Ops.CMPNE and dtypes.is_int(unequal.src[0].dtype) else None

def check_not_captured(u:UOp) -> None:
  if realize.capturing:
    raise RuntimeError(f"jacobian_sparsity: {describe_place(u)} is computed while TinyJit captures, and the pattern would be that of this call alone;"
                       " call jacobian_sparsity before, and give the pattern to sparse_jacobian")

def evaluate(u:UOp) -> SetIds:
  """Computes a node that does not depend on x with tinygrad. Returns ZERO for its zeros, NONE for other elements."""
  check_not_captured(u)
  # one axis for each open RANGE, as in SetIds
  ranges = tuple(u.ranges)
  nonzero = u.ne(u.const_like(0)) if u.dtype != dtypes.bool else u
  values = Tensor(collect_batch(nonzero, list(ranges)) if ranges else nonzero, device=u.device).contiguous().numpy()
  return SetIds(ranges, np.broadcast_to(np.int32(NONE), values.shape) if values.all() else values.astype(np.int32)*NONE)

# f(0) = 0, and each element depends on the same elements of x as its source
UNCHANGED = {Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.COPY, Ops.CAST, Ops.NEG, Ops.SIN, Ops.SQRT, Ops.TRUNC}
# op -> number of first sources; the op is zero if one of these is zero
PRODUCT = {Ops.MUL:2, Ops.AND:2, Ops.MULACC:2, Ops.FDIV:1, Ops.IDIV:1, Ops.MOD:1, Ops.SHL:1, Ops.SHR:1}
# zero if all sources are zero
ZERO_OF_ZEROS = {Ops.ADD, Ops.SUB, Ops.MAX, Ops.OR, Ops.XOR, Ops.CMPLT, Ops.CMPNE}
