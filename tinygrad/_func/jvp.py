"""`jvp`: the derivative of a function along a direction, pushed forward through the graph op by op."""
from __future__ import annotations
import dataclasses, functools, math, operator
from typing import Any, Callable
from tinygrad.tensor import Tensor
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import GroupOp, Ops, UOp, all_metadata
from tinygrad_overlay._func.marked import call_differentiated, unmark
from tinygrad_overlay._func.tree import describe_node, first_difference, leaves, map_leaves, replace_leaves
from tinygrad_overlay._func.values import as_tensor, as_tensors, check_results
from tinygrad_overlay.schedule._scopes import describe_place

# the tangents of a node's sources; None is zero
Tangents = list[UOp|None]
Rule = Callable[[UOp, Tangents], UOp|None]

def jvp(fn:Callable, primals:Any, tangents:Any, has_aux:bool=False) -> tuple:
  """Returns (fn(*primals), its derivative along the tangents).

  `primals` is a tuple or a list of the arguments, which are float Tensors (or numbers and numpy arrays) in tuples, lists and dicts; `tangents` has
  the same structure, shapes and dtypes. With `has_aux` the function returns (result, aux), and (result, derivative, aux) is returned.
  The derivative has the structure and the shapes of the result, and is zero if the result does not depend on the primals. Tensors that `fn` closes
  over are constant. Result and derivative are lazy, and can be differentiated and mapped again.
  Raises TypeError for a value that is no float Tensor, ValueError for tangents that do not fit, NotImplementedError for an op without derivative
  rule.
  """
  if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
    raise TypeError(f"jvp: primals and tangents are a tuple or a list of the arguments of the function, not {describe_node(primals)} and {describe_node(tangents)}")
  check_function("jvp", fn)
  primals = as_tensors(primals)
  tangents = take_tangents("jvp", "primals", primals, "tangents", tangents)
  marked, out, aux = call_differentiated("jvp", fn, primals, has_aux=has_aux)
  pushed = push_along(out, marked, tangents)
  return unmark((out, pushed, aux) if has_aux else (out, pushed), marked)

def linearize(fn:Callable, *primals:Any, has_aux:bool=False) -> tuple:
  """Returns (fn(*primals), a function that computes the derivative along tangents), and aux if `has_aux`.

  The function takes a tangent for each primal. `fn` is called only once, for any number of directions.
  """
  check_function("linearize", fn)
  primals = as_tensors(primals)
  check_inputs("linearize", "primals", primals)
  marked, out, aux = call_differentiated("linearize", fn, primals, has_aux=has_aux)
  def along(*tangents:Any) -> Any:
    tangents = take_tangents("linearize", "primals", primals, "tangents", tangents)
    return unmark(push_along(out, marked, tangents), marked)
  value, aux = unmark((out, aux), marked)
  return (value, along, aux) if has_aux else (value, along)

def push_along(out:Any, inputs:Any, tangents:Any) -> Any:
  return push_forward(out, {x.uop:t.uop for (_,x),(_,t) in zip(leaves(inputs), leaves(tangents))})

def jvp_of(outputs:Any, inputs:Any, tangents:Any) -> Any:
  """Returns the derivative of existing Tensors: of `outputs` along `tangents` of `inputs`, each a Tensor or a tuple, list or dict of Tensors.

  The result has the structure and the shapes of `outputs`. The derivative stops at the inputs: an input that depends on another input has only its
  own tangent. Raises ValueError for an input that is in no output's graph (it is a copy, or was realized after the outputs were computed).
  """
  tangents = take_tangents("jvp_of", "inputs", inputs, "tangents", tangents)
  check_results("jvp_of", outputs)
  seeds: dict[UOp, UOp] = {}
  of_path: dict[UOp, str] = {}
  graph = UOp.sink(*[y.uop for _,y in leaves(outputs)]).toposort()
  for (path,x),(_,t) in zip(leaves(inputs, "inputs"), leaves(tangents)):
    if x.uop in seeds: raise ValueError(f"jvp_of: {of_path[x.uop]} and {path} of shape {x.shape} are the same value, and can have only one tangent")
    if x.uop not in graph:
      raise ValueError(f"jvp_of: {path} of shape {x.shape} is not in the graph of the outputs: they do not depend on it, or one of them was realized")
    seeds[x.uop], of_path[x.uop] = t.uop, path
  return push_forward(outputs, seeds)

