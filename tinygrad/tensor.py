"""Tensor.vmapin and Tensor.vmapout, and Tensor methods that behave differently inside a vmap scope (patch vmap-ops)."""
from __future__ import annotations
import functools
from types import ModuleType
from typing import Any, Iterable
from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.helpers import PROFILE, TRACEMETA, Metadata, argfix
from tinygrad.uop.ops import GroupOp, Ops, UOp, sint
from tinygrad_overlay import _scan, _state
from tinygrad_overlay._func.graph import is_mark
from tinygrad_overlay._patching import Changes
from tinygrad_overlay._state import Running
from tinygrad_overlay.schedule._scopes import VmapScopeError, called_methods, name_ranges, open_vmap_ranges
from tinygrad_overlay.uop.ops import axis_varg, render_shape, render_size, vmapin_axis, vmapout_axis

def vmapin(self, varg:tuple[UOp, ...]):
  """Enters a vmap scope: one slice of this tensor for each step of the RANGEs in `varg`.

  `varg` has one entry for each axis: a RANGE (LOOP or OUTER, as large as the axis) maps the axis, CONST 0 keeps it.
  (3, 6) with (RANGE(3), 0) -> (6,). Raises ValueError when they do not fit.
  """
  return self._apply_uop(UOp.vmapin, extra_args=(varg,))

def vmapout(self, varg:tuple[UOp, ...]):
  """Leaves a vmap scope: collects the slices of the RANGEs in `varg` along new axes.

  `varg` has one entry for each axis of the result: a RANGE puts its axis there, CONST 0 takes the next axis of this tensor.
  (6,) with (RANGE(3), 0) -> (3, 6). Raises ValueError when they do not fit.
  """
  return self._apply_uop(UOp.vmapout, extra_args=(varg,))

class NotedAs:
  """Sets tinygrad's _METADATA for a block, so that the wrapper around each Tensor method neither replaces it nor measures the time. For methods that
  vmap calls many times. With line numbers, profiling or an observer each method keeps its own metadata."""
  def __init__(self, note:Metadata): self.note, self.is_set = note, False
  def __enter__(self) -> None:
    if TRACEMETA.value != 1 or PROFILE or _state.observer.listens or upstream._METADATA.get() is not None: return
    upstream._METADATA.set(self.note)
    self.is_set = True
  def __exit__(self, *error) -> None:
    if self.is_set: upstream._METADATA.set(None)

ENTERING, LEAVING = Metadata(name="vmapin", caller=""), Metadata(name="vmapout", caller="")

def enter_axis(x, rng:UOp, axis:int):
  """(3, 6) with axis 0 -> (6,): one slice for each step of a RANGE that was made for this axis."""
  if is_looked_at(): return x.vmapin(axis_varg(rng, axis, x.ndim))
  return x._apply_uop(vmapin_axis, extra_args=(rng, axis))

def leave_axis(x, rng:UOp, axis:int):
  """(6,) with axis 0 -> (3, 6): collects the slices of all steps along a new axis."""
  if is_looked_at(): return x.vmapout(axis_varg(rng, axis, x.ndim+1))
  return x._apply_uop(vmapout_axis, extra_args=(rng, axis))

# no metadata is set, or an observer has replaced the methods
def is_looked_at() -> bool: return _state.observer.listens or upstream._METADATA.get() is None

class ProfiledMethod:
  """Stock's profile of a Tensor method. If the method raises, this clears _METADATA: stock leaves it set for all later UOps."""
  def __init__(self, profile:Any): self.profile = profile
  def __enter__(self) -> Any: return self.profile.__enter__()
  def __exit__(self, error:type[BaseException]|None, *rest) -> Any:
    if error is not None: upstream._METADATA.set(None)
    return self.profile.__exit__(error, *rest)

