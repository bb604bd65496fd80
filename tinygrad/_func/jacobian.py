"""Dense Jacobians: forward (a JVP for each input element) and reverse (a gradient for each output element), in one vmap."""
from __future__ import annotations
import functools
from typing import Any, Callable
from tinygrad.helpers import prod
from tinygrad.tensor import Tensor
from tinygrad_overlay._func.jvp import check_function, check_inputs, push_forward
from tinygrad_overlay._func.marked import call_differentiated, unmark
from tinygrad_overlay._func.reverse import Argnums, call_at, refuse_writes
from tinygrad_overlay._func.tree import leaves, map_leaves, replace_leaves
from tinygrad_overlay._func.values import as_tensors
from tinygrad_overlay._func.vmap import vmap

def jacfwd(fn:Callable, argnums:Argnums=0, has_aux:bool=False, chunk_size:int|None=None) -> Callable:
  """Returns a function that computes the Jacobian of `fn` with a JVP for each input element: best if the input is not larger than the result.

  `argnums` selects the arguments; a tuple or list gives a tuple of Jacobians. For a result of shape (m,) and an argument of shape (n,) the Jacobian
  is (m, n), in general result.shape+argument.shape. If the result is a tuple, list or dict, so is the Jacobian; if the argument is one, each Jacobian
  has its structure too. With `has_aux` `fn` returns (result, aux), and the new function returns (Jacobian, aux). `chunk_size` is vmap's: the number
  of passes in one program.
  """
  return differentiated(fn, argnums, "jacfwd", functools.partial(forward, chunk_size=chunk_size), has_aux)

def jacrev(fn:Callable, argnums:Argnums=0, has_aux:bool=False, chunk_size:int|None=None) -> Callable:
  """Like `jacfwd`, with a gradient for each result element: best if the result is smaller than the input."""
  return differentiated(fn, argnums, "jacrev", functools.partial(reverse, chunk_size=chunk_size), has_aux)

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

def count(tree:Any) -> int: return sum(int(prod(x.shape)) for _,x in leaves(tree))

def differentiated(fn:Callable, argnums:Argnums, name:str, jacobian_of:Callable, has_aux:bool) -> Callable:
  check_function(name, fn)
  @functools.wraps(fn)
  def wrapped(*args:Any, **kwargs:Any) -> Any:
    marked, out, aux = call_at(name, fn, args, kwargs, argnums, has_aux)
    found = jacobian_of(out, tuple(marked) if isinstance(argnums, (tuple, list)) else marked[0])
    return unmark((found, aux) if has_aux else found, marked)
  return wrapped

def basis(x:Tensor) -> Tensor:
  """(2, 3) -> (6, 2, 3): the unit tangent of each element."""
  size = int(prod(x.shape))
  # A buffer, because tinygrad 0.12.0 replaces a reduce over a mask of numbers by a load, and that rewrite never ends for some programs
  # ("infinite loop in graph_rewrite").
  return Tensor.eye(size, dtype=x.dtype, device=x.device).contiguous().reshape((size, *x.shape))

def forward(out:Any, inputs:Any, chunk_size:int|None=None) -> Any:
  found = [x for _,x in leaves(inputs)]
  # for each input leaf: the tangents of all outputs, with the leaf's elements as last axis
  columns = [vmap(lambda t, x=x: push_forward(out, {x.uop:t.uop}), out_axes=-1, chunk_size=chunk_size)(basis(x)) for x in found]
  blocks = [iter([y for _,y in leaves(column)]) for column in columns]
  def of_output(y:Tensor) -> Any: return replace_leaves(inputs, iter([next(block).reshape((*y.shape, *x.shape)) for block,x in zip(blocks, found)]))
  return map_leaves(of_output, out)

def reverse(out:Any, inputs:Any, chunk_size:int|None=None) -> Any:
  found = [x for _,x in leaves(inputs)]
  refuse_writes("jacrev", [y for _,y in leaves(out)], found)
  def of_output(y:Tensor) -> Any:
    if not y.is_floating_point(): return replace_leaves(inputs, iter([zeros(y, x) for x in found]))
    rows = vmap(lambda ct: y.gradient(*found, gradient=ct, materialize_grads=True), chunk_size=chunk_size)(basis(y))
    return replace_leaves(inputs, iter([row.reshape((*y.shape, *x.shape)) for row,x in zip(rows, found)]))
  return map_leaves(of_output, out)

def zeros(y:Tensor, x:Tensor) -> Tensor: return Tensor.zeros((*y.shape, *x.shape), dtype=x.dtype, device=x.device)