def check_inputs(name:str, path:str, tree:Any) -> None:
  for where,x in leaves(tree, path):
    if not isinstance(x, Tensor): raise TypeError(f"{name}: {where} is {x!r} of type {type(x).__name__}, not a Tensor")
    if not x.is_floating_point(): raise TypeError(f"{name}: {where} of shape {x.shape} is {x.dtype.name}, and only floats have a derivative")

def take_tangents(fn:str, of:str, primals:Any, name:str, tangents:Any) -> Any:
  """Returns the tangents as Tensors; a Python number gets the dtype of its primal. Raises like `jvp` if they do not fit."""
  if (found:=first_difference(primals, tangents)) is not None:
    path, x, t = found
    raise ValueError(f"{fn}: {name} must have the structure of {of}, but {name}{path} is {describe_node(t)}, and {of}{path} is {describe_node(x)}")
  likes = [x for _,x in leaves(primals)]
  taken = [Tensor(t, dtype=x.dtype) if isinstance(x, Tensor) and type(t) in {int, float} else as_tensor(t) for x,(_,t) in zip(likes, leaves(tangents))]
  tangents = replace_leaves(tangents, iter(taken))
  for (path,x),(below,t) in zip(leaves(primals, of), leaves(tangents, name)):
    check_inputs(fn, path, x)
    if not isinstance(t, Tensor): raise TypeError(f"{fn}: {below} is {t!r} of type {type(t).__name__}, not a Tensor")
    if x.shape != t.shape or x.dtype != t.dtype:
      raise ValueError(f"{fn}: {below} of shape {t.shape} and {t.dtype.name} is no tangent of {path}, which has shape {x.shape} and {x.dtype.name}")
  return tangents

def check_function(name:str, fn:Any) -> None:
  if not callable(fn): raise TypeError(f"{name}: the function is of type {type(fn).__name__}, which cannot be called")

def push_forward(outputs:Any, seeds:dict[UOp, UOp]) -> Any:
  """Returns the tangents of the Tensors in `outputs`, given the tangents of some nodes (`seeds`)."""
  found = [y for _,y in leaves(outputs)]
  tangents: dict[UOp, UOp] = dict(seeds)
  sink = UOp.sink(*[y.uop for y in found])
  for u in sink.toposort():
    if u is sink or u in seeds or not any(s in tangents for s in u.src) or only_jumps(u): continue
    if (rule:=RULES.get(u.op)) is None:
      raise NotImplementedError(f"jvp: {describe_place(u)} has no derivative rule")
    if (tangent:=rule(u, [tangents.get(s) for s in u.src])) is None: continue
    note_forward(u, tangent)
    tangents[u] = tangent
  return map_leaves(lambda y: Tensor(tangents[y.uop] if y.uop in tangents else y.uop.const_like(0), device=y.device), outputs)

def only_jumps(u:UOp) -> bool:
  """Whether a node is an integer or bool, whose derivative is zero. A node without value, such as a custom kernel, may write a float."""
  return dtypes.is_int(u.dtype.scalar()) or dtypes.is_bool(u.dtype.scalar())

def note_forward(u:UOp, tangent:UOp) -> None:
  """Gives the tangent the metadata of its op, so that it has the user's line."""
  if not (notes:=all_metadata.get(u, ())): return
  known = {*u.src, u}
  for x in tangent.toposort(lambda x: x not in known and x not in all_metadata):
    if x not in known and x.op not in {Ops.CONST, Ops.DEVICE}: all_metadata.setdefault(x, tuple(dataclasses.replace(n) for n in notes))

# *** the rules: (node, the tangents of its sources) -> its tangent

def add(*terms:UOp|None) -> UOp|None:
  moving = [t for t in terms if t is not None]
  return functools.reduce(operator.add, moving) if moving else None

def scaled(t:UOp|None, by:Callable[[], UOp]) -> UOp|None: return None if t is None else t*by()

def through(u:UOp, ts:Tangents) -> UOp|None:
  """An op that is linear in its first source."""
  return None if ts[0] is None else u.replace(src=(ts[0],)+u.src[1:], tag=None)

