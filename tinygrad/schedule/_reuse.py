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

class Step(NamedTuple):
  """A visited value: its own ops, the values below it by their steps' numbers, and the buffers it reads."""
  x: UOp|None
  ops: int
  below: list[int]
  read: list[UOp]

@dataclass
class Region:
  """One kernel: its number of ops, and the buffers it reads. `steps`: how the walk found them, its root first."""
  ops: int = 0
  steps: list[Step] = field(default_factory=list)
  inlined: Counter[UOp] = field(default_factory=Counter)  # value that a reader computes again -> how often, for all its indices
  read: set[UOp] = field(default_factory=set)

def in_order(ranges:Iterable[UOp]) -> Ranges: return tuple(sorted(ranges, key=lambda r: r.arg))

# of a node without ranges
NO_STEP = Step(None, 0, [], [])

def without(region:Region, x:UOp) -> tuple[int, set[UOp]]:
  """Returns the ops and the reads of a kernel that reads `x`, without a new walk."""
  total, read, steps, stack = 0, set[UOp](), region.steps, [0]
  seen = bytearray(len(steps))
  while stack:
    y, ops, below, reads = steps[stack.pop()]
    if y is x: continue
    total += ops
    if reads: read.update(reads)
    for i in below:
      if not seen[i]:
        seen[i] = 1
        stack.append(i)
  return total, read

