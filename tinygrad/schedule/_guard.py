"""Refuses a fusion that does not pay: compares its kernels with the kernels it replaces (patch fusion-guard).

Two schedules of one graph differ in groups of kernels: some nodes are buffers on one side only. A group computes the same values on both sides, so
the sides can be compared: by their work, their threads, and the time that a roofline predicts (codegen/_work.py)."""
from __future__ import annotations
import math
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Callable, NamedTuple
from tinygrad.renderer import Renderer
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay._state import process
from tinygrad_overlay.codegen._work import CannotLower, estimate_work, find_renderer, predict_ns, try_to_lower
from tinygrad_overlay.schedule._parts import DisjointSets, find_kept
from tinygrad_overlay.schedule._pass import Attempt, MadeKernel
from tinygrad_overlay.schedule._refusals import Refusal
from tinygrad_overlay.schedule._reuse import MAX_PEAK, WORTH_MEMORY, find_peak

# a row reduce repeated by each thread multiplies the work; memory traffic may hide twice the work, but not more
MAX_REDUNDANCY = 2.0
# a quarter of the threads of the least parallel replaced kernel: one saved launch cannot make up for fewer
MIN_THREADS = 1/4
# the roofline ignores registers and caches: a gain below two percent is none, and the heuristics are made for stock's kernels
MIN_GAIN = 0.02
# another buffer and another launch must save more than the model's error
MIN_STORE_GAIN = 0.1
# the peak of memory may grow by so many bytes for nothing: as much as a launch may cost
LEAST_GROWTH = 1 << 16
# below so many ops the launch costs more than the kernel, so work and threads do not matter
SMALL_OPS = 4096
# an attempt costs as much as a whole schedule. Graphs of up to BLAMING_NODES nodes make one more, to find the fusion to blame in a group; a larger
# graph, or a group that still loses, stays as stock makes it
BLAMING_ATTEMPTS, BLAMING_NODES = 1, 1000

@dataclass
class Group:
  """Kernels that compute the same values with some choices (fusions) and without. `causes`: each choice of the group, and the nodes whose kernels
  contain it; outputs of the graph first. `replaced`: node of a fused kernel -> the stock kernels that it helps to replace."""
  fused: list[MadeKernel] = field(default_factory=list)
  stock: list[MadeKernel] = field(default_factory=list)
  causes: dict[UOp, set[UOp]] = field(default_factory=dict)
  replaced: dict[UOp, list[MadeKernel]] = field(default_factory=dict)

def find_losses(made:Attempt, stock:Attempt) -> dict[UOp, Refusal]:
  """Returns the nodes that get their realize point back, with the numbers."""
  refused: dict[UOp, Refusal] = {}
  for group in find_groups(made, stock, made.fused):
    lost: dict[UOp, Refusal] = {}
    # a kernel that loses against all kernels it helps to replace loses whatever its group gains
    for k in group.fused:
      causes = [x for x,writers in group.causes.items() if k.node in writers]
      if causes and k.node is not None and (loss:=explain_loss([k], group.replaced[k.node])) is not None: lost.update(dict.fromkeys(causes, loss))
    if not lost and group.causes and (loss:=explain_loss(group.fused, group.stock)) is not None:
      lost = dict.fromkeys(choose_refused(group, made), loss)
    refused.update(lost)
  return refused

