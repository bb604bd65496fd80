"""Adds Ops.VMAPIN, Ops.VMAPOUT and GroupOp.VMap (patch vmap-ops)."""
from __future__ import annotations
from types import ModuleType
from tinygrad_overlay._patching import Changes

def make_op(ops:type, name:str, value:int) -> int:
  member = int.__new__(ops, value)
  member._name_, member._value_, member.__objclass__ = name, value, ops
  return member

def add_op(ops:type, name:str, member) -> None:
  # like EnumType does for members of the class body; the attribute first, because EnumType refuses to rebind a member
  member._sort_order_ = len(ops._member_names_)
  setattr(ops, name, member)
  ops._member_names_.append(name)
  ops._member_map_[name] = ops._value2member_map_[member._value_] = member

def patch(module:ModuleType) -> None:
  # the toposort follows the order of Ops, so new members go last, and are added before other modules use GroupOp.All
  largest = max(max(group) for group in module.FastEnum.__subclasses__())
  vmap_ops = {name:make_op(module.Ops, name, largest+1+offset) for offset,name in enumerate(("VMAPIN", "VMAPOUT"))}
  with Changes("vmap-ops") as changes:
    for name,op in vmap_ops.items(): changes.add(module.Ops, name, op, bind=add_op)
    changes.add(module.GroupOp, "VMap", set(vmap_ops.values()))
    changes.replace_value(module.GroupOp, "All", set, lambda every: every | set(vmap_ops.values()))