class Reuse:
  """The regions of an attempt's kernels, and the regions they would have with more buffers. `reduces`: node of a kernel -> its reduces. `inlined`: the
  values that a reader computes again. `stored`: the nodes with a buffer."""
  def __init__(self, made:Attempt, ren:Renderer, reduces:dict[UOp, Counter[tuple]], inlined:set[UOp], stored:set[UOp]):
    self.made, self.ren, self.machine = made, ren, find_machine(ren)
    self.least_ns = MIN_LAUNCHES*self.machine.launch_ns
    self.range_map, self.realize_map = made.ctx.range_map, made.ctx.realize_map
    self.reduces, self.inlined, self.stored = reduces, inlined, set(stored)
    self.found: dict[UOp, Refusal] = {}  # nodes that should have one, with the numbers
    self.regions: dict[UOp, Region] = {}  # node of a kernel -> its region
    self.envs: dict[frozenset, Env] = {}
    # a value is walked again for each choice that concerns its kernel: what does not depend on the choices is kept
    self.entered: dict[tuple[Env, UOp, UOp], Env] = {}
    self.depending: dict[tuple[UOp, Env], frozenset[UOp]] = {}
    self.executed: dict[tuple[frozenset[UOp], Ranges], int] = {}
    self.costs: dict[UOp, int] = {}
    self.sizes: dict[UOp, int] = {}

  def find_env(self, index:dict[UOp, UOp]) -> Env:
    if (key:=frozenset(index.items())) not in self.envs: self.envs[key] = Env(index)
    return self.envs[key]

  def enter(self, env:Env, x:UOp, reader:UOp) -> Env:
    """Returns the Env of an inlined value, at the index at which `reader` reads it. The value depends only on its own ranges and on ranges
    of scopes."""
    if (key:=(env, x, reader)) not in self.entered:
      scopes = {r:i for r,i in env.index.items() if r in self.made.scope_ranges}
      pairs = zip(self.range_map[x].outs, self.range_map[reader].ins)
      self.entered[key] = self.find_env({**scopes, **{r:env.write(i) for r,i in pairs if r is not i and r.op is Ops.RANGE}})
    return self.entered[key]

  def find_region(self, root:UOp) -> Region:
    if root not in self.regions: self.regions[root] = self.walk(root)
    return self.regions[root]

  def walk(self, root:UOp) -> Region:
    """Walks from a kernel's buffer down to the buffers it reads."""
    region, left = Region(), Counter(self.reduces.get(root, ()))
    first = Visit(root, self.find_env({}), self.find_closed(root), False)
    stack, numbers, seen = [first], {first: 0}, set[Visit]()
    steps: dict[int, Step] = {}
    while stack:
      visit = stack.pop()
      if visit.x not in self.range_map or visit in seen: continue
      seen.add(visit)
      number, before, below, read = numbers[visit], region.ops, list[int](), list[UOp]()
      if visit.x.op in GroupOp.ALU: region.ops += self.find_cost(visit.x)*self.count_executed(self.find_depending(visit), visit.around)
      if visit.x.op is Ops.REDUCE_AXIS: visit = self.enter_reduce(visit, region, left)
      for s in visit.x.src:
        if s.dtype.scalar() == dtypes.index: continue
        if s in self.stored or s.op in IS_BUFFER:
          read.append(s)
          continue
        new = visit._replace(x=s)
        if s in self.realize_map and s in self.range_map:
          new = Visit(s, self.enter(visit.env, s, visit.x), visit.around, True)
          if new not in seen: region.inlined[s] += self.count_executed(self.find_depending(new), visit.around)
        below.append(numbers.setdefault(new, len(numbers)))
        stack.append(new)
      region.read.update(read)
      steps[number] = Step(visit.x, region.ops-before, below, read)
    region.steps = [steps.get(i, NO_STEP) for i in range(len(numbers))]
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
    region.ops += self.count_executed(depends.union(ranges), around)
    return visit._replace(around=around)

  def find_depending(self, visit:Visit) -> frozenset[UOp]:
    if (key:=(visit.x, visit.env)) not in self.depending:
      _, outs, ambient = self.range_map[visit.x]
      self.depending[key] = visit.env.find_loops((*outs, *ambient.values()))
    return self.depending[key]

  def find_cost(self, x:UOp) -> int:
    if x not in self.costs: self.costs[x] = op_cost(x, self.ren)
    return self.costs[x]

  def count_executed(self, depends:frozenset[UOp], around:Ranges) -> int:
    if (key:=(depends, around)) not in self.executed: self.executed[key] = count_executed(depends, around, self.ren)
    return self.executed[key]

  def find_closed(self, x:UOp) -> Ranges:
    """Returns the ranges of a value's buffer, with the batch if it is in a scope. Axes along which the value is expanded are not stored
    (rangeify.py:130)."""
    closed, u = UOp.sink(*self.range_map[x].outs, *self.made.ctx.vmap_map.get(x, ())), x
    while u.op in GroupOp.Movement and u in self.range_map:
      closed, u = UOp.sink(*self.range_map[u].ins, *self.range_map[u].ambient.values()), u.src[0]
    return in_order(closed.ranges)

  def count_all(self, x:UOp) -> int:
    """Returns the number of elements of a value's buffer."""
    if x not in self.sizes:
      self.sizes[x] = count_steps(self.find_closed(x)) if x in self.range_map else count_elements(x, range(len(x.shape)))
    return self.sizes[x]

  def count_bytes(self, x:UOp) -> int: return self.count_all(x)*x.dtype.itemsize if x._shape is not None else 0

  def count_read(self, region:Region) -> int: return sum(map(self.count_bytes, region.read))

  def predict(self, roots:Iterable[UOp]) -> float:
    regions = [(root, self.find_region(root)) for root in roots]
    return sum(self.machine.predict([(r.ops, 0)], self.count_bytes(root)+self.count_read(r), self.count_all(root)) for root,r in regions)

  def choose(self) -> dict[UOp, Refusal]:
    """Stores values that pay, nearest to the outputs first; then takes back values that no longer pay because of the others."""
    for x in reversed(self.made.toposort): self.consider(x)
    for x in [x for x in self.made.toposort if x in self.found]: self.try_to_take_back(x)
    if self.found: self.fit_memory()
    return self.found

  def may_pay(self, nodes:list[UOp]) -> bool:
    """Whether storing one of the nodes pays."""
    for x in reversed(nodes):
      self.consider(x)
      if self.found: return True
    return False

  def consider(self, x:UOp) -> None:
    # stock must have removed the buffer of x; computing a value of a row twice pays (_policy.py)
    if x not in self.inlined or x in self.stored or x in self.made.fused or x.op is Ops.THREEFRY: return
    if roots:=[root for root in self.computed_in.get(x, ()) if x in self.find_region(root).inlined]: self.try_to_store(x, roots)

  def try_to_store(self, x:UOp, roots:list[UOp]) -> None:
    times, elements = sum(self.find_region(root).inlined[x] for root in roots), self.count_all(x)
    if times <= elements: return
    least = max(MIN_GAIN*(before:=self.predict(roots)), self.least_ns)
    if before <= least: return
    # even the largest possible gain is too small: the kernels' work and reads for x alone, without that of its own kernel
    saved, units = 0.0, min(self.machine.units, min(map(self.count_all, roots)))
    for region in map(self.find_region, roots):
      ops, read = without(region, x)
      saved += (region.ops-ops)*self.machine.op_ns/units+sum(map(self.count_bytes, region.read-read))*self.machine.byte_ns
    if saved < least: return
    own = self.walk(x)
    if (times/elements-1)*own.ops*self.machine.op_ns/units+len(roots)*self.count_read(own)*self.machine.byte_ns < least: return
    known = {root: self.regions.pop(root) for root in roots}
    self.stored.add(x)
    self.regions[x] = own
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
    for root in self.reduces:
      for x in self.find_region(root).inlined: found.setdefault(x, []).append(root)
    return found

  def fit_memory(self) -> None:
    """Takes back the values that save too little time for their bytes."""
    saved = {x: float(r.numbers["stock_ns"])-float(r.numbers["ns"]) for x,r in self.found.items()}
    if sum(saved.values()) >= WORTH_MEMORY*(self.predict(self.stored)+sum(saved.values())): return
    most = MAX_PEAK*(peak:=self.find_peak(self.stored-saved.keys())[0])
    for x in sorted(saved, key=lambda x: saved[x]/self.count_bytes(x)):
      if (needed:=self.find_peak(self.stored)[0]) <= most: break
      self.stored.discard(x)
      self.found[x] = replace(self.found[x], rule="over-memory", numbers={**self.found[x].numbers, "peak": needed, "stock_peak": peak})

  def find_peak(self, stored:set[UOp]) -> tuple[int, UOp|None]:
    """Returns the most bytes of buffers that are alive at once, and the kernel that then runs, if these nodes have kernels, and each buffer is free
    after its last reader."""
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
    live, peak = 0, (0, None)
    freed: dict[int, int] = {}
    for i,x in enumerate(kernels):
      live += (size:=self.count_bytes(x))
      if live > peak[0]: peak = live, x
      if x in last: freed[last[x]] = freed.get(last[x], 0)+size
      live -= freed.pop(i, 0)
    return peak

def find_peak(made:Attempt, stored:set[UOp]) -> tuple[int, UOp|None]:
  """Returns the peak of the buffers if these nodes of an attempt have kernels, and the kernel that then runs (`Reuse.find_peak`)."""
  stored = {x for x in stored if x in made.ctx.range_map and x.op not in IS_BUFFER}
  return Reuse(made, find_renderer(made.kernels[0].device), {}, set(), stored).find_peak(stored) if stored else (0, None)

def find_reused(made:Attempt) -> dict[UOp, Refusal]:
  """Returns the values that should have a buffer, with the numbers: rule `stored-once`, or `over-memory` if they are not worth it."""
  if not made.inlined or not made.kernels: return {}
  reduces = {k.node: find_reduces(k) for k in made.kernels if k.node is not None and k.node in made.ctx.range_map}
  return Reuse(made, find_renderer(made.kernels[0].device), reduces, made.inlined, set(reduces)).choose()

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
