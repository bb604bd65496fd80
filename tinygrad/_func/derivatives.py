"""Derivatives of functions: forward (`jvp`, `linearize`, `jvp_of`, `jacfwd`) and in reverse (`grad`, `value_and_grad`, `vjp`, `jacrev`)."""
from __future__ import annotations
import functools, operator
from typing import Any, Callable, Iterable
from tinygrad.helpers import prod
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay._func.jvp import push_forward
from tinygrad_overlay._func.tree import (as_tensor, as_tensors, call_differentiated, check_results, describe_node, first_difference, flatten, leaves,
                                         map_leaves, replace_leaves, unmark)
from tinygrad_overlay._func.vmap import vmap
from tinygrad_overlay.schedule._scopes import describe_place

Argnums = int|tuple[int, ...]|list[int]

# *** along tangents

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
  tangents = take_tangents("jvp", "primals", primals:=as_tensors(primals), "tangents", tangents)
  marked, out, aux = call_differentiated("jvp", fn, primals, has_aux=has_aux)
  pushed = push_along(out, marked, tangents)
  return unmark((out, pushed, aux) if has_aux else (out, pushed), marked)

def linearize(fn:Callable, *primals:Any, has_aux:bool=False) -> tuple:
  """Returns (fn(*primals), a function that computes the derivative along tangents), and aux if `has_aux`.

  The function takes a tangent for each primal. `fn` is called only once, for any number of directions.
  """
  primals, marked, out, aux = call_once("linearize", fn, primals, has_aux)
  def along(*tangents:Any) -> Any:
    tangents = take_tangents("linearize", "primals", primals, "tangents", tangents)
    return unmark(push_along(out, marked, tangents), marked)
  value, aux = unmark((out, aux), marked)
  return (value, along, aux) if has_aux else (value, along)

def push_along(out:Any, inputs:Any, tangents:Any) -> Any:
  return push_forward(out, {x.uop:t.uop for x,t in zip(flatten(inputs), flatten(tangents))})

def call_once(name:str, fn:Callable, primals:tuple, has_aux:bool) -> tuple[Any, list, Any, Any]:
  """Returns (the primals as Tensors, the marked primals, the result, aux or None)."""
  check_function(name, fn)
  check_inputs(name, "primals", primals:=as_tensors(primals))
  return primals, *call_differentiated(name, fn, primals, has_aux=has_aux)

def jvp_of(outputs:Any, inputs:Any, tangents:Any) -> Any:
  """Returns the derivative of existing Tensors: of `outputs` along `tangents` of `inputs`, each a Tensor or a tuple, list or dict of Tensors.

  The result has the structure and the shapes of `outputs`. The derivative stops at the inputs: an input that depends on another input has only its
  own tangent. Raises ValueError for an input that is in no output's graph (it is a copy, or was realized after the outputs were computed).
  """
  tangents = take_tangents("jvp_of", "inputs", inputs, "tangents", tangents)
  check_results("jvp_of", outputs)
  seeds: dict[UOp, UOp] = {}
  of_path: dict[UOp, str] = {}
  graph = UOp.sink(*[y.uop for y in flatten(outputs)]).toposort()
  for (path,x),t in zip(leaves(inputs, "inputs"), flatten(tangents)):
    if x.uop in seeds: raise ValueError(f"jvp_of: {of_path[x.uop]} and {path} of shape {x.shape} are the same value, and can have only one tangent")
    if x.uop not in graph:
      raise ValueError(f"jvp_of: {path} of shape {x.shape} is not in the graph of the outputs: they do not depend on it, or one of them was realized")
    seeds[x.uop], of_path[x.uop] = t.uop, path
  return push_forward(outputs, seeds)

# *** in reverse

def grad(fn:Callable, argnums:Argnums=0, has_aux:bool=False) -> Callable:
  """Returns a function that computes the gradient of `fn`, whose result is one float: (n,) for an argument of shape (n,).

  `argnums` says which arguments are differentiated: an int gives the gradient, a tuple or list of them a tuple of gradients, each with the structure
  of its argument. With `has_aux` the function returns (result, aux), and (gradient, aux) is returned. What the result does not depend on has a
  gradient of zeros. Raises TypeError for what is no float, ValueError for a result of more than one element and argnums that do not fit.
  """
  return differentiated("grad", fn, argnums, has_aux, functools.partial(gradient, "grad"))

def value_and_grad(fn:Callable, argnums:Argnums=0, has_aux:bool=False) -> Callable:
  """Like `grad`, but the function returns (result, gradient), or ((result, aux), gradient) with `has_aux`."""
  return differentiated("value_and_grad", fn, argnums, has_aux, functools.partial(gradient, "value_and_grad"), with_value=True)

