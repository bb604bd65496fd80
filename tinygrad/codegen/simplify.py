"""Makes a gather one load (patch whole-gathers, _gather.py), and keeps the store of a row kernel whole (patch fuse-broadcast).

If a comparison cuts a range, stock makes one store for each part of the range on the CPU, all with the same REDUCE ranges: those loops would begin
once and end several times, and codegen never finishes. Stock has that fault in plain sums too; this patch does not change them.
"""
from __future__ import annotations
from types import ModuleType
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat
from tinygrad_overlay import _state
from tinygrad_overlay._patching import Changes
from tinygrad_overlay.codegen._gather import collapse_gather

def cut_store_range(ctx, store:UOp, r:UOp):
  if "fuse-broadcast" in _state.patches and reduces_rows(store): return None
  return stock_cut_store_range(ctx, store, r)

def reduces_rows(store:UOp) -> bool:
  """Whether a REDUCE reads the result of another REDUCE of the same kernel."""
  reduces = [u for u in store.toposort() if u.op is Ops.REDUCE]
  return any(u.op is Ops.REDUCE for reduce in reduces for u in reduce.src[0].toposort())

def patch(module:ModuleType) -> None:
  global stock_cut_store_range
  with Changes("fuse-broadcast") as changes:
    stock_cut_store_range = changes.expect(module, "cut_store_range", "ctx", "store", "r")
    changes.replace_rule(module, "pm_split_store", stock_cut_store_range, cut_store_range)
    changes.by = "whole-gathers"
    rule = (UPat(Ops.REDUCE, arg=Ops.ADD, src=(UPat.var("u"),), allow_any_len=True, name="red"), collapse_gather)
    changes.add_rules(module, "pm_load_collapse", PatternMatcher([rule]))
