"""Scans in few steps for each element: cumsum, cumprod, cummax and logcumsumexp (patch short-scans).

Stock reduces a window of up to 512 elements for each result of a scan, logcumsumexp all elements: n*n ops. Here the axis is cut into blocks: a window
of one block for each result, a scan of the blocks' totals, and the total of the blocks before added to each result (Blelloch, Prefix Sums and Their
Applications, 1990, section 1.4). It costs more kernels, so it is only done if the cost model says that it pays."""
from __future__ import annotations
import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Callable
from tinygrad.dtype import ConstType, DType, dtypes
from tinygrad.uop.ops import Ops, identity_element
from tinygrad_overlay import _state
from tinygrad_overlay._patching import Changes
from tinygrad_overlay.codegen._work import find_machine, find_renderer, find_weight
from tinygrad_overlay.schedule._reuse import MIN_GAIN, MIN_LAUNCHES

# a window of up to 32 elements is unrolled; smaller blocks take fewer ops, but more kernels. WHOLE: the scan of so few totals is one window
BLOCK, WHOLE = 16, 64
# stock's windows of cumsum, cumprod and cummax
STOCK_BLOCK = 256

@dataclass(frozen=True)
class Scan:
  """How elements are combined: all of a window by the Tensor method `reduce`, two by `merge`; combining with `identity` changes nothing."""
  reduce: str
  merge: Callable[[Any, Any], Any]
  identity: Callable[[DType], ConstType]

def reduce_by(op:Ops, reduce:str, merge:Callable[[Any, Any], Any]) -> Scan: return Scan(reduce, merge, lambda dtype: identity_element(op, dtype))

SCANS = {Ops.ADD: reduce_by(Ops.ADD, "sum", lambda a, b: a+b), Ops.MUL: reduce_by(Ops.MUL, "prod", lambda a, b: a*b),
         Ops.MAX: reduce_by(Ops.MAX, "max", lambda a, b: a.maximum(b))}
LOGSUMEXP = Scan("logsumexp", lambda a, b: a.logaddexp(b), dtypes.min)

def split_cumalu(self, axis:int, op:Ops):
  n = count_along(self, axis)
  if n is not None and does_pay(self, n, n if n <= 2*STOCK_BLOCK else STOCK_BLOCK+(n//STOCK_BLOCK)**2/n, 1): return run_scan(self, axis, SCANS[op])
  return stock_split_cumalu(self, axis, op)

def logcumsumexp(self, axis=0):
  n = count_along(self, axis)
  if n is not None and does_pay(self, n, n, find_weight(Ops.EXP2, dtypes.float, find_renderer(self.device))): return run_scan(self, axis, LOGSUMEXP)
  return stock_logcumsumexp(self, axis)

def count_along(x, axis:int) -> int|None:
  """Returns the size of an axis; None if the scan stays as it is: a size is a variable, or the values are constants, whose scan needs no reduce."""
  is_fixed = x.ndim > 0 and all(isinstance(s, int) and s > 0 for s in x.shape)
  if "short-scans" not in _state.patches or not is_fixed or x.uop.base.op is Ops.CONST: return None
  return x.shape[axis]

def does_pay(x, n:int, stock_steps:float, cost:int) -> bool:
  """Whether blocks save enough time for their kernels, if stock takes so many steps for each element, and a step has the cost of so many adds."""
  if n <= WHOLE: return False
  machine, elements = find_machine(find_renderer(x.device)), math.prod(x.shape)
  before, after = (elements*steps*cost*machine.op_ns/min(machine.units, elements) for steps in (stock_steps, BLOCK))
  return before-after > max(MIN_GAIN*before, MIN_LAUNCHES*machine.launch_ns)

def run_scan(x, axis:int, scan:Scan):
  """(..., n, ...) -> (..., n, ...): the scan along `axis`. A half adds up as a float."""
  is_half = dtypes.is_float(x.dtype) and x.dtype.itemsize < 4
  ret = scan_last((x.float() if is_half else x).transpose(axis, -1), scan).transpose(axis, -1)
  return ret.cast(x.dtype) if is_half else ret

def scan_last(x, scan:Scan):
  """(..., n) -> (..., n): the scan along the last axis."""
  n, block = x.shape[-1], BLOCK if x.shape[-1] > WHOLE else x.shape[-1]
  blocks = -(-n//block)
  rows = pad_last(x, 0, blocks*block-n, scan).unflatten(-1, (blocks, block))
  inside = getattr(pad_last(rows, block-1, 0, scan)._pool((block,)), scan.reduce)(-1)
  if blocks > 1: inside = scan.merge(inside, pad_last(scan_last(inside[..., -1], scan), 1, -1, scan).unsqueeze(-1))
  return inside.flatten(-2)[..., :n]

def pad_last(x, before:int, after:int, scan:Scan): return x.pad((None,)*(x.ndim-1)+((before, after),), value=scan.identity(x.dtype))

def patch(module:ModuleType, noted:Callable[[Callable], Callable]) -> None:
  global stock_split_cumalu, stock_logcumsumexp
  with Changes("short-scans") as changes:
    stock_split_cumalu = changes.replace(module.Tensor, "_split_cumalu", noted(split_cumalu))
    stock_logcumsumexp = changes.replace(module.Tensor, "logcumsumexp", noted(logcumsumexp))
  module.Tensor.logcumsumexp.__doc__ = stock_logcumsumexp.__doc__
