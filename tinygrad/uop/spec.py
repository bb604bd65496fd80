"""Allows VMAPIN and VMAPOUT in the tensor graph (patch vmap-ops)."""
from __future__ import annotations
from types import ModuleType
from tinygrad.uop import GroupOp
from tinygrad.uop.ops import PatternMatcher, UPat, UOp
from tinygrad_overlay._patching import Changes
from tinygrad_overlay.uop.ops import is_varg_entry

def is_vmap_op(x:UOp) -> bool: return all(map(is_varg_entry, x.src[1:])) and x.dtype == x.src[0].dtype

vmap_spec = PatternMatcher([(UPat(GroupOp.VMap, name="x"), is_vmap_op)])

def patch(module:ModuleType) -> None:
  with Changes("vmap-ops") as changes:
    # after tensor_spec's first rule, which forbids tags in the tensor graph
    changes.add_rules(module, "tensor_spec", vmap_spec, at=1)
    changes.add_rules(module, "full_spec", vmap_spec, at=0)
