"""Counts what a kernel will execute, from its AST after the target's opts. The cost of that is in _cost.py.

Lowering a kernel to a linear program takes several times as long as optimizing it, and lowering changes no trip count. So ops, threads and chains of
dependent adds are counted in the optimized AST, from the ranges that each UOp is in; tests/fusion compares the counts with real programs.
"""
from __future__ import annotations
import contextlib, math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from tinygrad.dtype import AddrSpace, PtrDType, dtypes
from tinygrad.helpers import Context
from tinygrad.renderer import Renderer
from tinygrad.uop.ops import AxisType, GroupOp, KernelInfo, Ops, UOp, graph_rewrite
from tinygrad_overlay._state import process
from tinygrad_overlay.codegen._cost import find_machine, op_weight

@dataclass(frozen=True)
class Work:
  """The work of one launch. `ops`: arithmetic of all threads; `chain`: adds of one thread that each wait for the previous add; `bytes`: GLOBAL memory
  it accesses, each element once; `local_bytes`: LOCAL memory of one workgroup."""
  ops: int
  chain: int
  bytes: int
  local_bytes: int
  threads: int

# axes that become threads, and axes that are unrolled: their elements do not wait for each other
THREAD_AXES = {AxisType.GLOBAL, AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE, AxisType.THREAD}
UNROLLED_AXES = {AxisType.UPCAST, AxisType.UNROLL}

def estimate_work(ast:UOp, ren:Renderer) -> Work:
  """Returns the work of a kernel's AST on the target of `ren`; cached."""
  key = (ast.key, type(ren).__name__, ren.device)
  known = process.kernel_works
  if key not in known: known[key] = count_work(optimize(ast, ren), ren)
  return known[key]

class CannotLower(Exception):
  """Codegen fails on the kernel; it would also fail when the kernel runs."""

@contextlib.contextmanager
def tried(ast:UOp) -> Iterator[UOp]:
  """Yields the AST for a trial of codegen, with the heuristics instead of BEAM, which would time kernels on the device.

  Raises CannotLower if codegen raises an error.
  """
  try:
    # a kernel with a name takes no number from tinygrad's counter of kernel names
    with Context(BEAM=0, DEBUG=0): yield ast.replace(arg=replace(ast.arg or KernelInfo(), name="estimate"))
  # rules that undo each other raise RuntimeError, codegen's checks AssertionError or any other error
  except Exception as e: raise CannotLower(f"{type(e).__name__}: {e}") from e

def optimize(ast:UOp, ren:Renderer) -> UOp:
  """Runs the first stages of stock's lowering, up to the target's opts. Raises CannotLower."""
  from tinygrad import codegen  # it imports the scheduler, which imports this
  stages = ((codegen.pm_mops+codegen.pm_syntactic_sugar, None, True), (codegen.pm_load_collapse, None, False),
            (codegen.pm_split_ranges+codegen.pm_flatten_range, {}, False), (codegen.sym+codegen.pm_flatten_range, None, False),
            (codegen.pm_simplify_ranges, None, False), (codegen.pm_split_store, ren.device, False))
  with tried(ast) as u:
    for rules, ctx, bottom_up in stages: u = graph_rewrite(u, rules, ctx=ctx, bottom_up=bottom_up)
    return codegen.apply_opts(u, ren)

def try_to_lower(ast:UOp, ren:Renderer) -> None:
  """Lowers the kernel completely if codegen may give one loop two ends: if a loop is compared with a number (padding), or if several reduces share a
  loop. Other kernels are skipped: lowering takes several times as long as estimating the work. Raises CannotLower."""
  from tinygrad import codegen
  if not (is_loop_compared(ast) or is_loop_shared(ast)): return
  with tried(ast) as u: sink = codegen.full_rewrite_to_sink(u, ren)
  most = max(count_loops(sink, Ops.END).values(), default=0)
  # codegen may not fail on such a loop, but the rendered C does not compile
  if most > 1: raise CannotLower(f"a loop has {most} ends")

