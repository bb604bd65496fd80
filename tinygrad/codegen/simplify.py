"""Makes a gather one load (patch whole-gathers), and keeps the store of a row kernel whole (patch fuse-broadcast).

If a comparison cuts a range, stock makes one store for each part of the range on the CPU, all with the same REDUCE ranges: those loops would begin
once and end several times, and codegen never finishes. Stock has that fault in plain sums too; this patch does not change them."""
from __future__ import annotations
from types import ModuleType
from typing import Iterator
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat
from tinygrad_overlay import _state
from tinygrad_overlay._patching import Changes

def cut_store_range(ctx, store:UOp, r:UOp):
  # a REDUCE that reads the result of another REDUCE of the same kernel
  reduces = [x for x in store.toposort() if x.op is Ops.REDUCE]
  if "fuse-broadcast" in _state.patches and any(u.op is Ops.REDUCE for x in reduces for u in x.src[0].toposort()): return None
  return stock_cut_store_range(ctx, store, r)

# *** gathers: tinygrad writes x[i], an embedding and a loss by labels as a REDUCE over r of `where(r == i, x[r], 0)`. Stock's load collapse turns it
# into a load if it has one REDUCE range and a plain `where`. Others become loads here: several index tensors (x[i, j]), bools, products with a one-hot

def collapse_gather(red:UOp, u:UOp) -> UOp|None:
  """Returns the REDUCE `red` of `u` without the ranges that are compared with an index; None if it has no such range."""
  if "whole-gathers" not in _state.patches or red.dtype != u.dtype: return None
  left = [r for r in red.src[1:] if r.op is Ops.RANGE]
  if len(left) < len(red.src)-1 or not any(x.op is Ops.CMPNE for x in u.toposort()): return None
  value, left = pick_elements(u, left)
  if len(left) == len(red.src)-1: return None
  return red.replace(src=(value, *left)) if left else value

def pick_elements(value:UOp, ranges:list[UOp]) -> tuple[UOp, list[UOp]]:
  """Picks an element along each range that allows it. Returns the new value, and the ranges over which it is still summed."""
  left = []
  for r in ranges:
    if (picked:=pick_element(value, r)) is None: left.append(r)
    else: value = picked
  return value, left

def pick_element(value:UOp, r:UOp) -> UOp|None:
  """Returns the sum of `value` over `r` if all elements but one are known to be zero; None otherwise."""
  depending = value.toposort(gate=lambda x: r in x.ranges)
  if any(x.op in {Ops.STORE, Ops.REDUCE} for x in depending): return None
  for unequal in find_zeroing(value):
    if (at:=find_index(unequal, r)) is None: continue
    inside = (at >= 0) & (at < r.src[0])
    equal = {unequal: unequal.const_like(False)}
    # no load if the index is out of bounds
    loads = {x:x.substitute({**equal, r:at.valid(inside)}) for x in depending if x.op is Ops.INDEX}
    return inside.where(value.substitute({**equal, **loads, r:at}), value.const_like(0))
  return None

def find_zeroing(value:UOp) -> Iterator[UOp]:
  """Yields the CMPNEs in `value`: if one of them is true, `value` is zero."""
  match value.op:
    case Ops.MUL | Ops.AND:
      for s in value.src: yield from find_zeroing(s)
    case Ops.CAST: yield from find_zeroing(value.src[0])
    case Ops.WHERE if is_zero(value.src[2]):
      for s in value.src[:2]: yield from find_zeroing(s)
    case Ops.WHERE if is_zero(value.src[1]):
      if value.src[0].op is Ops.CMPNE: yield value.src[0]
      yield from find_zeroing(value.src[2])
    # not unequal: equal
    case Ops.CMPNE if value.src[0].op is Ops.CMPNE and value.src[1].op is Ops.CONST and value.src[1].arg is True: yield value.src[0]

def is_zero(x:UOp) -> bool: return x.op is Ops.CONST and x.arg == 0

def find_index(unequal:UOp, r:UOp) -> UOp|None:
  """Returns the one value of `r` at which the two sides are equal, as an index."""
  for counter,other in (unequal.src, unequal.src[::-1]):
    if r not in counter.ranges or r in other.ranges or not dtypes.is_int(other.dtype): continue
    counting = [(t, sign) for t,sign in split_sum(counter) if r in t.ranges]
    if [t for t,_ in counting] != [r]: continue
    rest = [as_index(t)*sign for t,sign in split_sum(counter) if t is not r]
    return ((as_index(other)-sum(rest, start=UOp.const(dtypes.index, 0)))*counting[0][1]).simplify()
  return None

def as_index(x:UOp) -> UOp:
  """Casts an integer to an index. A bool cast in it becomes where(1, 0): folding would make a cast of a bool to index, which kernels may not have."""
  bools = [u for u in x.toposort() if u.op is Ops.CAST and u.src[0].dtype == dtypes.bool]
  return x.substitute({u:u.src[0].where(u.const_like(1), u.const_like(0)) for u in bools}).cast(dtypes.index)

def split_sum(x:UOp, sign:int=1) -> Iterator[tuple[UOp, int]]:
  """Yields the terms of an integer sum, each with its sign 1 or -1. A cast or a sum that may overflow is one term."""
  if x.op is Ops.CAST and fits(x.src[0], x.dtype): yield from split_sum(x.src[0], sign)
  elif x.op is Ops.MUL and fits(x, x.dtype) and x.src[1].op is Ops.CONST and x.src[1].arg == -1: yield from split_sum(x.src[0], -sign)
  elif x.op is Ops.ADD and fits(x, x.dtype):
    for s in x.src: yield from split_sum(s, sign)
  else: yield x, sign

def fits(x:UOp, dtype) -> bool:
  """Whether every value of the integer `x` fits in `dtype`."""
  if not dtypes.is_int(x.dtype) or not dtypes.is_int(dtype): return False
  return dtype == dtypes.index or (dtype.min <= x.vmin and x.vmax <= dtype.max)

def patch(module:ModuleType) -> None:
  global stock_cut_store_range
  with Changes("fuse-broadcast") as changes:
    stock_cut_store_range = changes.expect(module, "cut_store_range", "ctx", "store", "r")
    changes.replace_rule(module, "pm_split_store", stock_cut_store_range, cut_store_range)
    changes.by = "whole-gathers"
    rule = (UPat(Ops.REDUCE, arg=Ops.ADD, src=(UPat.var("u"),), allow_any_len=True, name="red"), collapse_gather)
    changes.add_rules(module, "pm_load_collapse", PatternMatcher([rule]))