def none(u:UOp, ts:Tangents) -> None: return None

def multiply(u:UOp, ts:Tangents) -> UOp|None: return add(scaled(ts[0], lambda: u.src[1]), scaled(ts[1], lambda: u.src[0]))
def subtract(u:UOp, ts:Tangents) -> UOp|None: return add(ts[0], None if ts[1] is None else -ts[1])
def divide(u:UOp, ts:Tangents) -> UOp|None:
  return add(None if ts[0] is None else ts[0]/u.src[1], None if ts[1] is None else -ts[1]*u/u.src[1])
def multiply_add(u:UOp, ts:Tangents) -> UOp|None: return add(multiply(u, ts), ts[2])

def maximum(u:UOp, ts:Tangents) -> UOp|None:
  # if both are equal each contributes one half, as in the gradient
  a, b = u.src
  def share(t:UOp|None, x:UOp, y:UOp) -> UOp|None: return None if t is None else (y<x).where(t, x.eq(y).where(t*0.5, t.const_like(0)))
  return add(share(ts[0], a, b), share(ts[1], b, a))

def power(u:UOp, ts:Tangents) -> UOp|None:
  base, exponent = u.src
  def by_base() -> UOp: return (base.eq(0)&exponent.eq(0)).where(exponent, exponent*base.pow(exponent-1))
  def by_exponent() -> UOp:
    at_zero = (exponent<0).where(u.const_like(-math.inf), u.const_like(0))
    return base.eq(0).where(at_zero, u*base.log2()*math.log(2))
  return add(scaled(ts[0], by_base), scaled(ts[1], by_exponent))

def select(u:UOp, ts:Tangents) -> UOp|None:
  if ts[1] is None and ts[2] is None: return None
  yes, no = (u.const_like(0) if t is None else t for t in ts[1:])
  return u.src[0].where(yes, no)

def cast(u:UOp, ts:Tangents) -> UOp|None: return None if ts[0] is None else ts[0].cast(u.dtype)

def copy_contiguous(u:UOp, ts:Tangents) -> UOp|None:
  # without its opts, which are for the value's kernel
  return None if ts[0] is None else ts[0].contiguous()

def reduce(u:UOp, ts:Tangents) -> UOp|None:
  """REDUCE_AXIS, and the REDUCE over a RANGE of pad_reduce."""
  x, t = u.src[0], ts[0]
  if t is None: return None
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

def enter_scope(u:UOp, ts:Tangents) -> UOp|None: return None if ts[0] is None else ts[0].vmapin(u.src[1:])
def leave_scope(u:UOp, ts:Tangents) -> UOp|None: return None if ts[0] is None else ts[0].vmapout(u.src[1:])

RULES: dict[Ops, Rule] = {
  Ops.ADD: lambda u,ts: add(*ts), Ops.SUB: subtract, Ops.MUL: multiply, Ops.FDIV: divide, Ops.MULACC: multiply_add, Ops.MAX: maximum, Ops.POW: power,
  Ops.NEG: lambda u,ts: None if ts[0] is None else -ts[0],
  Ops.RECIPROCAL: lambda u,ts: scaled(ts[0], lambda: -u*u),
  Ops.SQRT: lambda u,ts: None if ts[0] is None else ts[0]/(u*2),
  Ops.SIN: lambda u,ts: scaled(ts[0], lambda: (math.pi/2-u.src[0]).sin()),
  Ops.EXP2: lambda u,ts: scaled(ts[0], lambda: u*math.log(2)),
  Ops.LOG2: lambda u,ts: None if ts[0] is None else ts[0]/(u.src[0]*math.log(2)),
  Ops.WHERE: select, Ops.CAST: cast, Ops.CONTIGUOUS: copy_contiguous, Ops.CONTIGUOUS_BACKWARD: lambda u,ts: ts[0],
  Ops.REDUCE_AXIS: reduce, Ops.REDUCE: reduce, Ops.VMAPIN: enter_scope, Ops.VMAPOUT: leave_scope,
  # a step function, the bits of a number, and values that the user made constant
  Ops.TRUNC: none, Ops.BITCAST: none, Ops.DETACH: none,
  **{op:through for op in GroupOp.Movement | {Ops.COPY, Ops.MULTI}},
}
