"""A shape for row kernels: kernels that reduce each row and broadcast the result over the row (patch fusion-guard).

The heuristics handle kernels with one reduce and one output for each result. In a row kernel they would give each element a thread, and each thread
would add up the whole row; or each row a thread, and most threads would be idle.
 - GPU: a row is a workgroup of `lanes` threads. Each lane adds up its part of the row, puts the sum into LOCAL memory, adds up the sums of all lanes,
   and writes its elements. The row is reduced once.
 - CPU: a row is a step of a loop, and the rows are divided among the cores. A sum has `CPU_LANES` accumulators, which do not wait for each other."""
from __future__ import annotations
import math
from types import ModuleType
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.postrange import Scheduler
from tinygrad.dtype import AddrSpace
from tinygrad.schedule.indexing import BufferizeOpts
from tinygrad.uop.ops import AxisType, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay._patching import Changes
from tinygrad_overlay.codegen._work import count_steps, size

# eight floats fill a 256-bit register; four accumulators hide the latency of an add
CPU_LANES = (8, 4)
# a workgroup has at least a warp of threads, and at most the number that every target allows
WARP, MOST_THREADS = 32, 256

def hand_coded_optimizations(k:Scheduler) -> Scheduler:
  if "fusion-guard" in _state.patches and (shaped:=shape_rows(k)) is not None: return shaped
  return stock_hand_coded_optimizations(k)

def shape_rows(k:Scheduler) -> Scheduler|None:
  """Returns a copy of `k` with row opts; None if its sizes do not allow them, or a reduce does not cover a whole row, or a row has no elements."""
  reduces = k.reduceops
  if not reduces or len(k.ast.src) != 1 or any(u.op is Ops.BUFFERIZE for u in k.ast.backward_slice): return None
  outputs, used = k._output_rngs(), {r for u in reduces for r in u.ranges}
  # a reduce inside another reduce's loop uses that loop: a matmul of normalized rows is no row kernel
  if not all(map(is_plain_reduce, reduces)) or not used <= set(outputs) or not all(r.src[0].op is Ops.CONST for r in outputs): return None
  rows, cols = [r for r in outputs if r in used], [r for r in outputs if r not in used]
  if not cols: return None
  return (shape_workgroups if k.ren.has_local else shape_loops)(k.copy(), rows, cols, reduces)

def is_plain_reduce(u:UOp) -> bool: return all(r.op is Ops.RANGE and r.arg[-1] is AxisType.REDUCE and r.src[0].op is Ops.CONST for r in u.src[1:])

def split(k:Scheduler, r:UOp, inner:int, inner_range:UOp, outer_type:AxisType) -> tuple[UOp, UOp]:
  """Splits `r`. Returns the outer range, and the expression that replaces `r`."""
  outer = UOp.range(size(r)//inner, next(k.opt_range), outer_type)
  return outer, outer*inner + inner_range

def split_reduce(k:Scheduler, u:UOp, lanes:int, lane:UOp) -> UOp:
  """Splits the innermost range of the reduce `u` over the lanes. The result still depends on `lane`."""
  outer, index = split(k, u.src[-1], lanes, lane, AxisType.REDUCE)
  return u.replace(src=(u.src[0].substitute({u.src[-1]: index}),)+u.src[1:-1]+(outer,))

def replace_reduces(k:Scheduler, reduces:list[UOp], split_one) -> None:
  done: dict[UOp, UOp] = {}
  # each comes after the reduces it needs
  for u in sorted(reduces, key=lambda u: len(u.backward_slice)): done[u] = split_one(u.substitute(done) if done else u)
  k.ast = k.ast.substitute(done)

def shape_loops(k:Scheduler, rows:list[UOp], cols:list[UOp], reduces:list[UOp]) -> Scheduler|None:
  lanes_of = {u: next((n for n in CPU_LANES if size(u.src[-1]) % n == 0 and size(u.src[-1]) > n), 0) for u in reduces}
  # the heuristics unroll a short row completely
  if 0 in lanes_of.values() or count_steps(cols) < min(CPU_LANES): return None
  lanes = min(lanes_of.values())
  def split_one(u:UOp) -> UOp:
    lane = UOp.range(lanes, next(k.opt_range), AxisType.UNROLL)
    return UOp(Ops.REDUCE, u.dtype, (split_reduce(k, u, lanes, lane), lane), u.arg)
  replace_reduces(k, reduces, split_one)
  if k.ren.has_threads and k.ren.global_max is not None: deal_out(k, rows, k.ren.global_max[0])
  return k

def deal_out(k:Scheduler, rows:list[UOp], most_threads:int) -> None:
  """Divides rows among cores, about 128 K ops for each, like the heuristics; never columns, because each core would reduce the whole row."""
  most = min(most_threads, count_steps(k.rngs)//(128 << 10))
  for threads in range(most, 1, -1):
    for r in rows:
      if r in k.rngs and size(r) % threads == 0:
        try: k.apply_opt(Opt(OptOps.THREAD, k.rngs.index(r), threads))
        except KernelOptError: continue
        return

def shape_workgroups(k:Scheduler, rows:list[UOp], cols:list[UOp], reduces:list[UOp]) -> Scheduler|None:
  if k.dont_use_locals or not k.ren.has_shared: return None
  col = cols[-1]
  # the largest power of two that divides all sizes, so that adding up the lanes' parts is no more work than a lane's own part
  divides = math.gcd(size(col), *[size(u.src[-1]) for u in reduces])
  lanes = next((n for n in (256, 128, 64, 32, 16, 8, 4) if divides % n == 0 and n*n <= divides), None)
  if lanes is None: return None
  # the number of rows of a workgroup: several if they are short
  block = 1
  if lanes < WARP and rows: block = next((n for n in (8, 4, 2) if size(rows[-1]) % n == 0 and lanes*n <= MOST_THREADS), 1)
  if sum(lanes*block*u.dtype.itemsize for u in reduces) > k.ren.shared_max: return None
  lane = UOp.range(lanes, next(k.opt_range), AxisType.LOCAL)
  closed = [lane]
  if block > 1:
    row_lane = UOp.range(block, next(k.opt_range), AxisType.LOCAL)
    _, index = split(k, rows[-1], block, row_lane, AxisType.GLOBAL)
    k.ast = k.ast.substitute({rows[-1]: index})
    reduces = list({u: u.substitute({rows[-1]: index}) for u in reduces}.values())
    closed = [row_lane, lane]
  def split_one(u:UOp) -> UOp:
    parts = UOp.range(lanes, next(k.opt_range), AxisType.REDUCE)
    part = split_reduce(k, u, lanes, lane).bufferize(*closed, arg=BufferizeOpts(lane.arg[0]+len(closed), AddrSpace.LOCAL))
    return UOp(Ops.REDUCE, u.dtype, (part.index(*closed[:-1], parts), parts), u.arg)
  replace_reduces(k, reduces, split_one)
  # each workgroup covers its whole row
  _, index = split(k, col, lanes, lane, AxisType.LOOP)
  k.ast = k.ast.substitute({col: index, **{r: r.replace(arg=r.arg[:-1]+(AxisType.LOOP,)) for r in cols[:-1]}})
  return k

def patch(module:ModuleType) -> None:
  global stock_hand_coded_optimizations
  with Changes("fusion-guard") as changes:
    stock_hand_coded_optimizations = changes.replace(module, "hand_coded_optimizations", hand_coded_optimizations)
