"""Pushes derivatives forward through a graph, op by op."""
from __future__ import annotations
import dataclasses, functools, math, operator
from typing import Any, Callable
from tinygrad.tensor import Tensor
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import GroupOp, Ops, UOp, all_metadata
from tinygrad_overlay._func.tree import flatten, map_leaves
from tinygrad_overlay.schedule._scopes import describe_place

def push_forward(outputs:Any, seeds:dict[UOp, UOp]) -> Any:
  """Returns the tangents of the Tensors in `outputs`, given the tangents of some nodes (`seeds`)."""
  tangents: dict[UOp, UOp] = dict(seeds)
  sink = UOp.sink(*[y.uop for y in flatten(outputs)])
  for u in sink.toposort():
    if u is sink or u in seeds or not any(s in tangents for s in u.src): continue
    # the derivative of an integer or bool is zero. A node without value, such as a custom kernel, may write a float
    if dtypes.is_int(u.dtype.scalar()) or dtypes.is_bool(u.dtype.scalar()): continue
    if (tangent:=push(u, [tangents.get(s) for s in u.src])) is None: continue
    note_forward(u, tangent)
    tangents[u] = tangent
  return map_leaves(lambda y: Tensor(tangents[y.uop] if y.uop in tangents else y.uop.const_like(0), device=y.device), outputs)

def push(u:UOp, ts:list[UOp|None]) -> UOp|None:
  """Returns the tangent of a node, given the tangents of its sources; None is zero."""
  if u.op is Ops.WHERE: return u.src[0].where(*[u.const_like(0) if t is None else t for t in ts[1:]])
  if (parts:=PARTS.get(u.op)) is None: raise NotImplementedError(f"jvp: {describe_place(u)} has no derivative rule")
  terms = [part(u, t) for part,t in zip(parts, ts) if t is not None]
  return functools.reduce(operator.add, terms) if terms else None

def note_forward(u:UOp, tangent:UOp) -> None:
  """Gives the tangent the metadata of its op, so that it has the user's line."""
  if not (notes:=all_metadata.get(u, ())): return
  known = {*u.src, u}
  for x in tangent.toposort(lambda x: x not in known and x not in all_metadata):
    if x not in known and x.op not in {Ops.CONST, Ops.DEVICE}: all_metadata.setdefault(x, tuple(dataclasses.replace(n) for n in notes))

# *** the rules: (node, the tangent of one source) -> its part of the node's tangent

def same(u:UOp, t:UOp) -> UOp: return t

# an op that is linear in its first source
def through(u:UOp, t:UOp) -> UOp: return u.replace(src=(t,)+u.src[1:], tag=None)

def share_of_largest(t:UOp, x:UOp, y:UOp) -> UOp:
  # if both are equal each contributes one half, as in the gradient
  return (y<x).where(t, x.eq(y).where(t*0.5, t.const_like(0)))

def by_base(u:UOp, t:UOp) -> UOp:
  base, exponent = u.src
  return t*(base.eq(0)&exponent.eq(0)).where(exponent, exponent*base.pow(exponent-1))

def by_exponent(u:UOp, t:UOp) -> UOp:
  base, exponent = u.src
  at_zero = (exponent<0).where(u.const_like(-math.inf), u.const_like(0))
  return t*base.eq(0).where(at_zero, u*base.log2()*math.log(2))

def reduce(u:UOp, t:UOp) -> UOp:
  """REDUCE_AXIS, and the REDUCE over a RANGE of pad_reduce."""
  x = u.src[0]
  op = u.arg[0] if u.op is Ops.REDUCE_AXIS else u.arg
  def total(v:UOp) -> UOp:
    arg = (Ops.ADD,)+u.arg[1:] if u.op is Ops.REDUCE_AXIS else Ops.ADD
    return u.replace(dtype=v.dtype, src=(v,)+u.src[1:], arg=arg, tag=None)
  def spread(v:UOp) -> UOp: return v.expand(x.shape) if v.shape != x.shape else v
  if op is Ops.ADD: return total(t)
  if op is Ops.MAX:
    # if several elements are the largest they share the derivative, as in the gradient
    largest = x.eq(spread(u)).cast(t.dtype)
    return total(largest*t)/total(largest)
  # one zero factor leaves the product of the others; two or more leave zero
  assert op is Ops.MUL, f"a reduce by {op}"
  zero = x.eq(0)
  zeros = total(zero.cast(t.dtype))
  others = u.replace(src=(zero.where(x.const_like(1), x),)+u.src[1:], tag=None)
  without_zero = u*total(t/zero.where(x.const_like(1), x))
  with_one = others*total(zero.where(t, t.const_like(0)))
  return zeros.eq(0).where(without_zero, zeros.eq(1).where(with_one, u.const_like(0)))

MULTIPLIED = (lambda u,t: t*u.src[1], lambda u,t: t*u.src[0])

PARTS: dict[Ops, tuple[Callable[[UOp, UOp], UOp], ...]] = {
  Ops.ADD: (same, same), Ops.SUB: (same, lambda u,t: -t), Ops.MUL: MULTIPLIED, Ops.MULACC: (*MULTIPLIED, same),
  Ops.FDIV: (lambda u,t: t/u.src[1], lambda u,t: -t*u/u.src[1]), Ops.POW: (by_base, by_exponent),
  Ops.MAX: (lambda u,t: share_of_largest(t, *u.src), lambda u,t: share_of_largest(t, *u.src[::-1])),
  Ops.NEG: (lambda u,t: -t,), Ops.RECIPROCAL: (lambda u,t: t*(-u*u),), Ops.SQRT: (lambda u,t: t/(u*2),), Ops.EXP2: (lambda u,t: t*(u*math.log(2)),),
  Ops.SIN: (lambda u,t: t*(math.pi/2-u.src[0]).sin(),), Ops.LOG2: (lambda u,t: t/(u.src[0]*math.log(2)),),
  # a copy without its opts, which are for the value's kernel
  Ops.CAST: (lambda u,t: t.cast(u.dtype),), Ops.CONTIGUOUS: (lambda u,t: t.contiguous(),), Ops.CONTIGUOUS_BACKWARD: (same,),
  Ops.REDUCE_AXIS: (reduce,), Ops.REDUCE: (reduce,), Ops.VMAPIN: (lambda u,t: t.vmapin(u.src[1:]),), Ops.VMAPOUT: (lambda u,t: t.vmapout(u.src[1:]),),
  # a step function, the bits of a number, and values that the user made constant
  Ops.TRUNC: (), Ops.BITCAST: (), Ops.DETACH: (),
  **{op:(through,) for op in GroupOp.Movement | {Ops.COPY, Ops.MULTI}},
}
