"""Keeps the steps of an OUTER scope out of the JIT's graphs (patches vmap-ops, close-ranges)."""
from __future__ import annotations
import itertools
from types import ModuleType
from tinygrad.engine.realize import ExecItem
from tinygrad_overlay._patching import Changes
from tinygrad_overlay._state import process

def apply_graph_to_jit(jit_cache:list[ExecItem], input_buffers, var_vals, max_batch_size=0) -> list[ExecItem]:
  """Stock batches kernels into graphs with one value for each variable; steps have different values, so they run one by one."""
  runs = itertools.groupby(jit_cache, key=lambda item: any(name in process.outer_variables for name in item.fixedvars))
  return [item for are_steps,run in runs for item in (run if are_steps else stock_apply_graph_to_jit(list(run), input_buffers, var_vals, max_batch_size))]

def patch(module:ModuleType) -> None:
  global stock_apply_graph_to_jit
  with Changes("vmap-ops, close-ranges") as changes:
    stock_apply_graph_to_jit = changes.replace(module, "apply_graph_to_jit", apply_graph_to_jit)
