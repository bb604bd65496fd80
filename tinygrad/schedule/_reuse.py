"""Stores a value that its readers compute again and again, if storing it once is cheaper (patch realize-reused).

Stock removes the buffer of a value without reduces that reads few buffers (rangeify.py:156-213), however often it is then computed. This module
counts that on the result of an attempt: the loops of each kernel and the ranges that each value depends on. A roofline (codegen/_work.py) compares the
kernels with the kernels there would be if the value had a buffer: one more kernel, and loads instead of computations."""
from __future__ import annotations
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Iterable, NamedTuple
from tinygrad.dtype import dtypes
from tinygrad.renderer import Renderer
from tinygrad.uop.ops import AxisType, GroupOp, Ops, UOp
from tinygrad_overlay.codegen._work import CannotLower, count_elements, count_reduces, count_steps, find_machine, find_renderer, op_cost, size
from tinygrad_overlay.schedule._pass import IS_BUFFER, Attempt, MadeKernel, Ranges
from tinygrad_overlay.schedule._refusals import Refusal

# opts unroll up to two output loops; unrolled steps share values that do not depend on these loops
UNROLLED_STEPS, UNROLLED_LOOPS = 4, 2
# the model is not exact: less than a quarter is no certain gain. Another kernel must be scheduled, compiled and launched: it must save ten launches
MIN_GAIN, MIN_LAUNCHES = 0.25, 10
# the peak of memory may grow by a tenth, or by anything if a fifth of the time is saved
MAX_PEAK, WORTH_MEMORY = 1.1, 0.2

class Env:
  """Maps the ranges that an inlined value closes to its index, in the kernel's loops. Readers with one index share an Env, and compute the value once;
  a value read at two indices has two Envs."""
  def __init__(self, index:dict[UOp, UOp]):
    self.index = index
    self.loops = {r:frozenset(i.ranges) for r,i in index.items()}
    self.written: dict[UOp, UOp] = {}  # expression -> the same in the kernel's loops

  def write(self, e:UOp) -> UOp:
    """Returns an expression in the kernel's loops."""
    if self.index.keys().isdisjoint(e.ranges): return e
    # not by `substitute`, which would not end: the index of a scope's range may have this range in it
    for u in e.toposort():
      if u not in self.written: self.written[u] = self.index[u] if u in self.index else u.replace(src=tuple(self.written[s] for s in u.src))
    return self.written[e]

  def find_loops(self, exprs:Iterable[UOp]) -> frozenset[UOp]:
    """Returns the kernel's loops that the expressions depend on."""
    found: set[UOp] = set()
    for e in exprs:
      for r in e.ranges: found.update(self.loops.get(r, (r,)))
    return frozenset(found)

class Visit(NamedTuple):
  """A value in a kernel. `around`: the loops around it, outermost first. `is_inlined`: it is part of a value without a buffer."""
  x: UOp
  env: Env
  around: Ranges
  is_inlined: bool

@dataclass
class Region:
  """One kernel: its number of ops, and the buffers it reads."""
  ops: int = 0
  inlined: Counter[UOp] = field(default_factory=Counter)  # value that a reader computes again -> how often, for all its indices
  read: set[UOp] = field(default_factory=set)

def in_order(ranges:Iterable[UOp]) -> Ranges: return tuple(sorted(ranges, key=lambda r: r.arg))

