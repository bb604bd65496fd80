"""Derivatives in reverse: `grad`, `value_and_grad`, `vjp`."""
from __future__ import annotations
import functools
from typing import Any, Callable
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay._func.jvp import check_function, check_inputs, take_tangents
from tinygrad_overlay._func.marked import call_differentiated, unmark
from tinygrad_overlay._func.tree import leaves, replace_leaves
from tinygrad_overlay._func.values import as_tensors
from tinygrad_overlay.schedule._scopes import describe_place

Argnums = int|tuple[int, ...]|list[int]

def grad(fn:Callable, argnums:Argnums=0, has_aux:bool=False) -> Callable:
  """Returns a function that computes the gradient of `fn`, whose result is one float: (n,) for an argument of shape (n,).

  `argnums` says which arguments are differentiated: an int gives the gradient, a tuple or list of them a tuple of gradients, each with the structure
  of its argument. With `has_aux` the function returns (result, aux), and (gradient, aux) is returned. What the result does not depend on has a
  gradient of zeros. Raises TypeError for what is no float, ValueError for a result of more than one element and argnums that do not fit.
  """
  of_both = differentiated("grad", fn, argnums, has_aux)
  @functools.wraps(fn)
  def wrapped(*args:Any, **kwargs:Any) -> Any:
    value, found = of_both(*args, **kwargs)
    return (found, value[1]) if has_aux else found
  return wrapped

def value_and_grad(fn:Callable, argnums:Argnums=0, has_aux:bool=False) -> Callable:
  """Like `grad`, but the function returns (result, gradient), or ((result, aux), gradient) with `has_aux`."""
  return differentiated("value_and_grad", fn, argnums, has_aux)

def differentiated(name:str, fn:Callable, argnums:Argnums, has_aux:bool) -> Callable:
  check_function(name, fn)
  @functools.wraps(fn)
  def wrapped(*args:Any, **kwargs:Any) -> Any:
    marked, y, aux = call_at(name, fn, args, kwargs, argnums, has_aux)
    if not isinstance(y, Tensor) or y.numel() != 1 or not y.is_floating_point():
      got = f"shape {y.shape} and {y.dtype.name}" if isinstance(y, Tensor) else f"type {type(y).__name__}"
      raise ValueError(f"{name}: the result must be one float, not of {got}; jacrev and vjp take any result")
    found = pull_back(name, [(y.reshape(()), Tensor.ones((), dtype=y.dtype, device=y.device))], marked)
    value, found, aux = unmark((y, found, aux), marked)
    return ((value, aux) if has_aux else value), found if isinstance(argnums, (tuple, list)) else found[0]
  return wrapped

def vjp(fn:Callable, *primals:Any, has_aux:bool=False) -> tuple:
  """Returns (fn(*primals), a function that pulls a cotangent of the result back), and aux if `has_aux`.

  The function takes a cotangent with the structure, shapes and dtypes of the result, and returns a tuple with one for each primal. `fn` is called
  once. Raises TypeError for what is no float, ValueError for a cotangent that does not fit.
  """
  check_function("vjp", fn)
  primals = as_tensors(primals)
  check_inputs("vjp", "primals", primals)
  marked, out, aux = call_differentiated("vjp", fn, primals, has_aux=has_aux)
  def back(cotangent:Any) -> tuple:
    cotangent = take_tangents("vjp", "result", out, "cotangent", cotangent)
    return unmark(pull_back("vjp", [(y, ct) for (_,y),(_,ct) in zip(leaves(out), leaves(cotangent))], marked), marked)
  value, aux = unmark((out, aux), marked)
  return (value, back, aux) if has_aux else (value, back)

def call_at(name:str, fn:Callable, args:tuple, kwargs:dict, argnums:Argnums, has_aux:bool) -> tuple[list, Any, Any]:
  """Calls `fn` with the arguments in `argnums` marked. Returns (the marked arguments, the result, aux or None)."""
  chosen = tuple(argnums) if isinstance(argnums, (tuple, list)) else (argnums,)
  for i in chosen:
    if not isinstance(i, int) or not -len(args) <= i < len(args):
      raise ValueError(f"{name}: argnums {argnums!r} does not fit the {len(args)} positional arguments")
  positions = [i % len(args) for i in chosen]
  inputs = [as_tensors(args[i]) for i in positions]
  for i,x in zip(positions, inputs): check_inputs(name, f"args[{i}]", x)
  def with_marked(marked:list) -> tuple: return tuple(marked[positions.index(i)] if i in positions else a for i,a in enumerate(args))
  return call_differentiated(name, fn, inputs, with_marked, kwargs, has_aux)

def pull_back(name:str, outputs:list[tuple[Tensor, Tensor]], inputs:Any) -> tuple:
  """Returns the gradients of the inputs for (output, cotangent) pairs: a tuple with the structure of each input."""
  found = [x for _,x in leaves(inputs)]
  refuse_writes(name, [y for y,_ in outputs], found)
  # a sum of all has one walk back through what they share
  terms = [(y*ct).sum() for y,ct in outputs if y.is_floating_point()]
  total = functools.reduce(lambda a,b: a+b, terms) if terms else None
  of_leaf = [x.zeros_like() for x in found] if total is None else total.gradient(*found, materialize_grads=True)
  return tuple(replace_leaves(inputs, iter(of_leaf)))

def refuse_writes(name:str, outputs:list[Tensor], inputs:list[Tensor]) -> None:
  """Refuses an ASSIGN that was not made by Tensor.assign: a gradient ends there, and would be lost."""
  moving = {x.uop for x in inputs}
  for u in UOp.sink(*[y.uop for y in outputs]).toposort():
    if u.op is Ops.DETACH or not any(s in moving for s in u.src): continue
    moving.add(u)
    if u.op is Ops.ASSIGN and not u.ranges: raise NotImplementedError(f"{name}: {describe_place(u)} has no derivative rule")
