"""Calls a function on marked inputs (explained in graph.py)."""
from __future__ import annotations
from typing import Any, Callable, Iterable
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp
from tinygrad_overlay._func import graph
from tinygrad_overlay._state import Running, run_function
from tinygrad_overlay._func.tree import leaves, map_leaves, replace_leaves
from tinygrad_overlay._func.values import as_tensors, check_results, split_aux

def mark(x:Tensor) -> Tensor: return Tensor(graph.mark(x.uop), device=x.device, requires_grad=x.requires_grad)

def call_marked(fn:Callable, trees:Iterable[Any], args:Callable[[list], tuple]=tuple, kwargs:dict|None=None) -> tuple[list[Any], Any]:
  """Marks the Tensors of `trees` and calls fn(*args(marked trees), **kwargs). Returns (the marked trees, the result)."""
  marked = [map_leaves(lambda leaf: mark(leaf) if isinstance(leaf, Tensor) else leaf, tree) for tree in trees]
  inputs = [leaf for _,leaf in leaves(marked) if isinstance(leaf, Tensor)]
  with run_function(Running(tuple(x.uop for x in inputs), inputs[0] if inputs else None)): return marked, fn(*args(marked), **(kwargs or {}))

def call_differentiated(name:str, fn:Callable, trees:Iterable[Any], args:Callable[[list], tuple]=tuple, kwargs:dict|None=None,
                        has_aux:bool=False) -> tuple[list[Any], Any, Any]:
  """Like `call_marked`, for a function that returns Tensors. Returns (the marked trees, the result, aux or None)."""
  marked, out = call_marked(fn, trees, args, kwargs)
  out, aux = split_aux(name, out, has_aux)
  check_results(name, out:=as_tensors(out))
  return marked, out, aux

def unmark(tree:Any, marked:Any) -> Any:
  """Returns the tree with the marks of `marked` replaced by the marked nodes, in each Tensor."""
  marks = {leaf.uop:leaf.uop.src[0] for _,leaf in leaves(marked) if isinstance(leaf, Tensor) and graph.is_mark(leaf.uop)}
  found = [leaf for _,leaf in leaves(tree)]
  new = graph.replace_nodes([leaf.uop for leaf in found if isinstance(leaf, Tensor)], marks)
  return replace_leaves(tree, iter([with_uop(leaf, new[leaf.uop]) if isinstance(leaf, Tensor) else leaf for leaf in found]))

def with_uop(x:Tensor, u:UOp) -> Tensor: return x if u is x.uop else Tensor(u, device=x.device, requires_grad=x.requires_grad)