def count_reduces(ast:UOp) -> Counter[tuple[Ops, tuple[int, ...]]]:
  """Counts the reduces that codegen leaves in a kernel, by op and sizes: a gather's reduce becomes the index of a load. Cached."""
  known = process.kernel_reduces
  if (key:=ast.key) not in known:
    if any(map(may_gather, ast.toposort())):
      from tinygrad import codegen  # it imports the scheduler, which imports this
      with tried(ast) as u:
        for rules, bottom_up in ((codegen.pm_mops+codegen.pm_syntactic_sugar, True), (codegen.pm_load_collapse, False)):
          u = graph_rewrite(u, rules, bottom_up=bottom_up)
        ast = u
    known[key] = Counter((u.arg, tuple(sorted(map(size, u.src[1:])))) for u in ast.toposort() if u.op is Ops.REDUCE)
  return known[key]

def may_gather(u:UOp) -> bool:
  """Whether a reduce adds elements chosen by a comparison of its loop with a loaded value."""
  if u.op is not Ops.REDUCE or u.arg is not Ops.ADD or len(u.src) != 2: return False
  compared = [x for x in u.src[0].toposort() if x.op in {Ops.CMPNE, Ops.CMPEQ} and x.src[0].dtype != dtypes.bool and u.src[1] in x.ranges]
  return any(y.op is Ops.INDEX for x in compared for y in x.toposort())

def is_loop_compared(ast:UOp) -> bool:
  return any(u.op is Ops.CMPLT and (u.src[0].op, u.src[1].op) == (Ops.RANGE, Ops.CONST) for u in ast.toposort())

def is_loop_shared(ast:UOp) -> bool: return any(n > 1 for n in count_loops(ast, Ops.REDUCE).values())

def count_loops(ast:UOp, op:Ops) -> Counter[UOp]:
  """Returns the number of ENDs, or REDUCEs, of each loop."""
  return Counter(r for u in ast.toposort() if u.op is op for r in u.src[1:] if r.op is Ops.RANGE)

def count_work(ast:UOp, ren:Renderer) -> Work:
  """Counts the optimized AST: each op times the sizes of its loops times all threads, even threads that compute the same."""
  values = find_values(ast)
  around = find_loops_around(values)
  threads = math.prod(size(r) for r in {x for x in ast.toposort() if x.op is Ops.RANGE and x.arg[-1] in THREAD_AXES})
  counted = [count_op(u, around, ren) for u in values]
  return Work(sum(ops for ops,_ in counted)*threads, sum(chain for _,chain in counted), count_bytes(ast), count_local_bytes(values), threads)

def count_op(u:UOp, around:dict[UOp, set[UOp]], ren:Renderer) -> tuple[int, int]:
  """Returns the ops of one thread for a value, and the length of their chain: ops that wait for each other."""
  if u.op is Ops.REDUCE:
    n, steps = count_reduce(u, around)
    # without MAX on the target, a maximum is a comparison and a choice
    return n*(1 if u.arg in ren.code_for_op else 2), steps
  if u.op is Ops.WMMA: return loops(u.ranges, around) * 2*math.prod(u.arg[1])//u.arg[5], 0
  if u.op in GroupOp.ALU and u.dtype.scalar() != dtypes.index: return loops(u.ranges, around) * op_weight(u, ren), 0
  return 0, 0

def count_local_bytes(values:list[UOp]) -> int:
  held = sum(math.prod(u.shape)*u.dtype.base.itemsize for u in values if is_local(u))
  return int(held) + sum(group_bytes(u) for u in values if u.op is Ops.REDUCE)

def find_values(ast:UOp) -> list[UOp]:
  """Returns the UOps of the AST that compute values, without address computations."""
  found: dict[UOp, None] = {}
  stack = list(ast.src)
  while stack:
    u = stack.pop()
    if u in found or u.op is Ops.RANGE: continue
    found[u] = None
    if u.op is Ops.INDEX: stack += u.src[:1]
    elif u.op in {Ops.END, Ops.BUFFERIZE}: stack.append(u.src[0])
    elif u.op is Ops.REDUCE: stack.append(u.src[0])
    else: stack += u.src
  return list(found)

