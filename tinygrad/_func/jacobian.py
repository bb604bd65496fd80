"""Dense Jacobians: forward (one JVP for each input element) and reverse (one gradient for each output element), all of them in one vmap."""
from __future__ import annotations
import functools
from typing import Any, Callable
from tinygrad.helpers import prod
from tinygrad.tensor import Tensor
from tinygrad_overlay._func.jvp import check_function, check_results, push_forward
from tinygrad_overlay._func.marked import call_marked, unmark
from tinygrad_overlay._func.tree import leaves, map_leaves, replace_leaves
from tinygrad_overlay._func.vmap import vmap

def jacfwd(fn:Callable, argnums:int|tuple[int, ...]=0) -> Callable:
  """Returns the function that gives the Jacobian of `fn`, by a JVP for each element of its input: for an input no larger than the result.

  `argnums` says which arguments are differentiated, a tuple of them gives a tuple of Jacobians. For a result of shape (m,) and an argument of shape (n,)
  the Jacobian is (m, n), in general result.shape+argument.shape. Where the result is a tuple, list or dict it is that of Jacobians, and
  where the argument is one, each Jacobian is again one.
  """
  return differentiated(fn, argnums, "jacfwd", forward)

def jacrev(fn:Callable, argnums:int|tuple[int, ...]=0) -> Callable:
  """As `jacfwd`, by a gradient for each element of the result: for a result that is smaller than the input."""
  return differentiated(fn, argnums, "jacrev", reverse)

def hessian(fn:Callable, argnums:int=0) -> Callable:
  """Returns the function that gives the second derivatives of `fn`: for a scalar result and an argument of shape (n,) it is (n, n)."""
  check_function("hessian", fn)
  return jacfwd(jacrev(fn, argnums), argnums)

def jacobian(fn:Callable, x:Any, mode:str|None=None) -> Any:
  """The Jacobian of `fn` at `x`, of shape result.shape+x.shape. `mode` is "fwd", "rev", or None for the one of fewer passes."""
  if mode not in {None, "fwd", "rev"}: raise ValueError(f'jacobian: mode is "fwd", "rev" or None, not {mode!r}')
  check_function("jacobian", fn)
  check_arguments("jacobian", "x", x)
  marked, out = call_marked(fn, (x,))
  check_results("jacobian", out)
  if mode is None: mode = "fwd" if count(x) <= count(out) else "rev"
  return unmark((forward if mode == "fwd" else reverse)(out, marked[0]), marked)

def count(tree:Any) -> int: return sum(int(prod(x.shape)) for _,x in leaves(tree))

def differentiated(fn:Callable, argnums:int|tuple[int, ...], name:str, jacobian_of:Callable) -> Callable:
  check_function(name, fn)
  @functools.wraps(fn)
  def wrapped(*args:Any, **kwargs:Any) -> Any:
    chosen = argnums if isinstance(argnums, tuple) else (argnums,)
    for i in chosen:
      if not isinstance(i, int) or not -len(args) <= i < len(args):
        raise ValueError(f"{name}: argnums {argnums!r} does not fit the {len(args)} positional arguments")
      check_arguments(name, f"args[{i % len(args)}]", args[i])
    positions = [i % len(args) for i in chosen]
    def with_marked(marked:list) -> tuple: return tuple(marked[positions.index(i)] if i in positions else a for i,a in enumerate(args))
    marked, out = call_marked(fn, [args[i] for i in positions], with_marked, kwargs)
    check_results(name, out)
    return unmark(jacobian_of(out, tuple(marked) if isinstance(argnums, tuple) else marked[0]), marked)
  return wrapped

def check_arguments(name:str, path:str, tree:Any) -> None:
  for where,x in leaves(tree, path):
    if not isinstance(x, Tensor): raise TypeError(f"{name}: {where} is {x!r} of type {type(x).__name__}, not a Tensor")
    if not x.is_floating_point(): raise TypeError(f"{name}: {where} of shape {x.shape} is {x.dtype.name}, and only floats have a derivative")

def basis(x:Tensor) -> Tensor:
  """(2, 3) -> (6, 2, 3): each element's unit tangent."""
  size = int(prod(x.shape))
  # A buffer, though it could be computed in place: tinygrad 0.12.0 repositions a reduce over a mask of numbers by a load, and with some programs that
  # rewrite never ends ("infinite loop in graph_rewrite").
  return Tensor.eye(size, dtype=x.dtype, device=x.device).contiguous().reshape((size, *x.shape))

def forward(out:Any, inputs:Any) -> Any:
  found = [x for _,x in leaves(inputs)]
  # for each input leaf, the tangents of all outputs with that leaf's elements as their last axis
  columns = [vmap(lambda t, x=x: push_forward(out, {x.uop:t.uop}), out_axes=-1)(basis(x)) for x in found]
  blocks = [iter([y for _,y in leaves(column)]) for column in columns]
  def of_output(y:Tensor) -> Any: return replace_leaves(inputs, iter([next(block).reshape((*y.shape, *x.shape)) for block,x in zip(blocks, found)]))
  return map_leaves(of_output, out)

def reverse(out:Any, inputs:Any) -> Any:
  found = [x for _,x in leaves(inputs)]
  def of_output(y:Tensor) -> Any:
    if not y.is_floating_point(): return replace_leaves(inputs, iter([zeros(y, x) for x in found]))
    rows = vmap(lambda ct: y.gradient(*found, gradient=ct, materialize_grads=True))(basis(y))
    return replace_leaves(inputs, iter([row.reshape((*y.shape, *x.shape)) for row,x in zip(rows, found)]))
  return map_leaves(of_output, out)

def zeros(y:Tensor, x:Tensor) -> Tensor: return Tensor.zeros((*y.shape, *x.shape), dtype=x.dtype, device=x.device)
