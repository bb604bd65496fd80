"""Adds Ops.VMAPIN, Ops.VMAPOUT and GroupOp.VMap (patch vmap-ops, seed 004 section 2)."""
from __future__ import annotations
from types import ModuleType

def add_op(ops:type, name:str, value:int) -> None:
  # what EnumType does for a member it finds in the class body; the attribute goes first, it refuses to rebind a member
  member = int.__new__(ops, value)
  member._name_, member._value_, member.__objclass__, member._sort_order_ = name, value, ops, len(ops._member_names_)
  setattr(ops, name, member)
  ops._member_names_.append(name)
  ops._member_map_[name] = ops._value2member_map_[value] = member

def patch(module:ModuleType) -> None:
  # the order of Ops is the order of the toposort: new members go last, and before anything else looks at GroupOp.All
  largest = max(max(group) for group in module.FastEnum.__subclasses__())
  for offset,name in enumerate(("VMAPIN", "VMAPOUT")): add_op(module.Ops, name, largest+1+offset)
  module.GroupOp.VMap = {module.Ops.VMAPIN, module.Ops.VMAPOUT}
  module.GroupOp.All |= module.GroupOp.VMap
