"""Runs the stages from tensor graph to kernels again until each fusion pays (`fusion-guard`) and each kernel's LOCAL memory fits (`local-budget`).

Only the kernels of a fusion show whether it pays, so a first attempt makes them. Nodes of a refused fusion get their realize points back, and the
stages run again. A restored realize point stays, so this ends; a graph without a fusion or LOCAL buffer runs once."""
from __future__ import annotations
from typing import Callable
from tinygrad.device import Device
from tinygrad.dtype import AddrSpace
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.codegen._work import count_elements, find_renderer
from tinygrad_overlay.schedule import _pass
from tinygrad_overlay.schedule._guard import find_losses, find_over_memory, find_unpaid
from tinygrad_overlay.schedule._known import keep
from tinygrad_overlay.schedule._parts import find_kept
from tinygrad_overlay.schedule._pass import Attempt, Decisions, MadeKernel
from tinygrad_overlay.schedule._refusals import Refusal
from tinygrad_overlay.schedule._reuse import find_reused

# each attempt runs all stages; fusions still undecided after so many stay unfused. Graphs of 10,000 nodes need three or four
MAX_ATTEMPTS = 8

# the result of `run`: node of the tensor graph -> its replacement
Result = dict[UOp, UOp]
Run = Callable[[], Result]

def decide_fusions(sink:UOp, run_stages:Callable[[UOp], Result]) -> Result:
  """Returns the result of all stages for the graph of `sink`, with the realize points that turn out to be needed."""
  runs = 0
  def count(graph:UOp) -> Result:
    nonlocal runs
    runs += 1
    return run_stages(graph)
  def run() -> Result: return count(sink)
  if not _state.patches & {"fuse-broadcast", "local-budget", "realize-reused"}: return make_attempt(run, Attempt())[1]
  def decide_part(part:UOp) -> Decisions:
    def run_part() -> Result: return count(part)
    made, _ = decide_whole(run_part, *make_attempt(run_part, Attempt(is_compared=True)))
    return made.realize_points, made.reused
  # the kernels of the first attempt show whether LOCAL memory fits
  compares = bool(_state.patches & {"fusion-guard", "realize-reused"})
  first, ret = make_attempt(run, Attempt(is_compared=True, decide_part=decide_part if compares else None))
  # parts that share a kernel may not fit together
  made, ret = repeat_attempts(run, first, ret, None) if first.is_decided else decide_whole(run, first, ret)
  if not first.is_recalled and "fusion-guard" in _state.patches: made, ret = fit_memory(run, made, ret)
  if runs > 1 and first.known_as: keep(first.known_as, made)
  return ret

def decide_whole(run:Run, made:Attempt, ret:Result) -> tuple[Attempt, Result]:
  """Decides for a whole graph, first which fusions pay, then which values are worth a buffer. `made` is its first attempt, with the result `ret`."""
  kept = find_kept(made)
  stock = StockAttempt(run, {x for x in made.fused if x in kept})
  made, ret = repeat_attempts(run, made, ret, stock)
  return store_reused(run, made, ret) if "realize-reused" in _state.patches else (made, ret)

def repeat_attempts(run:Run, made:Attempt, ret:Result, stock:StockAttempt|None) -> tuple[Attempt, Result]:
  """Makes attempts until no fusion is refused. `stock`: a fusion is compared with these kernels; None if the fusions are decided already."""
  for rounds in range(1, MAX_ATTEMPTS):
    if not (refused:=judge(made, stock)): break
    # the last attempt
    if rounds == MAX_ATTEMPTS-1: refused = {**leave_unfused(made), **refused}
    realize_points = {**made.realize_points, **refused}
    if stock is not None and stock.made is not None and realize_points.keys() >= stock.choices and not find_over_budget(stock.get()):
      # no fusion pays: use the stock attempt, unless an observer listens and must see it made
      every = {**made.refused, **realize_points}
      if _state.observer.listens: return repeat_attempt(run, Attempt(every, keeps_all=True, is_compared=True, reused=made.reused))
      stock.made[0].realize_points = every
      return use(*stock.made)
    made, ret = repeat_attempt(run, Attempt(realize_points, is_compared=True, rounds=rounds, reused=made.reused))
  return made, ret

def store_reused(run:Run, made:Attempt, ret:Result) -> tuple[Attempt, Result]:
  """Stores the values that are computed again and again, as far as that pays in the kernels. `made` has the fusions that pay."""
  def store() -> tuple[Attempt, Result]:
    stored = {x:r for x,r in reused.items() if r.rule == "stored-once"}
    if not stored and not _state.observer.listens:
      made.reused = reused
      return use(made, ret)
    return repeat_attempt(run, restore(made, stored, reused))
  with _state.unwatched(): reused = find_reused(made)
  if not reused: return made, ret
  new = store()
  with _state.unwatched(): lost = find_unpaid(new[0], made)
  if lost:
    # each loss is that of a whole group of kernels, which is now as before: the others need no second look
    reused.update(lost)
    new = store()
  # LOCAL memory and the order of loops may not allow a fusion beside the new buffers
  return repeat_attempts(run, *new, None)

def restore(made:Attempt, points:dict[UOp, Refusal], reused:dict[UOp, Refusal]) -> Attempt:
  """Returns a new attempt like `made`, with more realize points."""
  return Attempt({**made.realize_points, **points}, keeps_all=made.keeps_all, is_compared=True, rounds=made.rounds, reused=reused)

