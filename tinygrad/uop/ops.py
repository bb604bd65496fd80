"""Shapes, checks and ranges of VMAPIN and VMAPOUT (patch vmap-ops, seed 004 sections 2 and 3)."""
from __future__ import annotations
from types import ModuleType
from tinygrad.uop import Ops, GroupOp
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import UOp, AxisType, recursive_property
from tinygrad_overlay._patching import Changes

def describe_varg(varg:tuple) -> str:
  return "("+", ".join(f"RANGE({v.src[0].render()}) {v.render(simplify=False)}" if isinstance(v, UOp) and v.op is Ops.RANGE else
                       v.render(simplify=False) if isinstance(v, UOp) else str(v) for v in varg)+")"

def is_zero(u:UOp) -> bool: return u.op is Ops.CONST and u.arg == 0

def check_varg(name:str, varg:tuple, shape:tuple) -> None:
  """Each entry of a varg is a RANGE (the axis that is mapped) or CONST 0 (an axis that stays). Raises ValueError, naming the shape it is for."""
  for v in varg:
    if not is_varg_entry(v):
      got = f"{v.op} of dtype {v.dtype}" if isinstance(v, UOp) else repr(v)
      raise ValueError(f"{name}: each varg must be a RANGE or CONST 0 of dtypes.index, not {got} in {describe_varg(varg)} for shape {shape}")
    if v.op is Ops.RANGE: check_range(name, v, shape)
  ranges = [v for v in varg if v.op is Ops.RANGE]
  if not ranges: raise ValueError(f"{name}: the varg {describe_varg(varg)} names no RANGE, so it maps no axis of shape {shape}")
  if len(set(ranges)) != len(ranges): raise ValueError(f"{name}: the varg {describe_varg(varg)} names a RANGE twice for shape {shape}")

def is_varg_entry(v) -> bool:
  return isinstance(v, UOp) and v.dtype == dtypes.index and (v.op is Ops.RANGE or is_zero(v))

def check_range(name:str, r:UOp, shape:tuple) -> None:
  if r.arg[-1] not in {AxisType.LOOP, AxisType.OUTER}:
    raise ValueError(f"{name}: RANGE {r.render(simplify=False)} must be LOOP or OUTER, not {r.arg[-1].name}, for shape {shape}")
  if not (r.src[0].op is Ops.CONST and r.src[0].arg > 0):
    raise ValueError(f"{name}: the size of RANGE {r.render(simplify=False)} must be a positive number, not {r.src[0].render()}, for shape {shape}")

def vmapin_shape(u:UOp) -> tuple:
  """(3, 6) with vargs (RANGE(3), 0) -> (6,): the axes with a RANGE go. Raises ValueError for vargs that do not fit."""
  varg, shape = u.src[1:], u.src[0].shape
  check_varg("VMAPIN", varg, shape)
  if len(varg) != len(shape):
    raise ValueError(f"VMAPIN: the input of shape {shape} has {len(shape)} axes, the varg {describe_varg(varg)} has {len(varg)} entries")
  for axis,(size,v) in enumerate(zip(shape, varg)):
    if v.op is Ops.RANGE and v.src[0].arg != size:
      raise ValueError(f"VMAPIN: RANGE {v.render(simplify=False)} has size {v.src[0].arg}, but axis {axis} of the input of shape {shape} has size {size}")
  return tuple(size for size,v in zip(shape, varg) if v.op is Ops.CONST)

def vmapout_shape(u:UOp) -> tuple:
  """(6,) with vargs (RANGE(3), 0) -> (3, 6): an axis comes in where a RANGE stands. Raises ValueError for vargs that do not fit."""
  varg, shape = u.src[1:], u.src[0].shape
  check_varg("VMAPOUT", varg, shape)
  if (stays:=sum(v.op is Ops.CONST for v in varg)) != len(shape):
    raise ValueError(f"VMAPOUT: the inner result of shape {shape} has {len(shape)} axes, the varg {describe_varg(varg)} has {stays} entries CONST 0")
  inner = iter(shape)
  return tuple(v.src[0].arg if v.op is Ops.RANGE else next(inner) for v in varg)

def _shape(self:UOp):
  if self.op in GroupOp.VMap: return vmapin_shape(self) if self.op is Ops.VMAPIN else vmapout_shape(self)
  return stock_shape(self)

def to_varg(name:str, varg) -> tuple:
  if not isinstance(varg, (tuple, list)): raise ValueError(f"{name}: the varg must be a tuple of RANGE and CONST 0, not {describe_varg((varg,))[1:-1]}")
  return tuple(UOp.const(dtypes.index, v) if isinstance(v, int) and not isinstance(v, bool) else v for v in varg)

def vmapin(self:UOp, varg:tuple) -> UOp:
  """Enters a vmap scope: one slice of this value for each step of the RANGEs in `varg`.

  `varg` has one entry for each axis: a RANGE (LOOP or OUTER, as large as the axis) maps the axis, CONST 0 keeps it.
  (3, 6) with (RANGE(3), 0) -> (6,). Raises ValueError when they do not fit, or when the RANGE is open in this value.
  """
  check_varg("VMAPIN", varg:=to_varg("VMAPIN", varg), self.shape)
  device = self.device
  if not isinstance(device, str): raise ValueError(f"VMAPIN: a tensor sharded over {device} cannot enter a vmap scope")
  if device.startswith(("DISK", "TINYFS")):
    raise ValueError(f"VMAPIN: a tensor of shape {self.shape} on {device} cannot enter a vmap scope, copy it to a compute device first")
  if any(isinstance(size, UOp) for size in self.shape):
    raise ValueError(f"VMAPIN: a tensor of symbolic shape {self.shape} cannot enter a vmap scope")
  for v in varg:
    if v.op is Ops.RANGE and v in self.ranges:
      raise ValueError(f"VMAPIN: RANGE {v.render(simplify=False)} is open already in the input of shape {self.shape}; a nested scope needs an axis id of its own")
  return validated(UOp(Ops.VMAPIN, self.dtype, (self,)+varg))

def vmapout(self:UOp, varg:tuple) -> UOp:
  """Leaves a vmap scope: collects the slices of the RANGEs in `varg` along new axes.

  `varg` has one entry for each axis of the result: a RANGE puts its axis there, CONST 0 takes the next axis of this value.
  (6,) with (RANGE(3), 0) -> (3, 6). Raises ValueError when they do not fit.
  """
  check_varg("VMAPOUT", varg:=to_varg("VMAPOUT", varg), self.shape)
  return validated(UOp(Ops.VMAPOUT, self.dtype, (self,)+varg))

def validated(u:UOp) -> UOp:
  # as for movement ops, asking for the shape is the check
  assert u.shape is not None
  return u

def patch(module:ModuleType) -> None:
  global stock_shape
  with Changes("vmap-ops") as changes:
    stock_shape = changes.replace_value(UOp, "_shape", recursive_property, lambda _: recursive_property(_shape)).fxn
    changes.add(UOp, "vmapin", vmapin)
    changes.add(UOp, "vmapout", vmapout)
    # VMAPOUT closes its RANGEs: nothing after it is inside the scope
    changes.add_entry(module, "range_start", Ops.VMAPOUT, 1)