def vjp(fn:Callable, *primals:Any, has_aux:bool=False) -> tuple:
  """Returns (fn(*primals), a function that pulls a cotangent of the result back), and aux if `has_aux`.

  The function takes a cotangent with the structure, shapes and dtypes of the result, and returns a tuple with one for each primal. `fn` is called
  once. Raises TypeError for what is no float, ValueError for a cotangent that does not fit.
  """
  _, marked, out, aux = call_once("vjp", fn, primals, has_aux)
  def back(cotangent:Any) -> tuple:
    cotangent = take_tangents("vjp", "result", out, "cotangent", cotangent)
    return unmark(tuple(pull_back("vjp", zip(flatten(out), flatten(cotangent)), marked)), marked)
  value, aux = unmark((out, aux), marked)
  return (value, back, aux) if has_aux else (value, back)

def gradient(name:str, y:Any, inputs:Any) -> Any:
  if not isinstance(y, Tensor) or y.numel() != 1 or not y.is_floating_point():
    got = f"shape {y.shape} and {y.dtype.name}" if isinstance(y, Tensor) else f"type {type(y).__name__}"
    raise ValueError(f"{name}: the result must be one float, not of {got}; jacrev and vjp take any result")
  return pull_back(name, [(y.reshape(()), Tensor.ones((), dtype=y.dtype, device=y.device))], inputs)

def pull_back(name:str, outputs:Iterable[tuple[Tensor, Tensor]], inputs:Any) -> Any:
  """Returns the gradients of the inputs for (output, cotangent) pairs, with the structure of the inputs."""
  outputs, found = list(outputs), flatten(inputs)
  refuse_writes(name, [y for y,_ in outputs], found)
  # a sum of all has one walk back through what they share
  terms = [(y*ct).sum() for y,ct in outputs if y.is_floating_point()]
  of_leaf = functools.reduce(operator.add, terms).gradient(*found, materialize_grads=True) if terms else [x.zeros_like() for x in found]
  return replace_leaves(inputs, iter(of_leaf))

def refuse_writes(name:str, outputs:list[Tensor], inputs:list[Tensor]) -> None:
  """Refuses an ASSIGN that was not made by Tensor.assign: a gradient ends there, and would be lost."""
  moving = {x.uop for x in inputs}
  for u in UOp.sink(*[y.uop for y in outputs]).toposort():
    if u.op is Ops.DETACH or not any(s in moving for s in u.src): continue
    moving.add(u)
    if u.op is Ops.ASSIGN and not u.ranges: raise NotImplementedError(f"{name}: {describe_place(u)} has no derivative rule")

# *** Jacobians: a JVP for each input element, or a gradient for each output element, in one vmap

def jacfwd(fn:Callable, argnums:Argnums=0, has_aux:bool=False, chunk_size:int|None=None) -> Callable:
  """Returns a function that computes the Jacobian of `fn` with a JVP for each input element: best if the input is not larger than the result.

  `argnums` selects the arguments; a tuple or list gives a tuple of Jacobians. For a result of shape (m,) and an argument of shape (n,) the Jacobian
  is (m, n), in general result.shape+argument.shape. If the result is a tuple, list or dict, so is the Jacobian; if the argument is one, each Jacobian
  has its structure too. With `has_aux` `fn` returns (result, aux), and the new function returns (Jacobian, aux). `chunk_size` is vmap's: the number
  of passes in one program.
  """
  return differentiated("jacfwd", fn, argnums, has_aux, functools.partial(forward, chunk_size=chunk_size))

def jacrev(fn:Callable, argnums:Argnums=0, has_aux:bool=False, chunk_size:int|None=None) -> Callable:
  """Like `jacfwd`, with a gradient for each result element: best if the result is smaller than the input."""
  return differentiated("jacrev", fn, argnums, has_aux, functools.partial(reverse, chunk_size=chunk_size))

def hessian(fn:Callable, argnums:Argnums=0, has_aux:bool=False) -> Callable:
  """Returns a function that computes the second derivatives of `fn`: (n, n) for a scalar result and an argument of shape (n,)."""
  check_function("hessian", fn)
  return jacfwd(jacrev(fn, argnums, has_aux), argnums, has_aux)

def jacobian(fn:Callable, x:Any, mode:str|None=None) -> Any:
  """Returns the Jacobian of `fn` at `x`, of shape result.shape+x.shape. `mode` is "fwd", "rev", or None for the mode with fewer passes."""
  if mode not in {None, "fwd", "rev"}: raise ValueError(f'jacobian: mode is "fwd", "rev" or None, not {mode!r}')
  check_function("jacobian", fn)
  check_inputs("jacobian", "x", x:=as_tensors(x))
  marked, out, _ = call_differentiated("jacobian", fn, (x,))
  if mode is None: mode = "fwd" if count(x) <= count(out) else "rev"
  return unmark((forward if mode == "fwd" else reverse)(out, marked[0]), marked)

def count(tree:Any) -> int: return sum(int(prod(x.shape)) for x in flatten(tree))

