"""Which barriers stand: the stages from tensor graph to kernels run again until each fusion pays and each kernel's LOCAL memory fits.

`fuse-broadcast` takes barriers away where the ranges allow it. Whether that pays is seen in the kernels that come of it, so an attempt is made
first; where it does not pay (`fusion-guard`, _guard.py) or does not fit (`local-budget`) the barrier is put back at the nodes that are to blame, and
the stages run again. A barrier that is put back stays, so it settles; a graph without a fusion, or without a LOCAL buffer, is run once.
"""
from __future__ import annotations
import math
from dataclasses import dataclass, field
from typing import Callable
from tinygrad.device import Device
from tinygrad.dtype import AddrSpace
from tinygrad.renderer import Renderer
from tinygrad.uop.ops import AxisType, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule._refusals import Refusal

@dataclass(frozen=True)
class MadeKernel:
  """A kernel of an attempt: the node whose buffer it writes (None: it was put in later), its AST, the LOCAL buffers in it by node, in bytes."""
  node: UOp|None
  ast: UOp
  device: str
  local_bytes: dict[UOp, int]

@dataclass
class Attempt:
  """One run of the stages. `barriers` stand; with `all_barriers` each one does, as in stock. `rounds` were made before. The rest is what is found."""
  barriers: dict[UOp, Refusal]
  all_barriers: bool = False
  rounds: int = 0
  toposort: dict[UOp, None] = field(default_factory=dict)
  consumers: dict[UOp, dict[UOp, None]] = field(default_factory=dict)
  # node -> its axes that are realized all the same: none, or those of a LOCAL buffer
  fused: dict[UOp, list[int]] = field(default_factory=dict)
  # node -> why a barrier stands there
  refused: dict[UOp, Refusal] = field(default_factory=dict)
  # number of a RANGE that a LOCAL buffer closes -> its node
  local_ranges: dict[int, UOp] = field(default_factory=dict)
  # value of a row that the row's reduce and its elements read -> its ranges along the row
  row_values: dict[UOp, list[UOp]] = field(default_factory=dict)
  # the nodes that a reader computes again instead of reading their buffer; another reader may keep it
  inlined: set[UOp] = field(default_factory=set)
  # BUFFER -> the node it holds
  buffers: dict[UOp, UOp] = field(default_factory=dict)
  kernels: list[MadeKernel] = field(default_factory=list)

# so many steps of one thread take as long as a launch or two on any target
MAX_LOCAL_READS = 1 << 14

# what a buffer is kept for whatever it costs
NEVER_REMOVED = {Ops.CONTIGUOUS, Ops.COPY, Ops.ASSIGN, Ops.ENCDEC, Ops.NOOP}

# the attempt that is being made, or None where nothing can be refused
attempt: Attempt|None = None

# an attempt runs all stages; what has not settled after so many is left unfused. Graphs of 10,000 nodes settle in three or four.
MAX_ATTEMPTS = 8

def find_renderer(device:str) -> Renderer:
  """The renderer whose limits count: the one that the tool renders for, else that of the device."""
  return _state.find_renderer() if _state.find_renderer is not None else Device[device].renderer

def local_limit(device) -> int: return find_renderer(device if isinstance(device, str) else device[0]).shared_max

def settle(run:Callable[[], dict[UOp, UOp]]) -> dict[UOp, UOp]:
  """Returns what `run`, all the stages, returns under the barriers that are found to be needed."""
  if not _state.patches & {"fuse-broadcast", "local-budget"}: return run()
  barriers: dict[UOp, Refusal] = {}
  stock: tuple[Attempt, dict[UOp, UOp]]|None = None
  for rounds in range(MAX_ATTEMPTS):
    made, ret = make_attempt(run, Attempt(barriers, rounds=rounds))
    if rounds == MAX_ATTEMPTS-1: break
    refused: dict[UOp, Refusal] = {}
    if "local-budget" in _state.patches: refused.update(find_over_budget(made))
    if any(runs_reduce_twice(k.ast) for k in made.kernels):
      refused.update((x, Refusal("fuse-broadcast", "reduce-at-two-places"))
                     for x in (*made.fused, *made.local_ranges.values()) if x not in barriers)
    if "fusion-guard" in _state.patches and any(x not in barriers for x in made.fused):
      from tinygrad_overlay.schedule._guard import find_losses  # it needs codegen, which imports the scheduler
      if stock is None: stock = make_stock_attempt(run)
      refused = {**find_losses(made, stock[0]), **refused}
    if not refused: break
    if rounds == MAX_ATTEMPTS-2: refused = {**leave_unfused(made), **refused}
    barriers = {**barriers, **refused}
    _state.observer.pass_repeats()
    if stock is not None and barriers.keys() >= made.fused.keys() and not find_over_budget(stock[0]):
      # no fusion pays: what stock's stages made is there already, unless somebody wants to see it made
      return stock[1] if not _state.observer.listens else make_attempt(run, Attempt({**made.refused, **barriers}, all_barriers=True))[1]
  return ret

