"""A kernel that reduces rows and broadcasts over them has a shape of its own (patch fusion-guard)."""
from __future__ import annotations
from types import ModuleType
from tinygrad.codegen.opt.postrange import Scheduler
from tinygrad_overlay import _state
from tinygrad_overlay._patching import Changes

def hand_coded_optimizations(k:Scheduler) -> Scheduler:
  from tinygrad_overlay.codegen.opt._rows import shape_rows
  if "fusion-guard" in _state.patches and (shaped:=shape_rows(k)) is not None: return shaped
  return stock_hand_coded_optimizations(k)

def patch(module:ModuleType) -> None:
  global stock_hand_coded_optimizations
  with Changes("fusion-guard") as changes:
    stock_hand_coded_optimizations = changes.replace(module, "hand_coded_optimizations", hand_coded_optimizations, "k")