def basis(x:Tensor) -> Tensor:
  """(2, 3) -> (6, 2, 3): the unit tangent of each element."""
  size = int(prod(x.shape))
  # A buffer, because tinygrad 0.12.0 replaces a reduce over a mask of numbers by a load, and that rewrite never ends for some programs
  # ("infinite loop in graph_rewrite").
  return Tensor.eye(size, dtype=x.dtype, device=x.device).contiguous().reshape((size, *x.shape))

def forward(out:Any, inputs:Any, chunk_size:int|None=None) -> Any:
  found = flatten(inputs)
  # for each input leaf: the tangents of all outputs, with the leaf's elements as last axis
  columns = [vmap(lambda t, x=x: push_forward(out, {x.uop:t.uop}), out_axes=-1, chunk_size=chunk_size)(basis(x)) for x in found]
  blocks = [iter(flatten(column)) for column in columns]
  def of_output(y:Tensor) -> Any: return replace_leaves(inputs, iter([next(block).reshape((*y.shape, *x.shape)) for block,x in zip(blocks, found)]))
  return map_leaves(of_output, out)

def reverse(out:Any, inputs:Any, chunk_size:int|None=None) -> Any:
  found = flatten(inputs)
  refuse_writes("jacrev", flatten(out), found)
  def of_output(y:Tensor) -> Any:
    if not y.is_floating_point(): return map_leaves(lambda x: Tensor.zeros((*y.shape, *x.shape), dtype=x.dtype, device=x.device), inputs)
    rows = vmap(lambda ct: y.gradient(*found, gradient=ct, materialize_grads=True), chunk_size=chunk_size)(basis(y))
    return replace_leaves(inputs, iter([row.reshape((*y.shape, *x.shape)) for row,x in zip(rows, found)]))
  return map_leaves(of_output, out)

def differentiated(name:str, fn:Callable, argnums:Argnums, has_aux:bool, derivative_of:Callable[[Any, Any], Any], with_value:bool=False) -> Callable:
  """Returns a function that calls `fn` and returns derivative_of(result, the marked arguments), and the result and aux if asked for."""
  check_function(name, fn)
  @functools.wraps(fn)
  def wrapped(*args:Any, **kwargs:Any) -> Any:
    chosen = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    if not all(isinstance(i, int) and -len(args) <= i < len(args) for i in chosen):
      raise ValueError(f"{name}: argnums {argnums!r} does not fit the {len(args)} positional arguments")
    positions = [i % len(args) for i in chosen]
    inputs = [as_tensors(args[i]) for i in positions]
    for i,x in zip(positions, inputs): check_inputs(name, f"args[{i}]", x)
    def with_marked(marked:list) -> tuple: return tuple(marked[positions.index(i)] if i in positions else a for i,a in enumerate(args))
    marked, out, aux = call_differentiated(name, fn, inputs, with_marked, kwargs, has_aux)
    found = derivative_of(out, tuple(marked) if isinstance(argnums, (tuple, list)) else marked[0])
    if with_value: ret = (out, aux) if has_aux else out, found
    else: ret = (found, aux) if has_aux else found
    return unmark(ret, marked)
  return wrapped

def check_inputs(name:str, path:str, tree:Any) -> None:
  for where,x in leaves(tree, path):
    if not isinstance(x, Tensor): raise TypeError(f"{name}: {where} is {x!r} of type {type(x).__name__}, not a Tensor")
    if not x.is_floating_point(): raise TypeError(f"{name}: {where} of shape {x.shape} is {x.dtype.name}, and only floats have a derivative")

def take_tangents(fn:str, of:str, primals:Any, name:str, tangents:Any) -> Any:
  """Returns the tangents as Tensors; a Python number gets the dtype of its primal. Raises like `jvp` if they do not fit."""
  if (found:=first_difference(primals, tangents)) is not None:
    path, x, t = found
    raise ValueError(f"{fn}: {name} must have the structure of {of}, but {name}{path} is {describe_node(t)}, and {of}{path} is {describe_node(x)}")
  def take(x:Any, t:Any) -> Any: return Tensor(t, dtype=x.dtype) if isinstance(x, Tensor) and type(t) in {int, float} else as_tensor(t)
  tangents = replace_leaves(tangents, map(take, flatten(primals), flatten(tangents)))
  for (path,x),(below,t) in zip(leaves(primals, of), leaves(tangents, name)):
    check_inputs(fn, path, x)
    if not isinstance(t, Tensor): raise TypeError(f"{fn}: {below} is {t!r} of type {type(t).__name__}, not a Tensor")
    if x.shape != t.shape or x.dtype != t.dtype:
      raise ValueError(f"{fn}: {below} of shape {t.shape} and {t.dtype.name} is no tangent of {path}, which has shape {x.shape} and {x.dtype.name}")
  return tangents

def check_function(name:str, fn:Any) -> None:
  if not callable(fn): raise TypeError(f"{name}: the function is of type {type(fn).__name__}, which cannot be called")