def runs_reduce_twice(ast:UOp) -> bool:
  """Whether a kernel needs the loop of one reduce at two places: for a LOCAL buffer, and for its reader or another LOCAL buffer.

  Codegen has one place for a RANGE: its order of the loops has no end then.
  """
  places: dict[UOp, UOp] = {}
  roots = [ast]+[u for u in ast.toposort() if u.op is Ops.BUFFERIZE and u.arg.addrspace == AddrSpace.LOCAL]
  if len(roots) == 1: return False
  for root in roots:
    for u in root.toposort(gate=lambda u: u is root or u not in roots):
      if u.op is Ops.REDUCE and any(r.op is Ops.RANGE and places.setdefault(r, root) is not root for r in u.src[1:]): return True
  return False

def leave_unfused(made:Attempt) -> dict[UOp, Refusal]:
  return dict.fromkeys([*made.fused, *made.local_ranges.values()], Refusal("fusion-guard", "not-settled", {"attempts": MAX_ATTEMPTS-1}))

def make_attempt(run:Callable, new:Attempt) -> tuple[Attempt, dict[UOp, UOp]]:
  global attempt
  attempt = new
  try: return new, run()
  finally: attempt = None

def make_stock_attempt(run:Callable) -> tuple[Attempt, dict[UOp, UOp]]:
  """What the stages make with every barrier in place: the kernels that a fusion is compared with. Nobody is told of it."""
  observer, _state.observer = _state.observer, _state.nobody
  try: return make_attempt(run, Attempt({}, all_barriers=True))
  finally: _state.observer = observer

# *** what the stages ask and report

def removes_barriers() -> bool: return "fuse-broadcast" in _state.patches and not (attempt is not None and attempt.all_barriers)
def find_barrier(x:UOp) -> Refusal|None: return attempt.barriers.get(x) if attempt is not None else None

def report_fused(x:UOp, axes:list[int]) -> None:
  if attempt is not None: attempt.fused[x] = axes

def report_refused(x:UOp, refusal:Refusal) -> None:
  if attempt is not None: attempt.refused[x] = refusal
  _state.observer.fusion_refused(x, refusal)

def report_row_value(x:UOp, along:list[UOp]) -> None:
  if attempt is not None and not attempt.all_barriers and {"fuse-broadcast", "fusion-guard"} <= _state.patches: attempt.row_values[x] = along

def computes_again(src:UOp, buf:UOp, idx:UOp) -> bool:
  """Whether a value of a row is computed again by its readers, which are in one kernel then: exp(x - max) by the sum and the quotient of a softmax.

  Stock keeps its buffer, because there is a reduce in it. But that reduce is of the row, and its readers have the row in common.
  """
  if attempt is None or (x:=getattr(buf.arg, "node", None)) not in attempt.row_values or x in attempt.barriers: return False
  if src.op in NEVER_REMOVED or not buf.arg.removable or buf.arg.addrspace != AddrSpace.GLOBAL: return False
  again = dict(zip(buf.src[1:], idx.src[1:]))
  reduces = [u for u in src.toposort(gate=lambda u: u.op is not Ops.BUFFERIZE or u.arg.addrspace != AddrSpace.GLOBAL) if u.op is Ops.REDUCE]
  rows = [r for u in reduces for r in u.ranges if r in again]
  if not reduces or any(r in attempt.row_values[x] or again[r].op is not Ops.RANGE for r in rows): return False
  if any(again[r].arg[-1] is not AxisType.LOOP for r in rows): return False
  from tinygrad_overlay.codegen._work import is_cheap_again  # it needs codegen, which imports the scheduler
  if not is_cheap_again(src, find_renderer(x.device if isinstance(x.device, str) else x.device[0])): return False
  attempt.fused[x] = []
  return True

