"""The cost model: what an op, a byte of memory and a launch cost on a target. All who ask whether a kernel pays ask here.

`fusion-guard` (schedule/_guard.py) compares a fusion with what it replaces, `realize-reused` (schedule/_reuse.py) a buffer with computing its value
again. `bench/cost_model.py` sets what is predicted beside what kernels take; nothing is timed while tinygrad schedules.
"""
from __future__ import annotations
from dataclasses import dataclass
from tinygrad.dtype import DType
from tinygrad.renderer import Renderer
from tinygrad.uop.decompositions import get_late_rewrite_patterns
from tinygrad.uop.ops import GroupOp, Ops, UOp, graph_rewrite
from tinygrad_overlay._state import process

# *** ops

# what may become more than one op; all others are one
LOWERED = {Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.THREEFRY}
# in adds, where the target has an instruction for it: a unit that is slower, and what is done around it for large numbers
NATIVE_COSTS = {Ops.EXP2: 4, Ops.LOG2: 4, Ops.SIN: 16, Ops.POW: 8}

def op_cost(u:UOp, ren:Renderer) -> int:
  """Returns how many adds an op is worth: a sine is not one."""
  return NATIVE_COSTS.get(u.op, 1) if u.op in ren.code_for_op else op_weight(u, ren)

def op_weight(u:UOp, ren:Renderer) -> int:
  """Returns how many ops of the target an op becomes."""
  if u.op is Ops.MULACC: return 2
  if u.op is Ops.POW: return sum(find_weight(op, u.dtype.scalar(), ren) for op in (Ops.EXP2, Ops.LOG2))
  return find_weight(u.op, u.dtype.scalar(), ren) if u.op in LOWERED else 1

def find_weight(op:Ops, dtype:DType, ren:Renderer) -> int:
  if op in ren.code_for_op: return 1
  key = (op, dtype, type(ren).__name__)
  if key not in process.op_weights: process.op_weights[key] = count_lowered(op, dtype, ren)
  return process.op_weights[key]

def count_lowered(op:Ops, dtype:DType, ren:Renderer) -> int:
  """Returns the length of the polynomial, or the rounds of a hash, that codegen makes of an op that the target has not."""
  sources = tuple(UOp(Ops.DEFINE_VAR, dtype, arg=(name, 0, 1<<30)) for name in ("x", "y")[:2 if op is Ops.THREEFRY else 1])
  lowered = graph_rewrite(UOp(op, dtype, sources), get_late_rewrite_patterns(tuple(ren.code_for_op), False), ctx=ren.device)
  return sum(u.op in GroupOp.ALU for u in lowered.toposort())

# *** a simple roofline

@dataclass(frozen=True)
class Machine:
  """What a target can do, to an order of magnitude: two schedules are compared, the time itself is not needed. All in nanoseconds."""
  units: int         # threads that run at the same time
  op_ns: float       # one op of one thread, where its ops do not wait for each other
  chain_ns: float    # one add that waits for the one before
  byte_ns: float     # one byte of GLOBAL memory, for the whole machine
  launch_ns: float   # one kernel: its launch, and the wait for the one before

  def predict(self, ops:int, chain:int, size:int, threads:int) -> float:
    """Returns the nanoseconds of one launch: the longest of what its ops, its chains of adds and its memory (`size`, in bytes) take."""
    return self.launch_ns + max(ops*self.op_ns/min(threads, self.units), chain*self.chain_ns, size*self.byte_ns)

# a core of about 3 GHz that adds 4 floats a cycle and waits 4 cycles for an add; 20 GB/s; a kernel starts its threads
CPU_OP_NS, CPU_CHAIN_NS, CPU_BYTE_NS, CPU_LAUNCH_NS = 0.08, 1.3, 0.05, 2000.0
# a GPU of about 1.5 GHz with 16384 threads at a time, 10 TFLOP/s and 400 GB/s, 5 us for a kernel
GPU_UNITS, GPU_OP_NS, GPU_BYTE_NS, GPU_LAUNCH_NS = 16384, 1.6, 0.0025, 5000.0

def find_machine(ren:Renderer) -> Machine:
  if ren.has_local: return Machine(GPU_UNITS, GPU_OP_NS, 0.0, GPU_BYTE_NS, GPU_LAUNCH_NS)
  cores = ren.global_max[0] if ren.has_threads and ren.global_max is not None else 1
  return Machine(cores, CPU_OP_NS, CPU_CHAIN_NS, CPU_BYTE_NS, CPU_LAUNCH_NS)
