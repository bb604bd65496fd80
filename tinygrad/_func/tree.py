"""Trees of values: tuples, lists and dicts, as jax and torch.func take them. None is an empty tree, anything else is a leaf."""
from __future__ import annotations
from typing import Any, Callable, Iterator

def is_node(tree:Any) -> bool: return tree is None or isinstance(tree, (tuple, list, dict))

def children(tree:Any) -> list[tuple[str, Any]]:
  """(path of the child below its node, child), in the order of the leaves. A dict's order is that of its keys: {b, a} and {a, b} are one structure."""
  if tree is None: return []
  if isinstance(tree, dict): return [(f"[{k!r}]", tree[k]) for k in sorted(tree, key=lambda k: (str(type(k)), k))]
  return [(f"[{i}]", child) for i,child in enumerate(tree)]

def rebuild(tree:Any, new:list) -> Any:
  """A node like `tree` with other children."""
  if tree is None: return None
  if isinstance(tree, dict):
    of_key = dict(zip(sorted(tree, key=lambda k: (str(type(k)), k)), new))
    return {k:of_key[k] for k in tree}
  # a namedtuple takes its fields apart
  return type(tree)(*new) if hasattr(tree, "_fields") else type(tree)(new)

def leaves(tree:Any, path:str="") -> list[tuple[str, Any]]:
  """(path, leaf) for each leaf: ({"w": a}, b) below "args" -> [("args[0]['w']", a), ("args[1]", b)]."""
  if not is_node(tree): return [(path, tree)]
  return [found for below,child in children(tree) for found in leaves(child, path+below)]

def replace_leaves(tree:Any, new:Iterator) -> Any:
  """A tree like `tree` with its leaves taken from `new`, in order."""
  if not is_node(tree): return next(new)
  return rebuild(tree, [replace_leaves(child, new) for _,child in children(tree)])

def map_leaves(fn:Callable, tree:Any) -> Any: return replace_leaves(tree, iter([fn(leaf) for _,leaf in leaves(tree)]))

def first_difference(a:Any, b:Any) -> tuple[str, Any, Any]|None:
  """(path, what `a` has there, what `b` has there) of the first node where the structures differ; a tuple and a list are one structure."""
  if not is_node(a) and not is_node(b): return None
  if not are_alike(a, b): return "", a, b
  for (path,x),(_,y) in zip(children(a), children(b)):
    if (found:=first_difference(x, y)) is not None: return path+found[0], *found[1:]
  return None

def are_alike(a:Any, b:Any) -> bool:
  if isinstance(a, dict) or isinstance(b, dict): return isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys()
  if a is None or b is None: return a is b
  return is_node(a) and is_node(b) and len(a) == len(b)

def spread_axes(axes:Any, tree:Any, name:str, path:str) -> list[int|None]:
  """The axis of each leaf of `tree`. `axes` is an int or None for all that is below, or a node like that of `tree`.

  `name` is the option that `axes` is a part of. Raises TypeError for an axis that is neither, ValueError for a structure that does not fit.
  """
  if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)): return [axes]*len(leaves(tree))
  if not isinstance(axes, (tuple, list, dict)): raise TypeError(f"{name}: an axis is an int or None, not {axes!r}, for {path}")
  fits = isinstance(tree, dict) and axes.keys() == tree.keys() if isinstance(axes, dict) else isinstance(tree, (tuple, list)) and len(axes) == len(tree)
  if not fits: raise ValueError(f"{name}: {axes!r} does not fit {path}, which is {describe_node(tree)}")
  return [axis for (_,a),(below,t) in zip(children(axes), children(tree)) for axis in spread_axes(a, t, name, path+below)]

def describe_node(tree:Any) -> str:
  if isinstance(tree, dict): return f"a dict with the keys {', '.join(repr(k) for k in tree) or '(none)'}"
  if isinstance(tree, (tuple, list)): return f"a {type(tree).__name__} of {len(tree)}"
  return "None" if tree is None else f"a {type(tree).__name__}"
