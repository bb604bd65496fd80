"""`functional_call`: a module as a function of its state, for vmap over models, derivatives by weights, and calls that write state."""
from __future__ import annotations
from collections import OrderedDict
from typing import Any, Callable, Iterator
from tinygrad.tensor import Tensor
from tinygrad_overlay._func.tree import as_tensor, describe
from tinygrad_overlay._state import StateCall, Within, state_calls
from tinygrad_overlay.uop.ops import render_shape

State = dict[str, Tensor]

def functional_call(module:Any, state:Any, args:Any=(), kwargs:dict|None=None, mutable:bool=False) -> Any:
  """Returns module(*args, **kwargs) with the module's Tensors replaced by `state` during the call. They are restored even if the call raises.

  `module` is any callable whose Tensors `tinygrad.nn.state.get_state_dict` finds; `state` is a dict name -> Tensor, or a tuple or list of such dicts.
  Tensors that are not in `state` stay. For a Tensor with several names (tied weights) one name is enough. `args` is a tuple of arguments; any other
  value is the only argument.

  A call that writes to the state (`assign`, `+=`, setitem, or replacing a Tensor) changes neither the module nor `state`: with `mutable` the function
  returns (result, {name: new value}) with the written names; without it the call raises RuntimeError. During the call the module has the new Tensors
  in all threads. Raises ValueError for an unknown name or another shape, TypeError for a value that is no Tensor.
  """
  if not callable(module): raise TypeError(f"functional_call: the module is {describe(module)}, which cannot be called")
  slots = list(find_slots(module))
  given = find_given(module, slots, state)
  tensors = {id(x):x for _,x,_ in slots}
  # a second Tensor keeps the old value, so that realizing it meanwhile is not lost
  kept = [(x, Tensor(x.uop, device=x.device), x.requires_grad, x.grad) for x in tensors.values()]
  call = StateCall(tensors)
  try:
    for key,x in tensors.items():
      if (new:=given.get(key)) is not None: x.uop, x.requires_grad, x.grad = new.uop, new.requires_grad, None
    with Within(state_calls, call): out = module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    now = {name:x for name,x,_ in find_slots(module)}
    # the Tensors that the call wrote to or replaced
    names = [name for name,x,_ in slots if name in now and (now[name] is not x or id(x) in call.written)]
    written = {name:Tensor(now[name].uop, device=now[name].device) for name in names}
  finally:
    for x,own,requires_grad,grad in kept: x.uop, x.requires_grad, x.grad = own.uop, requires_grad, grad
    for _,x,put in slots: put(x)
  if written and not mutable:
    raise RuntimeError(f"functional_call: the call of {type(module).__name__} writes to {list_names(written)}, and its state stays as it is;"
                       " mutable=True returns the new values beside the result")
  return (out, written) if mutable else out

def stack_module_state(modules:Any) -> State:
  """Stacks the states of equal modules, for vmap over the modules: name -> the Tensors of all modules along a new first axis.

  A Tensor with several names (tied weights) is there once, under its first. Raises ValueError for modules whose names, shapes or dtypes differ.
  """
  states = [first_names(module) for module in modules]
  if not states: raise ValueError("stack_module_state: there is no module to stack")
  first = states[0]
  for i,state in enumerate(states):
    if missing:=[(name, 0, i) for name in first if name not in state]+[(name, i, 0) for name in state if name not in first]:
      name, has, lacks = missing[0]
      raise ValueError(f"stack_module_state: modules[{has}] has {name!r}, and modules[{lacks}] has not")
    for name,x in state.items():
      if x.shape != first[name].shape or x.dtype != first[name].dtype:
        raise ValueError(f"stack_module_state: {name!r} is {describe_tensor(first[name])} in modules[0] and {describe_tensor(x)} in modules[{i}]")
  return {name:Tensor.stack(*[state[name] for state in states]) for name in first}

# *** the Tensors of a module

# (name, Tensor, a function that replaces it)
Slot = tuple[str, Tensor, Callable[[Tensor], None]]

def find_slots(node:Any, prefix:str="") -> Iterator[Slot]:
  """Yields the Tensors of a module with the names of get_state_dict, which cannot replace them."""
  for name,key,child in children_of(node):
    if isinstance(child, Tensor): yield prefix+name, child, putter(node, key)
    else: yield from find_slots(child, prefix+name+".")

def children_of(node:Any) -> list[tuple[str, Any, Any]]:
  """Returns (name, key, child) for each child of a node, like get_state_dict: only the attributes of an object that has attributes."""
  if hasattr(node, "_asdict"): node = node._asdict()
  elif hasattr(node, "__dict__") and not isinstance(node, OrderedDict): node = vars(node)
  if isinstance(node, (list, tuple)): return [(str(i), i, v) for i,v in enumerate(node)]
  return [(str(k), k, v) for k,v in node.items()] if isinstance(node, dict) else []

def putter(node:Any, key:Any) -> Callable[[Tensor], None]:
  # elements of a tuple cannot be replaced
  if isinstance(node, tuple): return lambda x: None
  values = node if isinstance(node, list) or (isinstance(node, dict) and key in node) else vars(node)
  def put(x:Tensor) -> None: values[key] = x
  return put

def first_names(module:Any) -> State:
  names: dict[int, tuple[str, Tensor]] = {}
  for name,x,_ in find_slots(module): names.setdefault(id(x), (name, x))
  return dict(names.values())

def find_given(module:Any, slots:list[Slot], state:Any) -> dict[int, Tensor]:
  """Returns id of the module's Tensor -> its replacement."""
  named = {name:x for name,x,_ in slots}
  given: dict[int, tuple[str, Tensor]] = {}
  for name,x in join_states(state).items():
    if (own:=named.get(name)) is None: raise ValueError(f"functional_call: {type(module).__name__} has no Tensor {name!r}, it has {list_names(named)}")
    if not isinstance(x:=as_tensor(x), Tensor): raise TypeError(f"functional_call: state[{name!r}] is {describe(x)}, not a Tensor")
    if x.shape != own.shape:
      raise ValueError(f"functional_call: state[{name!r}] has shape {render_shape(x.shape)}, and in {type(module).__name__} it has"
                       f" {render_shape(own.shape)}")
    if given.setdefault(id(own), (name, x))[1].uop is not x.uop:
      raise ValueError(f"functional_call: {given[id(own)][0]!r} and {name!r} are one Tensor of {type(module).__name__}, and the state has two"
                       " values for it; leave one of them out")
  return {key:x for key,(_,x) in given.items()}

def join_states(state:Any) -> dict:
  parts = state if isinstance(state, (tuple, list)) else (state,)
  joined: dict = {}
  for part in parts:
    if not isinstance(part, dict):
      raise TypeError(f"functional_call: the state is a dict of names and Tensors, or a tuple of these, not {describe(part)}")
    if again:=[name for name in part if name in joined]:
      raise ValueError(f"functional_call: {again[0]!r} is in two of the dicts of the state")
    joined.update(part)
  return joined

def describe_tensor(x:Tensor) -> str: return f"of shape {render_shape(x.shape)} and {x.dtype.name}"

def list_names(names:Any) -> str:
  listed = [repr(name) for name in names]
  return ", ".join(listed[:6])+(f" and {len(listed)-6} more" if len(listed) > 6 else "") if listed else "none"