def cpu_profile(name:Any, device="TINY", is_copy=False, display=True) -> Any:
  profile = stock_cpu_profile(name, device, is_copy, display)
  # the wrapper around each method
  return ProfiledMethod(profile) if device == "USER" else profile

# bases whose assign writes memory from before the scope
OUTSIDE_BASES = {Ops.BUFFER, Ops.VMAPIN, Ops.MSTACK}

def refuse_outside(name:str, target, ranges:list[UOp], functions:list[Running]) -> None:
  """Refuses a write to `target` if the value depends on RANGEs of scopes, or on inputs of running functions, that `target` is outside of."""
  is_memory = target.uop.base.op in OUTSIDE_BASES
  if is_new_memory(target, functions): return
  outside = [f for f in functions if is_memory or is_older(target, f.first)]
  # a scope written by hand has no function
  if ranges and (is_memory or any(not f.is_differentiated for f in outside)):
    raise VmapScopeError(f"{name} to a tensor of shape {target.shape} that has no value for each element of the vmap scope of {name_ranges(ranges)}: every"
                         " element would write the same memory; write to a value of the scope, x.contiguous() or x*1 make one")
  if is_differentiated(outside):
    raise RuntimeError(f"{name} to a tensor of shape {target.shape} from outside of a function that is differentiated: its derivative would be lost;"
                       " write to a .clone() that the function makes of it")

def is_new_memory(target, functions:list[Running]) -> bool:
  """Whether the target is memory that the running functions made and never wrote, as Tensor.empty makes it, and no other Tensor is a view of it."""
  if (base:=target.uop.base).op is not Ops.BUFFER or base.is_realized or not functions: return False
  if any(is_older(target, f.first) for f in functions): return False
  return all(x is None or x is target or x.uop.base is not base for x in [ref() for ref in upstream.all_tensors])

def is_older(x, than) -> bool:
  # tinygrad lists Tensors in the order of their creation
  for ref in reversed(upstream.all_tensors):
    if (made:=ref()) is x: return False
    if made is than: return True
  return False

def functions_of(*us:UOp) -> list[Running]:
  """Returns the running functions on whose inputs any of the values depends."""
  if not (functions:=_state.running.get()): return []
  # a RANGE must be open; a mark may be anywhere below
  opened = {r for u in us for r in u.ranges}
  below = UOp.sink(*us).toposort() if is_differentiated(functions) else {}
  return [f for f in functions if any(x in (below if f.is_differentiated else opened) for x in f.inputs)]

def is_differentiated(functions:Iterable[Running]) -> bool: return any(f.is_differentiated for f in functions)

# *** the state of a module in functional_call: a write to it makes a new value

def replace(self, x, allow_shape_mismatch=False):
  if (call:=_state.find_state_call(self)) is not None: call.written.add(id(self))
  return stock_replace(self, x, allow_shape_mismatch)

def write_to_view(view, x):
  """Writes to the state of which `view` is a view. Returns None if it is no view of a state."""
  # a constant has no shared memory
  if (base:=view.uop.base).op is Ops.CONST: return None
  states = [t for call in reversed(_state.state_calls.get()) for t in call.tensors.values() if t.uop.base is base]
  if not states: return None
  target = states[0]
  if base.op not in OUTSIDE_BASES and not is_mark(base):
    # an unrelated Tensor with the same computation has the same UOp
    raise NotImplementedError(f"assign to a view of the state of shape {render_shape(target.shape)}, which has no memory yet: realize the state before"
                              " the call")
  below = view.uop
  while below is not target.uop and below.op in GroupOp.Movement: below = below.src[0]
  if below is not target.uop:
    raise NotImplementedError(f"assign to a view of the state of shape {render_shape(target.shape)} that is made by more than movement ops")
  x = as_value_of(view, x)
  target.replace(write_view(target, view, x).cast(target.dtype))
  view.uop = x.uop
  return view

