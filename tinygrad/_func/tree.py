"""Trees of values like in jax and torch.func: tuples, lists, dicts, dataclasses, registered classes. None is an empty tree, any other value a
leaf. Converts the leaves to Tensors, and calls a function on marked Tensors (explained in graph.py)."""
from __future__ import annotations
import copy, dataclasses, functools
from typing import Any, Callable, Iterable, Iterator
from tinygrad.tensor import Tensor
from tinygrad_overlay._func import graph
from tinygrad_overlay._state import Running, Within, running

# class -> (what gives its children and the rest, what makes one of the rest and children)
registered: dict[type, tuple[Callable[[Any], tuple], Callable[[Any, tuple], Any]]] = {}

def register_pytree(cls:type, flatten:Callable[[Any], tuple], unflatten:Callable[[Any, tuple], Any]) -> None:
  """Registers a class with vmap and the derivatives: the children of its objects are mapped and differentiated like the elements of a tuple.

  `flatten(x)` returns (children, all other data of x); `unflatten(data, children)` makes an object, and must accept children that are not Tensors.
  Subclasses are not included. Raises TypeError if `cls` is no class, ValueError for a tuple, list or dict class, or a class registered before.
  """
  if not isinstance(cls, type): raise TypeError(f"register_pytree: {cls!r} is no class")
  if cls in registered or issubclass(cls, (tuple, list, dict)): raise ValueError(f"register_pytree: {cls.__name__} is known already")
  registered[cls] = (flatten, unflatten)

# metadata of a dataclass field that is not a child
STATIC = {"static": True}

def is_node(tree:Any) -> bool: return is_node_class(cls:=type(tree)) or cls in registered

# cached, because every vmap asks several times for each argument and result
@functools.lru_cache(1024)
def is_node_class(cls:type) -> bool: return issubclass(cls, (tuple, list, dict, type(None))) or is_dataclass(cls)

@functools.lru_cache(1024)
def is_dataclass(cls:type) -> bool:
  # a UOp is a dataclass too
  return dataclasses.is_dataclass(cls) and not cls.__module__.startswith("tinygrad.")

def data_fields(tree:Any) -> list[str]:
  """Returns the fields of a dataclass that are children: constructor parameters without `field(metadata={"static": True})`."""
  return [f.name for f in dataclasses.fields(tree) if f.init and not f.metadata.get("static")]

def child_values(tree:Any) -> Iterable:
  """Returns the children of a node without paths, which only errors need."""
  return tree if type(tree) in (tuple, list) else [child for _,child in children(tree)]

def children(tree:Any) -> list[tuple[str, Any]]:
  """Returns (path below the node, child) in leaf order. A dict is sorted by keys: {b, a} and {a, b} are the same structure."""
  if tree is None: return []
  if type(tree) in registered: return [(f"[{i}]", child) for i,child in enumerate(registered[type(tree)][0](tree)[0])]
  if isinstance(tree, dict): return [(f"[{k!r}]", tree[k]) for k in sorted_keys(tree)]
  if is_dataclass(type(tree)): return [(f".{name}", getattr(tree, name)) for name in data_fields(tree)]
  return [(f"[{i}]", child) for i,child in enumerate(tree)]

def sorted_keys(tree:dict) -> list: return sorted(tree, key=lambda k: (str(type(k)), k))

def rebuild(tree:Any, new:list) -> Any:
  """Returns a node like `tree` with other children."""
  if type(tree) is tuple: return tuple(new)
  if tree is None: return None
  if type(tree) in registered:
    flatten, unflatten = registered[type(tree)]
    return unflatten(flatten(tree)[1], tuple(new))
  if isinstance(tree, dict):
    # an OrderedDict has its order, a defaultdict its factory
    ret = copy.copy(tree)
    ret.update(zip(sorted_keys(tree), new))
    return ret
  if is_dataclass(type(tree)):
    names = data_fields(tree)
    # unchanged children: return the same object
    return tree if all(getattr(tree, name) is x for name,x in zip(names, new)) else dataclasses.replace(tree, **dict(zip(names, new)))
  # a namedtuple takes its fields apart
  return type(tree)(*new) if hasattr(tree, "_fields") else type(tree)(new)

def leaves(tree:Any, path:str="") -> list[tuple[str, Any]]:
  """Returns (path, leaf) for each leaf: ({"w": a}, b) below "args" -> [("args[0]['w']", a), ("args[1]", b)]."""
  if not is_node(tree): return [(path, tree)]
  return [found for below,child in children(tree) for found in leaves(child, path+below)]