def find_over_memory(made:Attempt, get_stock:Callable[[], Attempt]) -> dict[UOp, Refusal]:
  """Returns the fusions in the kernels of the peak of memory, if it grows by more than a tenth and less than a fifth of the time is saved. The inputs
  of the graph are in memory, too."""
  if not made.fused or not made.kernels: return {}
  peak, at = find_peak(made, stored_nodes(made))
  held = sum(x.arg*x.dtype.itemsize for x in made.toposort if x.op is Ops.BUFFER)
  def is_over(stock_peak:int) -> bool: return peak-stock_peak > max((MAX_PEAK-1)*(stock_peak+held), LEAST_GROWTH)
  # known without stock's kernels
  if not is_over(find_peak(made, find_kept(made))[0]) or not is_over(stock_peak:=find_peak(stock:=get_stock(), stored_nodes(stock))[0]): return {}
  ns, stock_ns = (sum(map(predict_kernel, attempt.kernels)) for attempt in (made, stock))
  if ns <= (1-WORTH_MEMORY)*stock_ns: return {}
  refusal = Refusal("fusion-guard", "more-memory", {"peak": peak, "stock_peak": stock_peak})
  return {x:refusal for group in find_groups(made, stock, made.fused) if any(k.node is at for k in group.fused) for x in group.causes}

def stored_nodes(made:Attempt) -> set[UOp]: return {k.node for k in made.kernels if k.node is not None}

def find_unpaid(made:Attempt, before:Attempt) -> dict[UOp, Refusal]:
  """Returns the values that do not pay as buffers, by their kernels, with the numbers."""
  refused: dict[UOp, Refusal] = {}
  stored = {x:r for x,r in made.reused.items() if r.rule == "stored-once"}
  for group in find_groups(made, before, stored):
    if not group.causes: continue
    try: new, old = measure(group.fused), measure(group.stock)
    except CannotLower: continue
    if new.ns > (1-MIN_STORE_GAIN)*old.ns:
      refused.update((x, Refusal("realize-reused", "not-paid", {**stored[x].numbers, "ns": new.ns, "stock_ns": old.ns})) for x in group.causes)
  return refused

def choose_refused(group:Group, made:Attempt) -> list[UOp]:
  """Returns the fusions in the slowest kernel, because the others may pay without them; later all. A group that saves no kernel is not searched."""
  if made.rounds >= BLAMING_ATTEMPTS or len(made.toposort) > BLAMING_NODES or len(group.fused) >= len(group.stock): return list(group.causes)
  blamed = set.union(*group.causes.values())
  slowest = max((k for k in group.fused if k.node in blamed), key=predict_kernel)
  return [x for x,writers in group.causes.items() if slowest.node in writers]

def predict_kernel(k:MadeKernel) -> float:
  ren = find_renderer(k.device)
  try: return predict_ns(estimate_work(k.ast, ren), ren)
  except CannotLower: return math.inf

def find_groups(made:Attempt, stock:Attempt, choices:Container[UOp]) -> list[Group]:
  """Returns the groups of kernels that differ, with the choices in each: the fusions, or the values that were stored."""
  fused_at, stock_at = by_node(made.kernels), by_node(stock.kernels)
  # (node of a fused kernel, node of a stock kernel): both write one node, or one computes the node that the other writes
  common = [(x, x) for x in fused_at if x in stock_at]
  common += [(w, x) for x in stock_at if x not in fused_at for w in find_writers(x, fused_at, made)]
  common += [(x, w) for x in fused_at if x not in stock_at for w in find_writers(x, stock_at, stock)]
  sets = DisjointSets()
  for f,s in common: sets.join(("fused", f), ("stock", s))
  found: dict[object, Group] = defaultdict(Group)
  for x,kernels in fused_at.items(): found[sets.find(("fused", x))].fused += kernels
  for x,kernels in stock_at.items(): found[sets.find(("stock", x))].stock += kernels
  for f,s in common: found[sets.find(("fused", f))].replaced.setdefault(f, []).extend(stock_at[s])
  changed = {root: g for root,g in found.items() if asts(g.fused) != asts(g.stock)}
  unchanged = {x for x in fused_at if x in stock_at and asts(fused_at[x]) == asts(stock_at[x])}
  for x in reversed(made.toposort):
    if x not in choices: continue
    writers = find_writers(x, fused_at, made)
    for root in {sets.find(("fused", w)) for w in writers-unchanged} & changed.keys(): changed[root].causes[x] = writers
  return list(changed.values())