def as_value_of(target, x):
  """Returns `x` as a value that can replace the value of `target`, by the rules of stock's assign."""
  if not isinstance(x, Tensor): x = Tensor(x, device=target.device, dtype=target.dtype)
  if least_upper_dtype(target.dtype, x.dtype) == target.dtype: x = x._broadcast_to(target.shape).cast(target.dtype)
  if (target.shape, target.dtype, target.device) != (x.shape, x.dtype, x.device):
    raise ValueError(f"assign: a Tensor of shape {render_shape(x.shape)} and {x.dtype.name} on {x.device} cannot take the place of the state of shape"
                     f" {render_shape(target.shape)} and {target.dtype.name} on {target.device}")
  return x

def assign(self, x):
  if _state.state_calls.get():
    if _state.find_state_call(self) is not None: return self.replace(as_value_of(self, x))
    if (written:=write_to_view(self, x)) is not None: return written
  if not isinstance(x, Tensor) or x.uop is self.uop: return stock_assign(self, x)
  ranges, functions = open_vmap_ranges(self.uop, x.uop), functions_of(self.uop, x.uop)
  refuse_outside("assign", self, ranges, functions)
  if not is_differentiated(functions) and not is_new_memory(self, functions): return stock_assign(self, x)
  # an ASSIGN has no derivative, but its value has; no code outside of the function has seen the old value
  assigned = stock_assign(Tensor(self.uop, device=self.device), x)
  return self.replace(Tensor(assigned.uop.src[1], device=self.device))

def clone(self):
  # inside a scope there is no memory to clone into: the scheduler makes the buffer, with the batch. And an ASSIGN has no derivative
  if not open_vmap_ranges(self.uop) and not is_differentiated(functions_of(self.uop)): return stock_clone(self)
  ret = self.contiguous()
  if self.grad is not None: ret.grad = self.grad.clone()
  return ret

def refuse_truth(self):
  if ranges:=open_vmap_ranges(self.uop):
    raise VmapScopeError(f"a Python `if`, `and`, `or` or `not` asks for one truth value of a Tensor of shape {self.shape} inside the vmap scope of"
                         f" {name_ranges(ranges)}, where each element has one of its own; use Tensor.where, or & and |")
  return stock_bool(self)

def rand(*shape, device=None, dtype=None, contiguous=True, **kwargs):
  functions = _state.running.get()
  if refused:=[f.size for f in functions if f.size is not None and f.randomness == "error"]: refuse_random(refused[-1], tuple(argfix(*shape)))
  # numbers for the whole batch; each element takes a slice
  if different:=[f for f in functions if f.randomness == "different"]:
    if symbolic:=[f.size for f in different if isinstance(f.size, UOp)]:
      raise VmapScopeError(f"randomness='different' needs a batch of fixed size, not {render_size(symbolic[0])}: draw the numbers before the vmap and"
                           " map them")
    shape = (*[f.size for f in different], *argfix(*shape))
  ret = stock_rand(*shape, device=device, dtype=dtype, contiguous=contiguous, **kwargs)
  for f in different: ret = f.enter(ret)
  return ret

def refuse_random(size:sint, shape:tuple) -> None:
  methods = called_methods() or ["Tensor.rand"]
  # these draw two uniform numbers for each of their numbers
  if not {"Tensor.randn", "Tensor.randn_like"}.isdisjoint(methods): shape = shape[1:]
  raise VmapScopeError(f"{methods[-1]} draws random numbers of shape {shape} inside a function that vmap maps over {render_size(size)} elements, and every element"
                       f" would get the same ones; draw shape {render_shape((size, *shape))} before the vmap and map it, or {shape} before it if they shall be the same,"
                       f" or say randomness='different' or 'same'")

