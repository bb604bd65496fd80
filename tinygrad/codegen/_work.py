"""The cost model: counts what a kernel will execute, from its AST after the target's opts, and predicts how long that takes.

Lowering a kernel to a linear program takes several times as long as optimizing it, and lowering changes no trip count. So ops, threads and chains of
dependent adds are counted in the optimized AST, from the ranges that each UOp is in. tests/fusion compares the counts with real programs,
`bench/cost_model.py` predicted with measured times. Nothing is timed while tinygrad schedules."""
from __future__ import annotations
import contextlib, math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from tinygrad.device import Device
from tinygrad.dtype import AddrSpace, DType, PtrDType, dtypes
from tinygrad.helpers import Context
from tinygrad.renderer import Renderer
from tinygrad.uop.decompositions import get_late_rewrite_patterns
from tinygrad.uop.ops import AxisType, GroupOp, KernelInfo, Ops, PatternMatcher, UOp, graph_rewrite
from tinygrad_overlay import _state
from tinygrad_overlay._state import process

def find_renderer(device:str|tuple[str, ...]) -> Renderer:
  """Returns the renderer whose limits count: the tool's target if it has one, otherwise the (first) device."""
  if _state.find_renderer is not None: return _state.find_renderer()
  return Device[device if isinstance(device, str) else device[0]].renderer

def size(r:UOp) -> int: return int(r.vmax)+1
def count_steps(ranges:Iterable[UOp]) -> int: return math.prod(map(size, ranges))
def count_elements(x:UOp, axes:Iterable[int]) -> int: return math.prod(int(s.vmax) if isinstance(s:=x.shape[i], UOp) else s for i in axes)

# ops that may become several ops of the target
LOWERED = {Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.THREEFRY}
# cost in adds if the target has an instruction: its unit is slower, and large numbers need extra ops
NATIVE_COSTS = {Ops.EXP2: 4, Ops.LOG2: 4, Ops.SIN: 16, Ops.POW: 8}

def op_cost(u:UOp, ren:Renderer) -> int:
  """Returns the cost of an op, in adds."""
  return NATIVE_COSTS.get(u.op, 1) if u.op in ren.code_for_op else op_weight(u, ren)

def op_weight(u:UOp, ren:Renderer) -> int:
  """Returns the number of the target's ops that an op becomes."""
  if u.op is Ops.MULACC: return 2
  if u.op is Ops.POW: return sum(find_weight(op, u.dtype.scalar(), ren) for op in (Ops.EXP2, Ops.LOG2))
  return find_weight(u.op, u.dtype.scalar(), ren) if u.op in LOWERED else 1

# stock's function, but its rules are not compiled: that takes longer than the few rewrites here
late_patterns = FunctionType(get_late_rewrite_patterns.__wrapped__.__code__,
                             {**get_late_rewrite_patterns.__wrapped__.__globals__, "PatternMatcher": partial(PatternMatcher, compiled=False)})

def find_weight(op:Ops, dtype:DType, ren:Renderer) -> int:
  """Counts the ops that codegen makes from an op that the target lacks: a polynomial, or the rounds of a hash. Cached."""
  if op in ren.code_for_op: return 1
  known = process.op_weights
  if (key:=(op, dtype, type(ren).__name__)) not in known:
    sources = tuple(UOp(Ops.DEFINE_VAR, dtype, arg=(name, 0, 1<<30)) for name in ("x", "y")[:2 if op is Ops.THREEFRY else 1])
    lowered = graph_rewrite(UOp(op, dtype, sources), late_patterns(tuple(ren.code_for_op), False), ctx=ren.device)
    known[key] = sum(u.op in GroupOp.ALU for u in lowered.toposort())
  return known[key]

@dataclass(frozen=True)
class Machine:
  """A target's speed to an order of magnitude, in nanoseconds: enough to compare two schedules."""
  units: int         # threads that run at once
  op_ns: float       # one op of one thread, if ops do not wait for each other
  chain_ns: float    # one add that waits for the previous add
  byte_ns: float     # one byte of GLOBAL memory, for the whole machine
  launch_ns: float   # one kernel: its launch, and the wait for the previous kernel

  def predict(self, phases:Iterable[tuple[int, int]], size:int, threads:int) -> float:
    """Returns the nanoseconds of one launch: launch time plus the longer of its phases and its memory traffic (`size` bytes). Each phase (ops of all
    threads, chain) takes the longer of its ops and its chain of adds: the loops of two reduces run one after the other."""
    op_ns = self.op_ns/min(threads, self.units)
    return self.launch_ns + max(sum(max(ops*op_ns, chain*self.chain_ns) for ops,chain in phases), size*self.byte_ns)

def find_machine(ren:Renderer) -> Machine:
  # a GPU of about 1.5 GHz: 16384 threads at once, 10 TFLOP/s, 400 GB/s, 5 us for a launch
  if ren.has_local: return Machine(16384, op_ns=1.6, chain_ns=0.0, byte_ns=0.0025, launch_ns=5000.0)
  # a core of about 3 GHz: 4 float adds a cycle, 4 cycles latency; 20 GB/s; a launch starts the threads
  cores = ren.global_max[0] if ren.has_threads and ren.global_max is not None else 1
  return Machine(cores, op_ns=0.08, chain_ns=1.3, byte_ns=0.05, launch_ns=2000.0)

