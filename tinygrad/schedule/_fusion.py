"""Runs the stages from tensor graph to kernels again until each fusion pays and each kernel's LOCAL memory fits.

`fuse-broadcast` removes realize points if the ranges allow it (_policy.py). Only the resulting kernels show whether that pays, so a first attempt
makes them. If a fusion does not pay (`fusion-guard`, _guard.py) or does not fit (`local-budget`, _local.py), its nodes get their realize points back,
and the stages run again. A restored realize point stays, so this ends; a graph without a fusion or LOCAL buffer runs once.
"""
from __future__ import annotations
from typing import Callable
from tinygrad.device import Device
from tinygrad.dtype import AddrSpace
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule import _pass
from tinygrad_overlay.schedule._guard import find_losses
from tinygrad_overlay.schedule._local import count_elements, find_over_budget
from tinygrad_overlay.schedule._pass import Attempt, Decisions, MadeKernel, Pass
from tinygrad_overlay.schedule._refusals import Refusal
from tinygrad_overlay.schedule._reuse import find_reused

# each attempt runs all stages; fusions still undecided after so many stay unfused. Graphs of 10,000 nodes need three or four
MAX_ATTEMPTS = 8

# the result of `run`: node of the tensor graph -> its replacement
Result = dict[UOp, UOp]
Run = Callable[[], Result]

def settle(sink:UOp, run_stages:Callable[[UOp], Result]) -> Result:
  """Returns the result of all stages for the graph of `sink`, with the realize points that turn out to be needed."""
  def run() -> Result: return run_stages(sink)
  if not _state.patches & {"fuse-broadcast", "local-budget", "realize-reused"}: return make_attempt(run, Attempt())[1]
  def settle_part(part:UOp) -> Decisions: return settle_whole(lambda: run_stages(part))[0]
  # the kernels of the first attempt show whether LOCAL memory fits
  compares = bool(_state.patches & {"fusion-guard", "realize-reused"})
  made, ret = make_attempt(run, Attempt(is_judged=True, settle_part=settle_part if compares else None))
  if not made.is_decided: return settle_whole(run, (made, ret))[1]
  for rounds in range(1, MAX_ATTEMPTS):
    # parts that share a kernel may not fit together
    if not (refused:=judge_kernels(made)): break
    if rounds == MAX_ATTEMPTS-1: refused = {**leave_unfused(made), **refused}
    _state.observer.pass_repeats()
    made, ret = make_attempt(run, Attempt({**made.realize_points, **refused}, is_judged=True, rounds=rounds, reused=made.reused))
  return ret

def settle_whole(run:Run, first:tuple[Attempt, Result]|None=None) -> tuple[Decisions, Result]:
  """Decides for a whole graph, by attempts that run all stages. `first`: an attempt that was made already."""
  made, ret = first or make_attempt(run, Attempt(is_judged=True))
  with _state.unwatched(): reused = find_reused(made) if "realize-reused" in _state.patches else {}
  realize_points = {x:r for x,r in reused.items() if r.rule == "stored-once"}
  stock = StockAttempt(run, realize_points, reused)
  for rounds in range(MAX_ATTEMPTS-1):
    if rounds or reused:
      _state.observer.pass_repeats()
      made, ret = make_attempt(run, Attempt(realize_points, is_judged=True, rounds=rounds, reused=reused))
    if not (refused:=judge(made, stock)): return (realize_points, reused), ret
    # the last attempt
    if rounds == MAX_ATTEMPTS-2: refused = {**leave_unfused(made), **refused}
    realize_points = {**realize_points, **refused}
    if stock.is_made and realize_points.keys() >= made.fused.keys() and not find_over_budget(stock.get()):
      # no fusion pays: use the result of the stock attempt, unless an observer listens and must see it made
      if not _state.observer.listens: return (realize_points, reused), stock.take_result()
      _state.observer.pass_repeats()
      every = {**made.refused, **realize_points}
      return (every, reused), make_attempt(run, Attempt(every, keeps_all=True, is_judged=True, reused=reused))[1]
  _state.observer.pass_repeats()
  return (realize_points, reused), make_attempt(run, Attempt(realize_points, is_judged=True, rounds=MAX_ATTEMPTS-1, reused=reused))[1]

def judge(made:Attempt, stock:StockAttempt) -> dict[UOp, Refusal]:
  """Returns the nodes that get their realize point back, and why."""
  refused = judge_kernels(made)
  if "fusion-guard" in _state.patches and any(x not in made.realize_points for x in made.fused):
    with _state.unwatched(): refused = {**find_losses(made, stock.get()), **refused}
  return refused

