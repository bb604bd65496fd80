"""Converts numbers and numpy arrays to Tensors, and checks results."""
from __future__ import annotations
from typing import Any
from tinygrad.tensor import Tensor
from tinygrad_overlay._func.tree import leaves, map_leaves

def as_tensor(x:Any) -> Any:
  """Converts a number or numpy array to a Tensor; returns other values unchanged. Python numbers get tinygrad's default dtype."""
  if isinstance(x, Tensor): return x
  # numpy's float64 is a Python float, too
  if is_numpy(x): return Tensor(x if x.shape else x.item(), dtype=x.dtype.name)
  return Tensor(x) if isinstance(x, (bool, int, float)) else x

def is_numpy(x:Any) -> bool: return type(x).__module__ == "numpy" and getattr(getattr(x, "dtype", None), "kind", "") in set("biuf")

def as_tensors(tree:Any) -> Any: return tree if isinstance(tree, Tensor) else map_leaves(as_tensor, tree)

def describe(x:Any) -> str: return f"{x!r} of type {type(x).__name__}" if isinstance(x, (bool, int, float, str)) else f"of type {type(x).__name__}"

def check_results(name:str, tree:Any) -> None:
  for path,y in leaves(tree, "the result"):
    if not isinstance(y, Tensor): raise TypeError(f"{name}: {path} is {describe(y)}, not a Tensor")

def split_aux(name:str, out:Any, has_aux:bool) -> tuple[Any, Any]:
  """Splits the result of a function with has_aux into (differentiated part, aux)."""
  if not has_aux: return out, None
  if not isinstance(out, (tuple, list)) or len(out) != 2:
    raise TypeError(f"{name}: with has_aux the function returns a pair (result, aux), not {describe(out)}")
  return out[0], out[1]