class Reuse:
  """The regions of an attempt's kernels, and the regions they would have with more buffers."""
  def __init__(self, made:Attempt, ren:Renderer):
    self.made, self.ren, self.machine = made, ren, find_machine(ren)
    self.least_ns = MIN_LAUNCHES*self.machine.launch_ns
    self.range_map, self.realize_map = made.ctx.range_map, made.ctx.realize_map
    self.reduces = {k.node: find_reduces(k) for k in made.kernels if k.node is not None and k.node in self.range_map}
    self.stored = set(self.reduces)  # nodes with a buffer
    self.found: dict[UOp, Refusal] = {}  # nodes that should have one, with the numbers
    self.regions: dict[UOp, Region] = {}  # node of a kernel -> its region
    self.envs: dict[frozenset, Env] = {}

  def find_env(self, index:dict[UOp, UOp]) -> Env:
    if (key:=frozenset(index.items())) not in self.envs: self.envs[key] = Env(index)
    return self.envs[key]

  def enter(self, env:Env, own:Ranges, at:Ranges) -> Env:
    """Returns the Env of an inlined value whose ranges are `own`, and which its reader reads at the index `at`. Nothing in the value depends on other
    ranges, except on those of scopes."""
    scopes = {r:i for r,i in env.index.items() if r in self.made.scope_ranges}
    return self.find_env({**scopes, **{r:env.write(i) for r,i in zip(own, at) if r is not i and r.op is Ops.RANGE}})

  def find_region(self, root:UOp) -> Region:
    if root not in self.regions: self.regions[root] = self.walk(root)
    return self.regions[root]

  def walk(self, root:UOp) -> Region:
    """Walks from a kernel's buffer down to the buffers it reads."""
    region, left = Region(), Counter(self.reduces.get(root, ()))
    stack, seen = [Visit(root, self.find_env({}), self.find_closed(root), False)], set[Visit]()
    while stack:
      visit = stack.pop()
      if visit.x not in self.range_map or visit in seen: continue
      seen.add(visit)
      if visit.x.op in GroupOp.ALU: region.ops += op_cost(visit.x, self.ren)*count_executed(self.find_depending(visit), visit.around, self.ren)
      if visit.x.op is Ops.REDUCE_AXIS: visit = self.enter_reduce(visit, region, left)
      for s in visit.x.src:
        if s.dtype.scalar() == dtypes.index: continue
        if s in self.stored or s.op in IS_BUFFER: region.read.add(s)
        elif s not in self.realize_map or s not in self.range_map: stack.append(visit._replace(x=s))
        else:
          own = self.range_map[s].outs
          inlined = visit._replace(x=s, env=self.enter(visit.env, own, self.range_map[visit.x].ins), is_inlined=True)
          if inlined not in seen: region.inlined[s] += count_executed(self.find_depending(inlined), visit.around, self.ren)
          stack.append(inlined)
    return region

  def enter_reduce(self, visit:Visit, region:Region, left:Counter[tuple]) -> Visit:
    """Enters the loops of a reduce. A reduce of an inlined value has no loops, and neither has a reduce that is not among the kernel's reduces that
    are `left`: it became an index, like an arange."""
    ranges = in_order(UOp.sink(*[self.range_map[visit.x].ins[i] for i in visit.x.arg[1]]).ranges)
    if visit.is_inlined or not left[shape:=reduce_shape(visit.x)]:
      return visit._replace(env=self.find_env({**visit.env.index, **dict.fromkeys(ranges, UOp.const(dtypes.index, 0))}))
    left[shape] -= 1
    depends = self.find_depending(visit)
    # on a CPU the reduce runs inside the loops that it depends on; on a GPU these loops are threads, and each thread runs the whole reduce
    around = (visit.around if self.ren.has_local else visit.around[:find_inner(depends, visit.around)+1])+ranges
    region.ops += count_executed(depends.union(ranges), around, self.ren)
    return visit._replace(around=around)

  def find_depending(self, visit:Visit) -> frozenset[UOp]:
    _, outs, ambient = self.range_map[visit.x]
    return visit.env.find_loops((*outs, *ambient.values()))

  def find_closed(self, x:UOp) -> Ranges:
    """Returns the ranges of a value's buffer, with the batch if it is in a scope. Axes along which the value is expanded are not stored
    (rangeify.py:130)."""
    closed, u = UOp.sink(*self.range_map[x].outs, *self.made.ctx.vmap_map.get(x, ())), x
    while u.op in GroupOp.Movement and u in self.range_map:
      closed, u = UOp.sink(*self.range_map[u].ins, *self.range_map[u].ambient.values()), u.src[0]
    return in_order(closed.ranges)

  def count_all(self, x:UOp) -> int:
    """Returns the number of elements of a value's buffer."""
    return count_steps(self.find_closed(x)) if x in self.range_map else count_elements(x, range(len(x.shape)))

  def count_bytes(self, x:UOp) -> int: return self.count_all(x)*x.dtype.itemsize if x._shape is not None else 0

  def count_read(self, region:Region) -> int: return sum(map(self.count_bytes, region.read))

  def predict(self, roots:Iterable[UOp]) -> float:
    regions = [(root, self.find_region(root)) for root in roots]
    return sum(self.machine.predict([(r.ops, 0)], self.count_bytes(root)+self.count_read(r), self.count_all(root)) for root,r in regions)

  def choose(self) -> dict[UOp, Refusal]:
    """Stores values that pay, nearest to the outputs first; then takes back values that no longer pay because of the others."""
    for x in reversed(self.made.toposort):
      # stock must have removed the buffer of x; computing a value of a row twice pays (_policy.py)
      if x not in self.made.inlined or x in self.stored or x in self.made.fused or x.op is Ops.THREEFRY: continue
      if roots:=[root for root in self.computed_in.get(x, ()) if x in self.find_region(root).inlined]: self.try_to_store(x, roots)
    for x in [x for x in self.made.toposort if x in self.found]: self.try_to_take_back(x)
    if self.found: self.fit_memory()
    return self.found

  def try_to_store(self, x:UOp, roots:list[UOp]) -> None:
    times, elements = sum(self.find_region(root).inlined[x] for root in roots), self.count_all(x)
    if times <= elements: return
    least = max(MIN_GAIN*(before:=self.predict(roots)), self.least_ns)
    # even the largest possible gain is too small: all its work but that of one evaluation, and all reads below it
    if before <= least: return
    own, units = self.walk(x), min(self.machine.units, min(map(self.count_all, roots)))
    if (times/elements-1)*own.ops*self.machine.op_ns/units+len(roots)*self.count_read(own)*self.machine.byte_ns < least: return
    known = {root: self.regions.pop(root) for root in roots}
    self.stored.add(x)
    after = self.predict([*roots, x])
    if before-after < least:
      self.stored.discard(x)
      del self.regions[x]
      self.regions.update(known)
      return
    self.found[x] = Refusal("realize-reused", "stored-once", {
      "evaluations": times, "elements": elements, "kernels": len(roots), "bytes": self.count_bytes(x), "ns": after, "stock_ns": before,
      "target": type(self.ren).__name__.removesuffix("Renderer")})
    for y in self.regions[x].inlined: self.computed_in.setdefault(y, []).append(x)

  def try_to_take_back(self, x:UOp) -> None:
    roots = [root for root in self.regions if root is not x and x in self.regions[root].read]
    before = self.predict([*roots, x])
    known = {root: self.regions.pop(root) for root in roots}
    self.stored.discard(x)
    if self.predict(roots) <= before:
      del self.found[x], self.regions[x]
      return
    self.stored.add(x)
    self.regions.update(known)

  @cached_property
  def computed_in(self) -> dict[UOp, list[UOp]]:
    """Returns value -> the kernels that compute it again."""
    found: dict[UOp, list[UOp]] = {}
    for root in self.stored:
      for x in self.find_region(root).inlined: found.setdefault(x, []).append(root)
    return found

  def fit_memory(self) -> None:
    """Takes back the values that save too little time for their bytes."""
    saved = {x: float(r.numbers["stock_ns"])-float(r.numbers["ns"]) for x,r in self.found.items()}
    if sum(saved.values()) >= WORTH_MEMORY*(self.predict(self.stored)+sum(saved.values())): return
    most = MAX_PEAK*(peak:=self.find_peak(self.stored-saved.keys()))
    for x in sorted(saved, key=lambda x: saved[x]/self.count_bytes(x)):
      if (needed:=self.find_peak(self.stored)) <= most: break
      self.stored.discard(x)
      self.found[x] = replace(self.found[x], rule="over-memory", numbers={**self.found[x].numbers, "peak": needed, "stock_peak": peak})

  def find_peak(self, stored:set[UOp]) -> int:
    """Returns the most bytes of buffers that are alive at once, if these nodes have kernels, and each buffer is free after its last reader."""
    kernels = [x for x in self.made.toposort if x in stored]
    last: dict[UOp, int] = {}  # node -> the kernel that reads its buffer last
    for i,root in enumerate(kernels):
      seen, stack = {root}, list(root.src)
      while stack:
        if (u:=stack.pop()) in seen: continue
        seen.add(u)
        if u in stored: last[u] = i
        elif u.op not in IS_BUFFER: stack += u.src
    # the graph's SINK is its last node
    for x in next(reversed(self.made.toposort)).src: last[x] = len(kernels)
    live = peak = 0
    freed: dict[int, int] = {}
    for i,x in enumerate(kernels):
      live += (size:=self.count_bytes(x))
      peak = max(peak, live)
      if x in last: freed[last[x]] = freed.get(last[x], 0)+size
      live -= freed.pop(i, 0)
    return peak