def fit_memory(run:Run, made:Attempt, ret:Result) -> tuple[Attempt, Result]:
  """Takes back fusions that save too little time for their bytes, in a whole graph."""
  stock = StockAttempt(run, set())
  for _ in range(MAX_ATTEMPTS):
    with _state.unwatched(): refused = find_over_memory(made, stock.get)
    if not refused: break
    made, ret = repeat_attempts(run, *repeat_attempt(run, restore(made, refused, made.reused)), None)
  return made, ret

def judge(made:Attempt, stock:StockAttempt|None) -> dict[UOp, Refusal]:
  """Returns the nodes that get their realize point back, and why: a fusion does not pay, LOCAL memory does not fit, or codegen cannot order loops."""
  refused: dict[UOp, Refusal] = {}
  if stock is not None and "fusion-guard" in _state.patches and not stock.choices <= made.realize_points.keys():
    with _state.unwatched(): refused.update(find_losses(made, stock.get()))
  if "local-budget" in _state.patches: refused.update(find_over_budget(made))
  if any(runs_reduce_twice(k.ast) for k in made.kernels):
    again = Refusal("fuse-broadcast", "reduce-at-two-places")
    refused.update((x, again) for x in find_tried(made) if x not in made.realize_points)
  return refused

def find_over_budget(made:Attempt) -> dict[UOp, Refusal]:
  """Returns the largest LOCAL buffers of each kernel, to be made GLOBAL so that the others fit together."""
  refused: dict[UOp, Refusal] = {}
  for k in made.kernels:
    left = total = sum(k.local_bytes.values())
    for x,n in sorted(k.local_bytes.items(), key=lambda item: -item[1]):
      if left <= (limit:=find_renderer(k.device).shared_max): break
      refused[x] = Refusal("local-budget", "local-over-budget", {"buffers": len(k.local_bytes), "bytes": total, "limit": limit})
      left -= n
  return refused

def find_tried(made:Attempt) -> list[UOp]: return [*made.fused, *made.local_ranges.values()]

def leave_unfused(made:Attempt) -> dict[UOp, Refusal]:
  return dict.fromkeys(find_tried(made), Refusal("fusion-guard", "not-settled", {"attempts": MAX_ATTEMPTS-1}))

def runs_reduce_twice(ast:UOp) -> bool:
  """Whether a kernel needs the loop of one reduce at two places: for a LOCAL buffer, and for its reader or another LOCAL buffer. Codegen places each
  RANGE once, so ordering the loops would never end."""
  needed_at: dict[UOp, UOp] = {}  # RANGE of a reduce -> the root that needs its loop
  roots = [ast]+[u for u in ast.toposort() if u.op is Ops.BUFFERIZE and u.arg.addrspace == AddrSpace.LOCAL]
  if len(roots) == 1: return False
  for root in roots:
    for u in root.toposort(gate=lambda u: u is root or u not in roots):
      if u.op is Ops.REDUCE and any(r.op is Ops.RANGE and needed_at.setdefault(r, root) is not root for r in u.src[1:]): return True
  return False

def make_attempt(run:Run, new:Attempt) -> tuple[Attempt, Result]:
  _pass.begin(new)
  try: return new, run()
  finally: _pass.end(new)

def repeat_attempt(run:Run, new:Attempt) -> tuple[Attempt, Result]:
  _state.observer.pass_repeats()
  return make_attempt(run, new)

def use(made:Attempt, ret:Result) -> tuple[Attempt, Result]:
  """Makes an earlier attempt the last one, with its scopes and tags."""
  _pass.end(made)
  return made, ret

class StockAttempt:
  """The stages with every realize point in place: a fusion is compared with these kernels. Made on demand, once, unseen by the observer. `choices`: the
  fusions that remove a buffer which stock keeps."""
  def __init__(self, run:Run, choices:set[UOp]):
    self.run, self.choices = run, choices
    self.made: tuple[Attempt, Result]|None = None

  def get(self) -> Attempt:
    if self.made is None:
      with _state.unwatched(): self.made = make_attempt(self.run, Attempt(keeps_all=True, is_compared=True))
    return self.made[0]

def note_kernel(attempt:Attempt, store:UOp, kernel:UOp) -> None:
  """Records the kernel made from `store` (rangeify.py:487-514)."""
  if not attempt.is_compared or (ast:=kernel.arg.ast).op is not Ops.SINK: return
  device = next((d if isinstance(d, str) else d[0] for s in kernel.src if (d:=s._device) is not None), Device.DEFAULT)
  target = store
  while target.op is not Ops.BUFFER and target.src: target = target.src[0]
  attempt.kernels.append(MadeKernel(attempt.buffers.get(target), ast, device, find_local_bytes(attempt, store)))

def find_local_bytes(attempt:Attempt, store:UOp) -> dict[UOp, int]:
  local: dict[UOp, int] = {}  # the RANGEs that a LOCAL buffer closes identify its node
  for u in store.toposort(gate=lambda x: x.op is not Ops.AFTER):
    if u.op is not Ops.BUFFERIZE or u.arg.addrspace != AddrSpace.LOCAL: continue
    owner = next((attempt.local_ranges[r.arg[0]] for r in UOp.sink(*u.src[1:]).ranges if r.arg[0] in attempt.local_ranges), None)
    if owner is not None: local[owner] = local.get(owner, 0) + count_elements(u, range(len(u.shape)))*u.dtype.itemsize
  return local
