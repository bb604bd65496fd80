"""Opts for row kernels: kernels that reduce each row and broadcast the result over the row (patch fusion-guard).

The heuristics handle kernels with one reduce and one output for each result. `fuse-broadcast` makes kernels in which every element of a row needs the
row's sum. With a thread for each element, each thread would add up the whole row; with a thread for each row, most threads would be idle.

 - GPU: a row is a workgroup of `lanes` threads. Each lane adds up its part of the row, puts the sum into LOCAL memory, adds up the sums of all lanes,
   and writes its elements. The row is reduced once.
 - CPU: a row is a step of a loop, and the rows are divided among the cores. A sum has `CPU_LANES` accumulators, which do not wait for each other.
"""
from __future__ import annotations
import math
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.postrange import Scheduler
from tinygrad.dtype import AddrSpace
from tinygrad.schedule.indexing import BufferizeOpts
from tinygrad.uop.ops import AxisType, Ops, UOp

# eight floats fill a 256-bit register; four accumulators hide the latency of an add
CPU_LANES = (8, 4)
# a workgroup has at least a warp of threads, and at most the number that every target allows
WARP, MOST_THREADS = 32, 256

def shape_rows(k:Scheduler) -> Scheduler|None:
  """Returns a copy of `k` with row opts; None if it is no row kernel, or its sizes do not allow them."""
  if (found:=find_rows(k)) is None: return None
  rows, cols, reduces = found
  return (shape_workgroups if k.ren.has_local else shape_loops)(k.copy(), rows, cols, reduces)

def find_rows(k:Scheduler) -> tuple[list[UOp], list[UOp], list[UOp]]|None:
  """Returns the ranges of the rows, the ranges along a row, and the reduces; None unless each reduce covers a whole row and the row has elements."""
  reduces = k.reduceops
  if not reduces or len(k.ast.src) != 1 or any(u.op is Ops.BUFFERIZE for u in k.ast.backward_slice): return None
  if not all(is_plain_reduce(u) for u in reduces): return None
  rows, cols = split_outputs(k._output_rngs(), {r for u in reduces for r in u.ranges})
  return (rows, cols, reduces) if cols else None

def split_outputs(outputs:list[UOp], used:set[UOp]) -> tuple[list[UOp], list[UOp]]:
  """Returns the output ranges that the reduces use, and the other output ranges. Both are empty if a size is symbolic, or if a reduce runs inside
  another reduce's loop: a matmul of normalized rows is no row kernel."""
  if not used <= set(outputs) or not all(r.src[0].op is Ops.CONST for r in outputs): return [], []
  return [r for r in outputs if r in used], [r for r in outputs if r not in used]

def is_plain_reduce(u:UOp) -> bool: return all(r.op is Ops.RANGE and r.arg[-1] is AxisType.REDUCE and r.src[0].op is Ops.CONST for r in u.src[1:])
def size(r:UOp) -> int: return int(r.vmax)+1

def split(k:Scheduler, r:UOp, inner:int, inner_range:UOp, outer_type:AxisType) -> tuple[UOp, UOp]:
  """Splits `r`. Returns the outer range, and the expression that replaces `r`."""
  outer = UOp.range(size(r)//inner, next(k.opt_range), outer_type)
  return outer, outer*inner + inner_range

def split_reduce(k:Scheduler, u:UOp, lanes:int, lane:UOp) -> UOp:
  """Splits the innermost range of the reduce `u` over the lanes. The result still depends on `lane`."""
  outer, index = split(k, u.src[-1], lanes, lane, AxisType.REDUCE)
  return u.replace(src=(u.src[0].substitute({u.src[-1]: index}),)+u.src[1:-1]+(outer,))

def in_order(reduces:list[UOp]) -> list[UOp]:
  """Sorts reduces so that each comes after the reduces it needs."""
  return sorted(reduces, key=lambda u: len(u.backward_slice))

def replace_reduces(k:Scheduler, reduces:list[UOp], split_one) -> None:
  done: dict[UOp, UOp] = {}
  for u in in_order(reduces): done[u] = split_one(u.substitute(done) if done else u)
  k.ast = k.ast.substitute(done)

# *** CPU

def shape_loops(k:Scheduler, rows:list[UOp], cols:list[UOp], reduces:list[UOp]) -> Scheduler|None:
  lanes_of = {u: next((n for n in CPU_LANES if size(u.src[-1]) % n == 0 and size(u.src[-1]) > n), 0) for u in reduces}
  # the heuristics unroll a short row completely
  if 0 in lanes_of.values() or math.prod(size(r) for r in cols) < min(CPU_LANES): return None
  lanes = min(lanes_of.values())
  def split_one(u:UOp) -> UOp:
    lane = UOp.range(lanes, next(k.opt_range), AxisType.UNROLL)
    return UOp(Ops.REDUCE, u.dtype, (split_reduce(k, u, lanes, lane), lane), u.arg)
  replace_reduces(k, reduces, split_one)
  if k.ren.has_threads and k.ren.global_max is not None: deal_out(k, rows, k.ren.global_max[0])
  return k

def deal_out(k:Scheduler, rows:list[UOp], most_threads:int) -> None:
  """Divides rows among cores, about 128 K ops for each, like the heuristics; never columns, because each core would reduce the whole row."""
  most = min(most_threads, math.prod(size(r) for r in k.rngs)//(128 << 10))
  for threads in range(most, 1, -1):
    for r in rows:
      if r in k.rngs and size(r) % threads == 0:
        try: k.apply_opt(Opt(OptOps.THREAD, k.rngs.index(r), threads))
        except KernelOptError: continue
        return

# *** threads in groups

def shape_workgroups(k:Scheduler, rows:list[UOp], cols:list[UOp], reduces:list[UOp]) -> Scheduler|None:
  if k.dont_use_locals or not k.ren.has_shared: return None
  col = cols[-1]
  lanes = choose_lanes(math.gcd(size(col), *[size(u.src[-1]) for u in reduces]))
  if lanes is None: return None
  block = choose_block(rows, lanes)
  if sum(lanes*block*u.dtype.itemsize for u in reduces) > k.ren.shared_max: return None
  lane = UOp.range(lanes, next(k.opt_range), AxisType.LOCAL)
  closed = [lane]
  if block > 1:
    row_lane = UOp.range(block, next(k.opt_range), AxisType.LOCAL)
    reduces = block_rows(k, rows[-1], block, row_lane, reduces)
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

def choose_block(rows:list[UOp], lanes:int) -> int:
  """Returns the number of rows of a workgroup: several if they are short, otherwise one."""
  if lanes >= WARP or not rows: return 1
  return next((n for n in (8, 4, 2) if size(rows[-1]) % n == 0 and lanes*n <= MOST_THREADS), 1)

def block_rows(k:Scheduler, row:UOp, block:int, row_lane:UOp, reduces:list[UOp]) -> list[UOp]:
  """Divides the rows among the lanes of a workgroup. Returns the new reduces."""
  _, index = split(k, row, block, row_lane, AxisType.GLOBAL)
  k.ast = k.ast.substitute({row: index})
  return list({u: u.substitute({row: index}) for u in reduces}.values())

def choose_lanes(n:int) -> int|None:
  """The largest power of two that divides n, so that adding up the lanes' parts is no more work than a lane's own part."""
  fits = [lanes for lanes in (256, 128, 64, 32, 16, 8, 4) if n % lanes == 0 and lanes*lanes <= n]
  return fits[0] if fits else None