def find_reused(made:Attempt) -> dict[UOp, Refusal]:
  """Returns the values that should have a buffer, with the numbers: rule `stored-once`, or `over-memory` if they are not worth it."""
  if not made.inlined or not made.kernels: return {}
  return Reuse(made, find_renderer(made.kernels[0].device)).choose()

def find_reduces(k:MadeKernel) -> Counter[tuple]:
  """Counts the reduces of a kernel that did not become an index; none if codegen fails, because the device reports that."""
  try: return count_reduces(k.ast)
  except CannotLower: return Counter()

def reduce_shape(x:UOp) -> tuple:
  return x.arg[0], tuple(sorted(n for i in x.arg[1] if (n:=count_elements(x.src[0], (i,))) > 1))

def find_inner(depends:frozenset[UOp], around:Ranges) -> int: return max((i for i,r in enumerate(around) if r in depends), default=-1)

def count_executed(depends:frozenset[UOp], around:Ranges, ren:Renderer) -> int:
  """Returns how often a value is computed: codegen puts it into the innermost loop that it depends on, so it runs in all loops around that loop too.
  On a target with many threads the output loops are threads, and each computes it."""
  inner = find_inner(depends, around)
  runs = [r for i,r in enumerate(around) if i <= inner or (ren.has_local and r.arg[-1] is AxisType.LOOP)]
  shared = [min(size(r), UNROLLED_STEPS) for r in runs if r not in depends and r.arg[-1] is AxisType.LOOP][:UNROLLED_LOOPS]
  return count_steps(runs)//math.prod(shared)