def judge_kernels(made:Attempt) -> dict[UOp, Refusal]:
  """Like `judge`, for kernels alone: LOCAL memory that does not fit, or loops that codegen cannot order."""
  refused: dict[UOp, Refusal] = {}
  if "local-budget" in _state.patches: refused.update(find_over_budget(made))
  if any(runs_reduce_twice(k.ast) for k in made.kernels):
    again = Refusal("fuse-broadcast", "reduce-at-two-places")
    refused.update((x, again) for x in find_tried(made) if x not in made.realize_points)
  return refused

def find_tried(made:Attempt) -> list[UOp]: return [*made.fused, *made.local_ranges.values()]

def leave_unfused(made:Attempt) -> dict[UOp, Refusal]:
  return dict.fromkeys(find_tried(made), Refusal("fusion-guard", "not-settled", {"attempts": MAX_ATTEMPTS-1}))

def runs_reduce_twice(ast:UOp) -> bool:
  """Whether a kernel needs the loop of one reduce at two places: for a LOCAL buffer, and for its reader or another LOCAL buffer.

  Codegen places each RANGE once, so ordering the loops would never end.
  """
  # RANGE of a reduce -> the root that needs its loop
  needed_at: dict[UOp, UOp] = {}
  roots = [ast]+[u for u in ast.toposort() if u.op is Ops.BUFFERIZE and u.arg.addrspace == AddrSpace.LOCAL]
  if len(roots) == 1: return False
  for root in roots:
    for u in root.toposort(gate=lambda u: u is root or u not in roots):
      if u.op is Ops.REDUCE and any(r.op is Ops.RANGE and needed_at.setdefault(r, root) is not root for r in u.src[1:]): return True
  return False

# *** attempts

def make_attempt(run:Run, new:Attempt) -> tuple[Attempt, Result]:
  """Runs the stages in a new Pass. The Pass forgets the attempt afterwards, because it holds the whole graph."""
  this = _pass.begin(new)
  try: return new, run()
  finally: this.attempt = Attempt()

class StockAttempt:
  """The stages with every realize point in place: a fusion is compared with these kernels. Made on demand, once, unseen by the observer."""
  def __init__(self, run:Run, realize_points:dict[UOp, Refusal], reused:dict[UOp, Refusal]):
    self.run, self.realize_points, self.reused = run, realize_points, reused
    self.made: tuple[Pass, Attempt, Result]|None = None

  @property
  def is_made(self) -> bool: return self.made is not None

  def get(self) -> Attempt:
    if self.made is None:
      with _state.unwatched():
        attempt, ret = make_attempt(self.run, Attempt(self.realize_points, keeps_all=True, is_judged=True, reused=self.reused))
        self.made = _pass.current, attempt, ret
    return self.made[1]

  def take_result(self) -> Result:
    """Returns the result of its stages, and makes its Pass the current one, because the schedule uses its kernels."""
    assert self.made is not None
    _pass.current = self.made[0]
    return self.made[2]

# *** kernels

def note_kernel(attempt:Attempt, store:UOp, kernel:UOp) -> None:
  """Records the kernel made from `store` (rangeify.py:487-514). The RANGEs that a LOCAL buffer closes identify its node."""
  if not attempt.is_judged or (ast:=kernel.arg.ast).op is not Ops.SINK: return
  device = next((d if isinstance(d, str) else d[0] for s in kernel.src if (d:=s._device) is not None), Device.DEFAULT)
  attempt.kernels.append(MadeKernel(attempt.buffers.get(find_stored(store)), ast, device, find_local_bytes(attempt, store)))

def find_stored(store:UOp) -> UOp:
  target = store
  while target.op is not Ops.BUFFER and target.src: target = target.src[0]
  return target

def find_local_bytes(attempt:Attempt, store:UOp) -> dict[UOp, int]:
  """Returns node -> bytes for each LOCAL buffer of a store."""
  local: dict[UOp, int] = {}
  for u in store.toposort(gate=lambda x: x.op is not Ops.AFTER):
    if u.op is not Ops.BUFFERIZE or u.arg.addrspace != AddrSpace.LOCAL: continue
    owner = next((attempt.local_ranges[r.arg[0]] for r in UOp.sink(*u.src[1:]).ranges if r.arg[0] in attempt.local_ranges), None)
    if owner is not None: local[owner] = local.get(owner, 0) + count_elements(u, range(len(u.shape)))*u.dtype.itemsize
  return local