# *** what a kernel executes

@dataclass(frozen=True)
class Work:
  """The work of one launch. `phases`: of the loop of each outermost reduce, and of the rest, the arithmetic of all threads and the adds of one thread
  that each wait for the previous add; `bytes`: GLOBAL memory it accesses, each element once; `local_bytes`: LOCAL memory of one workgroup."""
  phases: tuple[tuple[int, int], ...]
  bytes: int
  local_bytes: int
  threads: int

  @property
  def ops(self) -> int: return sum(ops for ops,_ in self.phases)
  @property
  def chain(self) -> int: return sum(chain for _,chain in self.phases)

# axes that become threads, and axes that are unrolled: their elements do not wait for each other
THREAD_AXES = {AxisType.GLOBAL, AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE, AxisType.THREAD}
UNROLLED_AXES = {AxisType.UPCAST, AxisType.UNROLL}

def estimate_work(ast:UOp, ren:Renderer) -> Work:
  """Returns the work of a kernel's AST on the target of `ren`; cached."""
  known = process.kernel_works
  if (key:=(ast.key, type(ren).__name__, ren.device)) not in known: known[key] = count_work(optimize(ast, ren), ren)
  return known[key]

def predict_ns(work:Work, ren:Renderer) -> float: return find_machine(ren).predict(work.phases, work.bytes, work.threads)

def is_cheap_again(value:UOp, ren:Renderer) -> bool:
  """Whether computing one element again takes less time than writing and reading it, not counting its reduces."""
  m = find_machine(ren)
  ops = sum(op_weight(u, ren) for u in value.toposort(gate=lambda u: u.op not in {Ops.REDUCE, Ops.INDEX, Ops.RANGE}) if is_arithmetic(u))
  return ops*m.op_ns/m.units < 2*value.dtype.itemsize*m.byte_ns

class CannotLower(Exception):
  """Codegen fails on the kernel; it would also fail when the kernel runs."""

@contextlib.contextmanager
def tried(ast:UOp) -> Iterator[UOp]:
  """Yields the AST for a trial of codegen, with the heuristics instead of BEAM, which would time kernels. Raises CannotLower if codegen fails."""
  try:
    # a kernel with a name takes no number from tinygrad's counter of kernel names
    with Context(BEAM=0, DEBUG=0): yield ast.replace(arg=replace(ast.arg or KernelInfo(), name="estimate"))
  # rules that undo each other raise RuntimeError, codegen's checks AssertionError or any other error
  except Exception as e: raise CannotLower(f"{type(e).__name__}: {e}") from e

def collapse_loads(u:UOp) -> UOp:
  from tinygrad import codegen  # it imports the scheduler, which imports this
  return graph_rewrite(graph_rewrite(u, codegen.pm_mops+codegen.pm_syntactic_sugar, bottom_up=True), codegen.pm_load_collapse)

def optimize(ast:UOp, ren:Renderer) -> UOp:
  """Runs the first stages of stock's lowering, up to the target's opts. Raises CannotLower."""
  from tinygrad import codegen
  stages = ((codegen.pm_split_ranges+codegen.pm_flatten_range, {}), (codegen.sym+codegen.pm_flatten_range, None), (codegen.pm_simplify_ranges, None),
            (codegen.pm_split_store, ren.device))
  with tried(ast) as u:
    u = collapse_loads(u)
    for rules, ctx in stages: u = graph_rewrite(u, rules, ctx=ctx)
    return codegen.apply_opts(u, ren)

def try_to_lower(ast:UOp, ren:Renderer) -> None:
  """Lowers the kernel completely if codegen may give one loop two ends: if a loop is compared with a number (padding), or if several reduces share a
  loop. Other kernels are skipped: lowering takes several times as long as estimating the work. Raises CannotLower."""
  from tinygrad import codegen
  compared = any(u.op is Ops.CMPLT and (u.src[0].op, u.src[1].op) == (Ops.RANGE, Ops.CONST) for u in ast.toposort())
  if not compared and most_of_a_loop(ast, Ops.REDUCE) <= 1: return
  with tried(ast) as u: sink = codegen.full_rewrite_to_sink(u, ren)
  # codegen may not fail on such a loop, but the rendered C does not compile
  if (most:=most_of_a_loop(sink, Ops.END)) > 1: raise CannotLower(f"a loop has {most} ends")

def most_of_a_loop(ast:UOp, op:Ops) -> int:
  """Returns the largest number of ENDs, or REDUCEs, of one loop."""
  return max(Counter(r for u in ast.toposort() if u.op is op for r in u.src[1:] if r.op is Ops.RANGE).values(), default=0)