def flatten(tree:Any) -> list:
  if not is_node(tree): return [tree]
  return [leaf for child in child_values(tree) for leaf in flatten(child)]

def replace_leaves(tree:Any, new:Iterator) -> Any:
  """Returns a tree like `tree` with the leaves of `new`, in order."""
  if not is_node(tree): return next(new)
  return rebuild(tree, [replace_leaves(child, new) for child in child_values(tree)])

def map_leaves(fn:Callable, tree:Any) -> Any: return replace_leaves(tree, iter([fn(leaf) for leaf in flatten(tree)]))

def first_difference(a:Any, b:Any) -> tuple[str, Any, Any]|None:
  """Returns (path, node of `a`, node of `b`) for the first difference of structure, or None; a tuple and a list are the same structure."""
  if not is_node(a) and not is_node(b): return None
  if not are_alike(a, b): return "", a, b
  for (path,x),(_,y) in zip(children(a), children(b)):
    if (found:=first_difference(x, y)) is not None: return path+found[0], *found[1:]
  return None

def are_alike(a:Any, b:Any) -> bool:
  if isinstance(a, dict) or isinstance(b, dict): return isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys()
  if a is None or b is None: return a is b
  if not is_node(a) or not is_node(b): return False
  are_sequences = isinstance(a, (tuple, list)) and isinstance(b, (tuple, list))
  return (type(a) is type(b) or are_sequences) and len(children(a)) == len(children(b))

def is_axis(axes:Any) -> bool: return axes is None or (isinstance(axes, int) and not isinstance(axes, bool))

def spread_axes(axes:Any, tree:Any, name:str, path:str) -> list[int|None]:
  """Returns the axis of each leaf of `tree`. `axes` is an int or None for all leaves, or a node with the structure of `tree`. `name` is the option
  with `axes`, for errors. Raises TypeError for an axis of another type, ValueError for a structure that does not fit."""
  if is_axis(axes): return [axes]*len(flatten(tree))
  if not is_node(axes): raise TypeError(f"{name}: an axis is an int or None, not {axes!r}, for {path}")
  if not are_alike(axes, tree): raise ValueError(f"{name}: {axes!r} does not fit {path}, which is {describe_node(tree)}")
  return [axis for (_,a),(below,t) in zip(children(axes), children(tree)) for axis in spread_axes(a, t, name, path+below)]

def describe_node(tree:Any) -> str:
  if isinstance(tree, dict): return f"a dict with the keys {', '.join(repr(k) for k in tree) or '(none)'}"
  if isinstance(tree, (tuple, list)): return f"a {type(tree).__name__} of {len(tree)}"
  return "None" if tree is None else f"a {type(tree).__name__}"

# *** leaves as Tensors

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

# *** marked Tensors

def call_differentiated(name:str, fn:Callable, trees:Iterable[Any], args:Callable[[list], tuple]=tuple, kwargs:dict|None=None,
                        has_aux:bool=False) -> tuple[list[Any], Any, Any]:
  """Marks the Tensors of `trees` and calls fn(*args(marked trees), **kwargs). Returns (the marked trees, the result, aux or None)."""
  def mark(x:Any) -> Any: return Tensor(graph.mark(x.uop), device=x.device, requires_grad=x.requires_grad) if isinstance(x, Tensor) else x
  marked = [map_leaves(mark, tree) for tree in trees]
  inputs = [leaf for leaf in flatten(marked) if isinstance(leaf, Tensor)]
  with Within(running, Running(tuple(x.uop for x in inputs), inputs[0] if inputs else None)): out, aux = fn(*args(marked), **(kwargs or {})), None
  if has_aux:
    if not isinstance(out, (tuple, list)) or len(out) != 2:
      raise TypeError(f"{name}: with has_aux the function returns a pair (result, aux), not {describe(out)}")
    out, aux = out
  check_results(name, out:=as_tensors(out))
  return marked, out, aux

def unmark(tree:Any, marked:Any) -> Any:
  """Returns the tree with the marks of `marked` replaced by the marked nodes, in each Tensor."""
  marks = graph.find_marks([leaf.uop for leaf in flatten(marked) if isinstance(leaf, Tensor)])
  new = graph.replace_nodes([leaf.uop for leaf in flatten(tree) if isinstance(leaf, Tensor)], marks)
  def unmarked(x:Any) -> Any:
    if not isinstance(x, Tensor) or new[x.uop] is x.uop: return x
    return Tensor(new[x.uop], device=x.device, requires_grad=x.requires_grad)
  return map_leaves(unmarked, tree)
