"""Scans in few steps for each element: cumsum, cumprod, cummax and logcumsumexp (patch short-scans).

Stock reduces a window of up to 512 elements for each result of a scan, logcumsumexp all elements: n*n ops. Here the axis is cut into blocks: a window
of one block for each result, a scan of the blocks' totals, and the total of the blocks before added to each result (Blelloch, Prefix Sums and Their
Applications, 1990, section 1.4). It costs more kernels, so it is only done if the cost model says that it pays."""
from __future__ import annotations
import math
from types import ModuleType
from typing import Callable, NamedTuple
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop.ops import Ops, identity_element
from tinygrad_overlay import _state
from tinygrad_overlay._patching import Changes
from tinygrad_overlay.codegen._work import find_machine, find_renderer, find_weight
from tinygrad_overlay.schedule._reuse import MIN_LAUNCHES

# a window of up to 32 elements is unrolled; smaller blocks take fewer ops, but more kernels. WHOLE: the scan of so few totals is one window
BLOCK, WHOLE = 16, 64
# stock's windows of cumsum, cumprod and cummax
STOCK_BLOCK = 256

class Scan(NamedTuple):
  """Tensor methods that combine elements: `reduce` all of a window, `merge` two. `op` has the same identity element."""
  op: Ops
  reduce: str
  merge: str

SCANS = {scan.op:scan for scan in (Scan(Ops.ADD, "sum", "add"), Scan(Ops.MUL, "prod", "mul"), Scan(Ops.MAX, "max", "maximum"))}
LOGSUMEXP = Scan(Ops.MAX, "logsumexp", "logaddexp")

def split_cumalu(self, axis:int, op:Ops):
  def count_steps(n:int) -> float: return n if n <= 2*STOCK_BLOCK else STOCK_BLOCK+(n//STOCK_BLOCK)**2/n
  return run_scan(self, axis, SCANS[op]) if does_pay(self, axis, count_steps, Ops.ADD) else stock_split_cumalu(self, axis, op)

def logcumsumexp(self, axis=0):
  return run_scan(self, axis, LOGSUMEXP) if does_pay(self, axis, float, Ops.EXP2) else stock_logcumsumexp(self, axis)

def does_pay(x, axis:int, count_steps:Callable[[int], float], op:Ops) -> bool:
  """Whether blocks save enough time for their kernels. `count_steps`: length of the axis -> stock's steps for each element; `op` is the costliest op
  of a step. The scan of constants needs no reduce, and an axis of variable length stays as it is."""
  is_fixed = x.ndim > 0 and all(isinstance(s, int) and s > 0 for s in x.shape)
  if "short-scans" not in _state.patches or not is_fixed or x.uop.base.op is Ops.CONST: return False
  if (n:=x.shape[x._resolve_dim(axis)]) <= WHOLE: return False
  ren, elements = find_renderer(x.device), math.prod(x.shape)
  machine, cost = find_machine(ren), find_weight(op, dtypes.float, ren)
  stock, own = (machine.predict([(int(elements*steps*cost), 0)], 0, elements) for steps in (count_steps(n), BLOCK))
  return stock-own > MIN_LAUNCHES*machine.launch_ns

def run_scan(x, axis:int, scan:Scan):
  """(..., n, ...) -> (..., n, ...): the scan along `axis`. A half adds up as a float."""
  is_half = dtypes.is_float(x.dtype) and x.dtype.itemsize < 4
  ret = scan_last((x.float() if is_half else x).transpose(axis, -1), scan).transpose(axis, -1)
  return ret.cast(x.dtype) if is_half else ret

def scan_last(x, scan:Scan):
  """(..., n) -> (..., n): the scan along the last axis."""
  n, block = x.shape[-1], BLOCK if x.shape[-1] > WHOLE else x.shape[-1]
  blocks = ceildiv(n, block)
  rows = pad_last(x, 0, blocks*block-n, scan).unflatten(-1, (blocks, block))
  inside = getattr(pad_last(rows, block-1, 0, scan)._pool((block,)), scan.reduce)(-1)
  if blocks > 1: inside = getattr(inside, scan.merge)(pad_last(scan_last(inside[..., -1], scan), 1, -1, scan).unsqueeze(-1))
  return inside.flatten(-2)[..., :n]

def pad_last(x, before:int, after:int, scan:Scan):
  return x.pad((None,)*(x.ndim-1)+((before, after),), value=identity_element(scan.op, x.dtype))

def patch(module:ModuleType, noted:Callable[[Callable], Callable]) -> None:
  global stock_split_cumalu, stock_logcumsumexp
  with Changes("short-scans") as changes:
    stock_split_cumalu = changes.replace(module.Tensor, "_split_cumalu", noted(split_cumalu))
    stock_logcumsumexp = changes.replace(module.Tensor, "logcumsumexp", noted(logcumsumexp))
  module.Tensor.logcumsumexp.__doc__ = stock_logcumsumexp.__doc__