def count_reduces(ast:UOp) -> Counter[tuple[Ops, tuple[int, ...]]]:
  """Counts the reduces that codegen leaves in a kernel, by op and sizes: a gather's reduce becomes a load's index. Cached. Raises CannotLower."""
  known = process.kernel_reduces
  if (key:=ast.key) not in known:
    if any(map(may_gather, ast.toposort())):
      with tried(ast) as u: ast = collapse_loads(u)
    known[key] = Counter((u.arg, tuple(sorted(map(size, u.src[1:])))) for u in ast.toposort() if u.op is Ops.REDUCE)
  return known[key]

def may_gather(u:UOp) -> bool:
  """Whether a reduce adds elements chosen by a comparison of its loop with a loaded value."""
  if u.op is not Ops.REDUCE or u.arg is not Ops.ADD or len(u.src) != 2: return False
  compared = [x for x in u.src[0].toposort() if x.op in {Ops.CMPNE, Ops.CMPEQ} and x.src[0].dtype != dtypes.bool and u.src[1] in x.ranges]
  return any(y.op is Ops.INDEX for x in compared for y in x.toposort())

# *** counting in an optimized AST

def count_work(ast:UOp, ren:Renderer) -> Work:
  """Counts each op times the sizes of its loops times all threads, even threads that compute the same."""
  nodes, values = ast.toposort(), find_values(ast)
  around = find_loops_around(values)
  threads = count_steps(x for x in nodes if x.op is Ops.RANGE and x.arg[-1] in THREAD_AXES)
  ops, chains = Counter[UOp|None](), Counter[UOp|None]()
  for u in values:
    n, chain = count_op(u, around, ren)
    if n == 0: continue
    ops[phase:=find_phase(u, around)] += n*threads
    chains[phase] += chain
  accessed = sum(u.ptrdtype.size*u.dtype.base.itemsize for u in nodes if u.op is Ops.DEFINE_GLOBAL and isinstance(u.dtype, PtrDType))
  held = int(sum(math.prod(u.shape)*u.dtype.base.itemsize for u in values if u.op is Ops.BUFFERIZE and u.arg.addrspace == AddrSpace.LOCAL))
  for u in (u for u in values if u.op is Ops.REDUCE and count_groups(u) > 1):
    held += count_groups(u)*count_steps(r for r in u.ranges if r.arg[-1] in UNROLLED_AXES|{AxisType.LOCAL})*u.dtype.itemsize
  return Work(tuple((n, chains[phase]) for phase,n in ops.items()), accessed, held, threads)

def find_phase(u:UOp, around:dict[UOp, set[UOp]]) -> UOp|None:
  """Returns the outermost loop of a reduce that computes a value; None if no reduce does."""
  own = UOp.sink(*u.src[1:]).ranges if u.op is Ops.REDUCE else {}
  inside = {*u.ranges, *own}.union(*(around.get(r, ()) for r in (*u.ranges, *own)))
  return min((r for r in inside if r.arg[-1] is AxisType.REDUCE), key=lambda r: r.arg, default=None)

def is_arithmetic(u:UOp) -> bool: return u.op in GroupOp.ALU and u.dtype.scalar() != dtypes.index

def count_op(u:UOp, around:dict[UOp, set[UOp]], ren:Renderer) -> tuple[int, int]:
  """Returns the ops of one thread for a value, and the length of their chain: ops that wait for each other."""
  if u.op is Ops.REDUCE:
    n, steps = count_reduce(u, around)
    # without MAX on the target, a maximum is a comparison and a choice
    return n*(1 if u.arg in ren.code_for_op else 2), steps
  if u.op is Ops.WMMA: return loops(u.ranges, around) * 2*math.prod(u.arg[1])//u.arg[5], 0
  return (loops(u.ranges, around)*op_weight(u, ren) if is_arithmetic(u) else 0), 0

def find_values(ast:UOp) -> list[UOp]:
  """Returns the UOps of the AST that compute values, without address computations."""
  found: dict[UOp, None] = {}
  stack = list(ast.src)
  while stack:
    u = stack.pop()
    if u in found or u.op is Ops.RANGE: continue
    found[u] = None
    stack += u.src[:1] if u.op in {Ops.INDEX, Ops.END, Ops.BUFFERIZE, Ops.REDUCE} else u.src
  return list(found)

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

def loops(ranges:Iterable[UOp], around:dict[UOp, set[UOp]]) -> int:
  """Returns how often a thread computes a value that depends on `ranges`, counting each element of unrolled axes."""
  return count_steps(r for r in set(ranges).union(*(around.get(r, ()) for r in ranges)) if r.arg[-1] not in THREAD_AXES)

def count_groups(reduce:UOp) -> int: return count_steps(r for r in UOp.sink(*reduce.src[1:]).ranges if r.arg[-1] is AxisType.GROUP_REDUCE)

def count_reduce(u:UOp, around:dict[UOp, set[UOp]]) -> tuple[int, int]:
  """Returns the ops of one thread, and how many wait for each other. At the end of a GROUP_REDUCE each thread adds all partial results."""
  steps = loops({**u.src[0].ranges, **UOp.sink(*u.src[1:]).ranges}, around)
  if (groups:=count_groups(u)) > 1: steps += groups*loops(u.ranges, around)
  return steps, steps//count_steps(r for r in u.ranges if r.arg[-1] in UNROLLED_AXES)