def report_inlined(buf:UOp) -> None:
  if attempt is not None and (x:=getattr(buf.arg, "node", None)) is not None: attempt.inlined.add(x)

def report_local(x:UOp, closed:tuple[UOp, ...]) -> None:
  if attempt is not None: attempt.local_ranges.update((r.arg[0], x) for r in closed if r.op is Ops.RANGE)

def report_buffer(buffer:UOp, node:UOp|None) -> None:
  if attempt is not None and node is not None: attempt.buffers[buffer] = node

def count_elements(x:UOp, axes) -> int: return math.prod(int(s.vmax) if isinstance(s:=x.shape[i], UOp) else s for i in axes)

def too_large_for_local(x:UOp, axes:list[int]) -> Refusal|None:
  """A LOCAL buffer of these axes (none: it is no LOCAL buffer) that does not fit is not tried at all (seed 002, part 1)."""
  if "local-budget" not in _state.patches or not axes or x._device is None: return None
  needs, limit = count_elements(x, axes)*x.dtype.itemsize, local_limit(x._device)
  return Refusal("local-budget", "local-too-large", {"bytes": needs, "limit": limit}) if needs > limit else None

def too_slow_for_local(x:UOp, axes:list[int], ending:dict[UOp, UOp], batch:tuple[UOp, ...]) -> Refusal|None:
  """The heuristics give no opts to a kernel with a LOCAL buffer. Where it is read so often that this is slow on every target, it is not tried.

  `batch`: the RANGEs of the scopes that x is in. Each of their steps fills and reads the buffer.
  """
  if "fusion-guard" not in _state.patches or not axes: return None
  steps, read = (math.prod(int(r.vmax)+1 for r in rngs) for rngs in (batch, ending))
  held = steps*count_elements(x, range(len(x.shape)))
  if held*read <= MAX_LOCAL_READS: return None
  return Refusal("fusion-guard", "local-read-often", {"reads": held*read, "limit": MAX_LOCAL_READS})

def report_kernel(store:UOp, kernel:UOp) -> None:
  if attempt is None or (ast:=kernel.arg.ast).op is not Ops.SINK: return
  target = store
  while target.op is not Ops.BUFFER and target.src: target = target.src[0]
  local: dict[UOp, int] = {}
  for u in store.toposort(gate=lambda x: x.op is not Ops.AFTER):
    if u.op is not Ops.BUFFERIZE or u.arg.addrspace != AddrSpace.LOCAL: continue
    owner = next((attempt.local_ranges[r.arg[0]] for r in UOp.sink(*u.src[1:]).ranges if r.arg[0] in attempt.local_ranges), None)
    if owner is not None: local[owner] = local.get(owner, 0) + math.prod(u.shape)*u.dtype.itemsize
  device = next((d if isinstance(d, str) else d[0] for s in kernel.src if (d:=s._device) is not None), Device.DEFAULT)
  attempt.kernels.append(MadeKernel(attempt.buffers.get(target), ast, device, local))

def find_over_budget(made:Attempt) -> dict[UOp, Refusal]:
  """The LOCAL buffers to be made GLOBAL, so that those of one kernel fit together: the largest of them."""
  refused: dict[UOp, Refusal] = {}
  for k in made.kernels:
    if (total:=sum(k.local_bytes.values())) <= (limit:=local_limit(k.device) if k.local_bytes else 0): continue
    refusal = Refusal("local-budget", "local-over-budget", {"buffers": len(k.local_bytes), "bytes": total, "limit": limit})
    for x,n in sorted(k.local_bytes.items(), key=lambda item: -item[1]):
      if total <= limit: break
      refused[x] = refusal
      total -= n
  return refused