# node -> the kernels that write its buffer
Kernels = dict[UOp, list[MadeKernel]]

def by_node(kernels:list[MadeKernel]) -> Kernels:
  found: Kernels = {}
  for k in kernels:
    if k.node is not None: found.setdefault(k.node, []).append(k)
  return found

def asts(kernels:list[MadeKernel]) -> list[bytes]: return sorted(k.ast.key for k in kernels)

def find_writers(x:UOp, kernels:Kernels, made:Attempt) -> set[UOp]:
  """Returns the nodes whose kernels compute `x`: follows its readers up to the first buffers, and past buffers that some reader computes again."""
  found: set[UOp] = set()
  seen, stack = {x}, [x]
  while stack:
    u = stack.pop()
    if u in kernels:
      found.add(u)
      if u not in made.inlined: continue
    new = [c for c in made.consumers.get(u, ()) if c not in seen]
    seen.update(new)
    stack += new
  return found

class Totals(NamedTuple):
  """Sums over a group's kernels of one schedule. `least_threads`: the minimum over kernels with more work than a launch; None if there are none.
  `unchained_ns`: the time if no add waited for another one."""
  kernels: int
  ops: int
  least_threads: int|None
  ns: float
  unchained_ns: float

def measure(kernels:list[MadeKernel]) -> Totals:
  ren = find_renderer(kernels[0].device)
  works = [estimate_work(k.ast, ren) for k in kernels]
  threads = [w.threads for w in works if w.ops > SMALL_OPS]
  return Totals(len(works), sum(w.ops for w in works), min(threads, default=None), sum(predict_ns(w, ren) for w in works),
                sum(predict_ns(replace(w, phases=((w.ops, 0),)), ren) for w in works))

def explain_loss(fused:list[MadeKernel], stock:list[MadeKernel]) -> Refusal|None:
  """Returns the loss with its numbers; None if the fusion pays. Cached."""
  if not fused or not stock: return None
  ren, verdicts = find_renderer(fused[0].device), process.kernel_verdicts
  if (key:=(type(ren).__name__, *asts(fused), None, *asts(stock))) not in verdicts:
    # if codegen fails without fusion too, the device reports the error
    try: verdicts[key] = compare_kernels(fused, measure(stock), ren)
    except CannotLower: verdicts[key] = None
  return verdicts[key]

def compare_kernels(kernels:list[MadeKernel], stock:Totals, ren:Renderer) -> Refusal|None:
  def loss(rule:str, **numbers) -> Refusal:
    return Refusal("fusion-guard", rule, {"kernels": len(kernels), "stock_kernels": stock.kernels, **numbers})
  try:
    fused = measure(kernels)
    if fused.kernels > stock.kernels: return loss("no-kernel-saved")
    if fused.ops > SMALL_OPS and fused.ops > MAX_REDUNDANCY*max(stock.ops, 1):
      return loss("more-work", ops=fused.ops, stock_ops=stock.ops, limit=MAX_REDUNDANCY)
    if fused.least_threads is not None and stock.least_threads is not None and fused.least_threads < MIN_THREADS*stock.least_threads:
      return loss("fewer-threads", threads=fused.least_threads, stock_threads=stock.least_threads, limit=MIN_THREADS)
    # how long adds wait for each other depends on what the compiler does: a gain there alone is no gain
    for ns,stock_ns in ((fused.ns, stock.ns), (fused.unchained_ns, stock.unchained_ns)):
      if ns <= (1-MIN_GAIN)*stock_ns: continue
      return loss("slower" if ns > stock_ns else "no-faster", ns=ns, stock_ns=stock_ns, target=type(ren).__name__.removesuffix("Renderer"))
    for k in kernels: try_to_lower(k.ast, ren)
  except CannotLower as e: return loss("codegen-fails", error=str(e))
  return None
