"""Trees of values: tuples, lists, dicts, dataclasses and registered classes, as jax and torch.func take them. None is an empty tree, anything else is a leaf."""
from __future__ import annotations
import copy, dataclasses, functools
from typing import Any, Callable, Iterable, Iterator

# class -> (what gives its children and the rest, what makes one of the rest and children)
registered: dict[type, tuple[Callable[[Any], tuple], Callable[[Any, tuple], Any]]] = {}

def register_pytree(cls:type, flatten:Callable[[Any], tuple], unflatten:Callable[[Any, tuple], Any]) -> None:
  """Lets vmap and the derivatives see into objects of a class: their children are mapped and differentiated as those of a tuple are.

  `flatten(x)` returns (the children, all else that it takes to make one like x), `unflatten(rest, children)` makes it, also of other children than
  Tensors. It counts for objects of just this class, not of those that inherit from it. Raises TypeError for what is no class, ValueError for one that
  is known already: a tuple, list or dict, or one that was registered before.
  """
  if not isinstance(cls, type): raise TypeError(f"register_pytree: {cls!r} is no class")
  if cls in registered or issubclass(cls, (tuple, list, dict)): raise ValueError(f"register_pytree: {cls.__name__} is known already")
  registered[cls] = (flatten, unflatten)

# the metadata of a dataclass's field that is no child
STATIC = {"static": True}

def is_node(tree:Any) -> bool: return is_node_class(cls:=type(tree)) or cls in registered

# of each class once: every vmap asks for each of its arguments and results, several times
@functools.lru_cache(1024)
def is_node_class(cls:type) -> bool: return issubclass(cls, (tuple, list, dict, type(None))) or is_dataclass(cls)

@functools.lru_cache(1024)
def is_dataclass(cls:type) -> bool:
  # a UOp is one, too
  return dataclasses.is_dataclass(cls) and not cls.__module__.startswith("tinygrad.")

def data_fields(tree:Any) -> list[str]:
  """The fields of a dataclass that are children: not those of `field(metadata={"static": True})`, and those that its constructor takes."""
  return [f.name for f in dataclasses.fields(tree) if f.init and not f.metadata.get("static")]

def child_values(tree:Any) -> Iterable:
  """The children of a node alone: what is right needs no path."""
  return tree if type(tree) in (tuple, list) else [child for _,child in children(tree)]

def children(tree:Any) -> list[tuple[str, Any]]:
  """(path of the child below its node, child), in the order of the leaves. A dict's order is that of its keys: {b, a} and {a, b} are one structure."""
  if tree is None: return []
  if type(tree) in registered: return [(f"[{i}]", child) for i,child in enumerate(registered[type(tree)][0](tree)[0])]
  if isinstance(tree, dict): return [(f"[{k!r}]", tree[k]) for k in sorted_keys(tree)]
  if is_dataclass(type(tree)): return [(f".{name}", getattr(tree, name)) for name in data_fields(tree)]
  return [(f"[{i}]", child) for i,child in enumerate(tree)]

def sorted_keys(tree:dict) -> list: return sorted(tree, key=lambda k: (str(type(k)), k))

def rebuild(tree:Any, new:list) -> Any:
  """A node like `tree` with other children."""
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
    # one that is passed as it is stays the object that it is
    return tree if all(getattr(tree, name) is x for name,x in zip(names, new)) else dataclasses.replace(tree, **dict(zip(names, new)))
  # a namedtuple takes its fields apart
  return type(tree)(*new) if hasattr(tree, "_fields") else type(tree)(new)

def leaves(tree:Any, path:str="") -> list[tuple[str, Any]]:
  """(path, leaf) for each leaf: ({"w": a}, b) below "args" -> [("args[0]['w']", a), ("args[1]", b)]."""
  if not is_node(tree): return [(path, tree)]
  return [found for below,child in children(tree) for found in leaves(child, path+below)]

def flatten(tree:Any) -> list:
  """The leaves of a tree, without their paths."""
  if not is_node(tree): return [tree]
  return [leaf for child in child_values(tree) for leaf in flatten(child)]

def replace_leaves(tree:Any, new:Iterator) -> Any:
  """A tree like `tree` with its leaves taken from `new`, in order."""
  if not is_node(tree): return next(new)
  return rebuild(tree, [replace_leaves(child, new) for child in child_values(tree)])

def map_leaves(fn:Callable, tree:Any) -> Any: return replace_leaves(tree, iter([fn(leaf) for leaf in flatten(tree)]))

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
  if not is_node(a) or not is_node(b): return False
  return are_one_kind(a, b) and len(children(a)) == len(children(b))

def are_one_kind(a:Any, b:Any) -> bool: return type(a) is type(b) or (isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)))

def is_axis(axes:Any) -> bool: return axes is None or (isinstance(axes, int) and not isinstance(axes, bool))

def spread_axes(axes:Any, tree:Any, name:str, path:str) -> list[int|None]:
  """The axis of each leaf of `tree`. `axes` is an int or None for all that is below, or a node like that of `tree`.

  `name` is the option that `axes` is a part of. Raises TypeError for an axis that is neither, ValueError for a structure that does not fit.
  """
  if is_axis(axes): return [axes]*len(leaves(tree))
  if not is_node(axes): raise TypeError(f"{name}: an axis is an int or None, not {axes!r}, for {path}")
  if not are_alike(axes, tree): raise ValueError(f"{name}: {axes!r} does not fit {path}, which is {describe_node(tree)}")
  return [axis for (_,a),(below,t) in zip(children(axes), children(tree)) for axis in spread_axes(a, t, name, path+below)]

def describe_node(tree:Any) -> str:
  if isinstance(tree, dict): return f"a dict with the keys {', '.join(repr(k) for k in tree) or '(none)'}"
  if isinstance(tree, (tuple, list)): return f"a {type(tree).__name__} of {len(tree)}"
  return "None" if tree is None else f"a {type(tree).__name__}"