def size(r:UOp) -> int: return int(r.vmax)+1
def is_loop(r:UOp) -> bool: return r.arg[-1] not in THREAD_AXES|UNROLLED_AXES

def find_loops_around(values:list[UOp]) -> dict[UOp, set[UOp]]:
  """Returns loop -> itself and the loops around it. The loops of one store or reduce are nested in the order of their RANGEs, so a value in an inner
  loop runs in the outer loops too, whether it depends on them or not."""
  around: dict[UOp, set[UOp]] = {}
  nests: dict[UOp, tuple[list[UOp], UOp]] = {}
  for u in values:
    if u.op not in {Ops.END, Ops.REDUCE, Ops.BUFFERIZE}: continue
    nest = sorted((r for r in UOp.sink(*u.src[1:]).ranges if is_loop(r)), key=lambda r: r.arg)
    for i,r in enumerate(nest): nests[r] = (nest[:i+1], u)
  def enclose(r:UOp) -> set[UOp]:
    if r not in around:
      outer, owner = nests.get(r, ([r], None))
      around[r] = set(outer).union(*(enclose(x) for x in (owner.ranges if owner is not None else ()) if is_loop(x) and x not in outer))
    return around[r]
  for r in nests: enclose(r)
  return around

def loops(ranges, around:dict[UOp, set[UOp]]) -> int:
  """Returns how often a thread computes a value that depends on `ranges`, counting each element of unrolled axes."""
  return math.prod(size(r) for r in set(ranges).union(*(around.get(r, ()) for r in ranges)) if r.arg[-1] not in THREAD_AXES)
def is_local(u:UOp) -> bool: return u.op is Ops.BUFFERIZE and u.arg.addrspace == AddrSpace.LOCAL

def count_reduce(u:UOp, around:dict[UOp, set[UOp]]) -> tuple[int, int]:
  """Returns the ops of one thread, and how many wait for each other. At the end of a GROUP_REDUCE each thread adds all partial results."""
  inside = {**u.src[0].ranges, **UOp.sink(*u.src[1:]).ranges}
  side_by_side = math.prod(size(r) for r in u.ranges if r.arg[-1] in UNROLLED_AXES)
  groups = math.prod(size(r) for r in UOp.sink(*u.src[1:]).ranges if r.arg[-1] is AxisType.GROUP_REDUCE)
  steps = loops(inside, around) + (groups*loops(u.ranges, around) if groups > 1 else 0)
  return steps, steps//side_by_side

def group_bytes(u:UOp) -> int:
  groups = math.prod(size(r) for r in UOp.sink(*u.src[1:]).ranges if r.arg[-1] is AxisType.GROUP_REDUCE)
  if groups == 1: return 0
  beside = math.prod(size(r) for r in u.ranges if r.arg[-1] in UNROLLED_AXES|{AxisType.LOCAL})
  return groups*beside*u.dtype.itemsize

def count_bytes(ast:UOp) -> int:
  return sum(u.ptrdtype.size*u.dtype.base.itemsize for u in ast.toposort() if u.op is Ops.DEFINE_GLOBAL and isinstance(u.dtype, PtrDType))

# *** how long that takes

def predict_ns(work:Work, ren:Renderer) -> float: return find_machine(ren).predict(work.ops, work.chain, work.bytes, work.threads)

def is_cheap_again(value:UOp, ren:Renderer) -> bool:
  """Whether computing one element again takes less time than writing and reading it, not counting its reduces."""
  m = find_machine(ren)
  gate = lambda u: u.op not in {Ops.REDUCE, Ops.INDEX, Ops.RANGE}
  ops = sum(op_weight(u, ren) for u in value.toposort(gate=gate) if u.op in GroupOp.ALU and u.dtype.scalar() != dtypes.index)
  return ops*m.op_ns/m.units < 2*value.dtype.itemsize*m.byte_ns
