"""Stores a value that its readers compute again and again, if storing it once is cheaper (patch realize-reused).

Stock removes the buffer of a value without reduces that reads few buffers (rangeify.py:156-213), however often it is then computed. This module
counts that on the result of an attempt: the loops of each kernel and the ranges that each value depends on. A roofline (codegen/_work.py) compares the
kernels with the kernels there would be if the value had a buffer: one more kernel, and loads instead of computations."""
from __future__ import annotations
import math
from collections import Counter
from dataclasses import dataclass, field
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
# all buffers stored by this patch together take at most as much memory as the other buffers of the schedule, or so many bytes
FREE_BYTES = 64 << 20

class Env:
  """Maps the ranges that inlined values close to the kernel's loops in their index. A value read at two indices has two Envs: it is computed twice."""
  def __init__(self, loops:dict[UOp, frozenset[UOp]]): self.loops = loops

  def enter(self, own:Ranges, at:Ranges) -> Env:
    """Returns the Env of a value that closes the ranges `own` and is read `at` an index."""
    return Env({**self.loops, **{r:self.find_loops((i,)) for r,i in zip(own, at) if r is not i and r.op is Ops.RANGE}})

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

  def find_region(self, root:UOp) -> Region:
    if root not in self.regions: self.regions[root] = self.walk(root)
    return self.regions[root]

  def walk(self, root:UOp) -> Region:
    """Walks from a kernel's buffer down to the buffers it reads."""
    region, left = Region(), Counter(self.reduces.get(root, ()))
    closed = UOp.sink(*self.range_map[root].outs, *self.made.ctx.vmap_map.get(root, ()))
    stack, seen, envs = [Visit(root, Env({}), in_order(closed.ranges), False)], set[Visit](), dict[tuple, Env]()
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
          own, at = self.range_map[s].outs, self.range_map[visit.x].ins
          if (key:=(s, at, visit.env)) not in envs: envs[key] = visit.env.enter(own, at)
          inlined = visit._replace(x=s, env=envs[key], is_inlined=True)
          if inlined not in seen: region.inlined[s] += count_executed(inlined.env.find_loops(own), visit.around, self.ren)
          stack.append(inlined)
    return region

  def enter_reduce(self, visit:Visit, region:Region, left:Counter[tuple]) -> Visit:
    """Enters the loops of a reduce. A reduce of an inlined value has no loops, and neither has a reduce that is not among the kernel's reduces that
    are `left`: it became an index, like an arange."""
    ranges = in_order(UOp.sink(*[self.range_map[visit.x].ins[i] for i in visit.x.arg[1]]).ranges)
    if visit.is_inlined or not left[shape:=reduce_shape(visit.x)]:
      return visit._replace(env=Env({**visit.env.loops, **dict.fromkeys(ranges, frozenset())}))
    left[shape] -= 1
    around = visit.around+ranges
    region.ops += count_executed(self.find_depending(visit).union(ranges), around, self.ren)
    return visit._replace(around=around)

  def find_depending(self, visit:Visit) -> frozenset[UOp]:
    _, outs, ambient = self.range_map[visit.x]
    return visit.env.find_loops((*outs, *ambient.values()))

  def count_all(self, x:UOp) -> int:
    """Returns the number of elements of a value's buffer, with the batch if it is in a scope."""
    return count_elements(x, range(len(x.shape)))*count_steps(self.made.ctx.vmap_map.get(x, ()))

  def count_bytes(self, x:UOp) -> int: return self.count_all(x)*x.dtype.itemsize if x._shape is not None else 0

  def predict(self, roots:Iterable[UOp]) -> float:
    regions = [(root, self.find_region(root)) for root in roots]
    return sum(self.machine.predict(r.ops, 0, sum(map(self.count_bytes, {root, *r.read})), self.count_all(root)) for root,r in regions)

  def choose(self) -> dict[UOp, Refusal]:
    """Stores values that pay, nearest to the outputs first; then takes back values that no longer pay because of the others."""
    for x in reversed(self.made.toposort):
      # stock must have removed the buffer of x; computing a value of a row twice pays (_policy.py)
      if x not in self.made.inlined or x in self.stored or x in self.made.fused or x.op is Ops.THREEFRY: continue
      if roots:=[root for root in self.computed_in.get(x, ()) if x in self.find_region(root).inlined]: self.try_to_store(x, roots)
    for x in [x for x in self.made.toposort if x in self.found and x in self.stored]: self.try_to_take_back(x)
    return self.found

  def try_to_store(self, x:UOp, roots:list[UOp]) -> None:
    times, elements, needs = sum(self.find_region(root).inlined[x] for root in roots), self.count_all(x), self.count_bytes(x)
    if times <= elements: return
    own = self.walk(x)
    # even the largest possible gain is too small
    if (times/elements-1)*own.ops*self.machine.op_ns <= self.least_ns: return
    before = self.predict(roots)
    known = {root: self.regions.pop(root) for root in roots}
    self.stored.add(x)
    after = self.predict([*roots, x])
    is_gain = before-after >= max(MIN_GAIN*before, self.least_ns)
    is_too_large = needs+sum(self.count_bytes(y) for y in self.found if y in self.stored) > self.most_bytes
    if is_gain:
      self.found[x] = Refusal("realize-reused", "over-memory" if is_too_large else "stored-once", {
        "evaluations": times, "elements": elements, "kernels": len(roots), "bytes": needs, "ns": after, "stock_ns": before,
        "target": type(self.ren).__name__.removesuffix("Renderer"), **({"limit": self.most_bytes} if is_too_large else {})})
    if not is_gain or is_too_large:
      self.stored.discard(x)
      del self.regions[x]
      self.regions.update(known)
      return
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

  @cached_property
  def most_bytes(self) -> int: return max(FREE_BYTES, sum(self.count_bytes(x) for x in self.made.toposort if x in self.stored or x.op is Ops.BUFFER))

def find_reused(made:Attempt) -> dict[UOp, Refusal]:
  """Returns the values that should have a buffer, with the numbers: rule `stored-once`, or `over-memory` if memory does not allow it."""
  if not made.inlined or not made.kernels: return {}
  return Reuse(made, find_renderer(made.kernels[0].device)).choose()

def find_reduces(k:MadeKernel) -> Counter[tuple]:
  """Counts the reduces of a kernel that did not become an index; none if codegen fails, because the device reports that."""
  try: return count_reduces(k.ast)
  except CannotLower: return Counter()

def reduce_shape(x:UOp) -> tuple:
  return x.arg[0], tuple(sorted(n for i in x.arg[1] if (n:=count_elements(x.src[0], (i,))) > 1))

def count_executed(depends:frozenset[UOp], around:Ranges, ren:Renderer) -> int:
  """Returns how often a value is computed: codegen puts it into the innermost loop that it depends on, so it runs in all loops around that loop too.
  On a target with many threads the output loops are threads, and each computes it."""
  inner = max((i for i,r in enumerate(around) if r in depends), default=-1)
  runs = [r for i,r in enumerate(around) if i <= inner or (ren.has_local and r.arg[-1] is AxisType.LOOP)]
  shared = [min(size(r), UNROLLED_STEPS) for r in runs if r not in depends and r.arg[-1] is AxisType.LOOP][:UNROLLED_LOOPS]
  return count_steps(runs)//math.prod(shared)
