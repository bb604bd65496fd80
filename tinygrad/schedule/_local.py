"""LOCAL memory: whether the LOCAL buffers of a fusion fit, and whether they pay (patches local-budget, fusion-guard; seed 002, part 1).

All questions but the last are asked before a LOCAL buffer is made; `find_over_budget` needs the kernels.
"""
from __future__ import annotations
import math
from typing import Iterable
from tinygrad.device import Device
from tinygrad.renderer import Renderer
from tinygrad.uop.ops import UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule._pass import Attempt, MadeKernel
from tinygrad_overlay.schedule._refusals import Refusal

# on any target, one thread needs about one or two launch times for so many steps
MAX_LOCAL_READS = 1 << 14

def find_renderer(device:str|tuple[str, ...]) -> Renderer:
  """Returns the renderer whose limits count: the tool's target if it has one, otherwise the (first) device."""
  if _state.find_renderer is not None: return _state.find_renderer()
  return Device[device if isinstance(device, str) else device[0]].renderer

def count_elements(x:UOp, axes:Iterable[int]) -> int: return math.prod(int(s.vmax) if isinstance(s:=x.shape[i], UOp) else s for i in axes)

def too_large_for_local(x:UOp, axes:list[int]) -> Refusal|None:
  """Refuses a LOCAL buffer of these axes if it does not fit. No axes: not a LOCAL buffer."""
  if "local-budget" not in _state.patches or not axes or x._device is None: return None
  needs, limit = count_elements(x, axes)*x.dtype.itemsize, find_renderer(x._device).shared_max
  return Refusal("local-budget", "local-too-large", {"bytes": needs, "limit": limit}) if needs > limit else None

def too_slow_for_local(x:UOp, axes:list[int], ending:Iterable[UOp], batch:Iterable[UOp]) -> Refusal|None:
  """Refuses a LOCAL buffer that is read so often that its kernel, which gets no opts from the heuristics, is slow on every target.

  `ending`: the ranges that end below x, each of whose steps reads the buffer again. `batch`: the RANGEs of x's scopes; each of their steps fills and
  reads the buffer.
  """
  if "fusion-guard" not in _state.patches or not axes: return None
  steps, read = (math.prod(int(r.vmax)+1 for r in rngs) for rngs in (batch, ending))
  held = steps*count_elements(x, range(len(x.shape)))
  if held*read <= MAX_LOCAL_READS: return None
  return Refusal("fusion-guard", "local-read-often", {"reads": held*read, "limit": MAX_LOCAL_READS})

def find_over_budget(made:Attempt) -> dict[UOp, Refusal]:
  """Returns the largest LOCAL buffers of each kernel, to be made GLOBAL so that the others fit together."""
  refused: dict[UOp, Refusal] = {}
  for k in made.kernels:
    if k.local_bytes: refused.update(choose_global(k, find_renderer(k.device).shared_max))
  return refused

def choose_global(k:MadeKernel, limit:int) -> dict[UOp, Refusal]:
  refused: dict[UOp, Refusal] = {}
  left = total = sum(k.local_bytes.values())
  for x,n in sorted(k.local_bytes.items(), key=lambda item: -item[1]):
    if left <= limit: break
    refused[x] = Refusal("local-budget", "local-over-budget", {"buffers": len(k.local_bytes), "bytes": total, "limit": limit})
    left -= n
  return refused
