"""Runs a kernel once for each value of the OUTER ranges it takes as variables (patches vmap-ops, close-ranges; seed 003)."""
from __future__ import annotations
import itertools
from types import ModuleType
from tinygrad.engine.realize import ExecItem
from tinygrad.uop.ops import AxisType, UOp
from tinygrad_overlay import _state
from tinygrad_overlay._patching import replace_function
from tinygrad_overlay.schedule import indexing
from tinygrad_overlay.schedule.rangeify import outer_variable_name

# the variables that an OUTER scope of any schedule gave to its kernels, by name
outer_variables: set[str] = set()

def create_schedule(sched_sink:UOp) -> tuple[list[ExecItem], UOp]:
  """Stock orders the kernels; one inside an OUTER scope stands there once for each step, with the step bound to its variable.

  Each kernel is a loop of its own: all of its steps run before the next kernel starts. Its buffers hold the whole batch.
  """
  items, buffers = stock_create_schedule(sched_sink)
  outer = {outer_variable_name(r) for r in indexing.last_pass.scope_ranges if r.arg[-1] == AxisType.OUTER}
  if outer and "close-ranges" in _state.patches:
    outer_variables.update(outer)
    expanded = [(step, bufs) for item,bufs in zip(items, buffers.src) for step in expand_steps(item, outer)]
    items, buffers = [step for step,_ in expanded], UOp.sink(*[bufs for _,bufs in expanded])
  if _state.observer is not None: _state.observer.schedule_created(items, buffers)
  return items, buffers

def expand_steps(item:ExecItem, outer:set[str]) -> list[ExecItem]:
  variables = [v for v in item.ast.variables() if v.expr in outer]
  steps = itertools.product(*[range(int(v.vmax)+1) for v in variables])
  return [ExecItem(item.ast, [], item.metadata, {**item.fixedvars, **{v.expr:i for v,i in zip(variables, step)}}) for step in steps]

class ObservedCache(dict):
  """The schedule cache, telling the observer which schedule is asked for: one that is found there was captured before."""
  def get(self, key, default=None):
    ret = super().get(key, default)
    if _state.observer is not None: _state.observer.schedule_asked(key, ret is not None)
    return ret

def patch(module:ModuleType) -> None:
  global stock_create_schedule
  stock_create_schedule = replace_function(module, "create_schedule", create_schedule, "sched_sink")
  module.schedule_cache = ObservedCache(module.schedule_cache)