def setitem(self, indices, v) -> None:
  """Inside a scope or a differentiated function, a setitem makes a new value: an element has no separate memory to write to."""
  read = [self.uop, *[t.uop for t in (v, *(indices if isinstance(indices, (tuple, list)) else (indices,))) if isinstance(t, Tensor)]]
  ranges, functions = open_vmap_ranges(*read), functions_of(*read)
  call = _state.find_state_call(self)
  if call is None:
    if not ranges and not is_differentiated(functions): return stock_setitem(self, indices, v)
    refuse_outside("setitem", self, ranges, functions)
  if not isinstance(v, Tensor): v = Tensor(v, device=self.device, dtype=self.dtype)
  if self.requires_grad or v.requires_grad: raise NotImplementedError("setitem with requires_grad is not supported")
  entries = expand_ellipsis(list(indices) if isinstance(indices, tuple) else [indices], self.ndim)
  place = f"the vmap scope of {name_ranges(ranges)}" if ranges else "a function that is differentiated" if call is None else "functional_call"
  self.replace(write_entries(self, entries, v, place).cast(self.dtype))

def write_entries(target, entries:list, v, place:str):
  """Returns `target` with `v` at the index `entries`."""
  are_lists = [isinstance(i, (Tensor, list, tuple)) for i in entries]
  if not any(are_lists): return write_view(target, target._getitem(tuple(entries)), v)
  if not all(is_list or isinstance(i, slice) for is_list,i in zip(are_lists, entries)):
    raise VmapScopeError(f"setitem inside {place} cannot mix an int or None with indices by tensors or lists;"
                         " write a slice such as 0:1 for the int")
  # the slices make a view; the index by lists returns the complete new value of that view
  view = target._getitem(tuple(slice(None) if is_list else i for is_list,i in zip(are_lists, entries)))
  return write_view(target, view, view._getitem(tuple(i if is_list else slice(None) for is_list,i in zip(are_lists, entries)), v))

def expand_ellipsis(entries:list, ndim:int) -> list:
  if (at:=next((i for i,e in enumerate(entries) if e is Ellipsis), None)) is None: return entries
  return entries[:at]+[slice(None)]*(ndim-sum(e is not None for e in entries)+1)+entries[at+1:]

def write_view(target, view, v):
  """Returns `target` with its `view` replaced by `v`. The view consists of movement ops: their transpose puts v in place."""
  v = v.cast(view.dtype)._broadcast_to(view.shape)
  if view.uop is target.uop: return v
  # the value in its place, zero elsewhere
  placed, written = (gradient.compute_gradient(view.uop, u, {target.uop})[target.uop] for u in (v.uop, v.ones_like().uop))
  return Tensor(written, device=target.device).cast(dtypes.bool).where(Tensor(placed, device=target.device), target)

def patch(module:ModuleType) -> None:
  global Tensor, upstream, gradient, stock_assign, stock_clone, stock_replace, stock_setitem, stock_bool, stock_rand, stock_cpu_profile
  from tinygrad import gradient
  Tensor, upstream = module.Tensor, module
  with Changes("vmap-ops") as changes:
    note = changes.expect(module, "_metadata_wrapper", "fn")
    # tinygrad wraps each method to record which method made a UOp
    def noted(method): return functools.wraps(method)(note(method)) if TRACEMETA >= 1 else method
    stock_cpu_profile = changes.replace(module, "cpu_profile", cpu_profile)
    changes.add(Tensor, "vmapin", noted(vmapin))
    changes.add(Tensor, "vmapout", noted(vmapout))
    stock_assign = changes.replace(Tensor, "assign", noted(assign))
    stock_replace = changes.replace(Tensor, "replace", noted(replace))
    stock_clone = changes.replace(Tensor, "clone", noted(clone))
    stock_setitem = changes.replace(Tensor, "__setitem__", noted(setitem))
    stock_bool = changes.replace(Tensor, "__bool__", refuse_truth)
    stock_rand = changes.replace(Tensor, "rand", staticmethod(noted(rand)))
  Tensor.rand.__doc__ = stock_rand.__doc__
  _scan.patch(module, noted)
