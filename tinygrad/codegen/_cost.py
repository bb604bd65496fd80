"""The cost model: what an op, a byte of memory and a launch cost on a target.

`fusion-guard` (schedule/_guard.py) compares a fusion with the kernels it replaces; `realize-reused` (schedule/_reuse.py) compares storing a value
with computing it again. `bench/cost_model.py` compares predicted with measured times; nothing is timed while tinygrad schedules.
"""
from __future__ import annotations
from dataclasses import dataclass
from tinygrad.dtype import DType
from tinygrad.renderer import Renderer
from tinygrad.uop.decompositions import get_late_rewrite_patterns
from tinygrad.uop.ops import GroupOp, Ops, UOp, graph_rewrite
from tinygrad_overlay._state import process

# *** ops

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

def find_weight(op:Ops, dtype:DType, ren:Renderer) -> int:
  if op in ren.code_for_op: return 1
  key = (op, dtype, type(ren).__name__)
  if key not in process.op_weights: process.op_weights[key] = count_lowered(op, dtype, ren)
  return process.op_weights[key]

def count_lowered(op:Ops, dtype:DType, ren:Renderer) -> int:
  """Counts the ops that codegen makes from an op that the target lacks: a polynomial, or the rounds of a hash."""
  sources = tuple(UOp(Ops.DEFINE_VAR, dtype, arg=(name, 0, 1<<30)) for name in ("x", "y")[:2 if op is Ops.THREEFRY else 1])
  lowered = graph_rewrite(UOp(op, dtype, sources), get_late_rewrite_patterns(tuple(ren.code_for_op), False), ctx=ren.device)
  return sum(u.op in GroupOp.ALU for u in lowered.toposort())

# *** a simple roofline

@dataclass(frozen=True)
class Machine:
  """A target's speed to an order of magnitude, in nanoseconds: enough to compare two schedules."""
  units: int         # threads that run at once
  op_ns: float       # one op of one thread, if ops do not wait for each other
  chain_ns: float    # one add that waits for the previous add
  byte_ns: float     # one byte of GLOBAL memory, for the whole machine
  launch_ns: float   # one kernel: its launch, and the wait for the previous kernel

  def predict(self, ops:int, chain:int, size:int, threads:int) -> float:
    """Returns the nanoseconds of one launch: launch time plus the longest of ops, chains of adds, and memory traffic (`size` bytes)."""
    return self.launch_ns + max(ops*self.op_ns/min(threads, self.units), chain*self.chain_ns, size*self.byte_ns)

# a core of about 3 GHz: 4 float adds a cycle, 4 cycles latency; 20 GB/s; a launch starts the threads
CPU_OP_NS, CPU_CHAIN_NS, CPU_BYTE_NS, CPU_LAUNCH_NS = 0.08, 1.3, 0.05, 2000.0
# a GPU of about 1.5 GHz: 16384 threads at once, 10 TFLOP/s, 400 GB/s, 5 us for a launch
GPU_UNITS, GPU_OP_NS, GPU_BYTE_NS, GPU_LAUNCH_NS = 16384, 1.6, 0.0025, 5000.0

def find_machine(ren:Renderer) -> Machine:
  if ren.has_local: return Machine(GPU_UNITS, GPU_OP_NS, 0.0, GPU_BYTE_NS, GPU_LAUNCH_NS)
  cores = ren.global_max[0] if ren.has_threads and ren.global_max is not None else 1
  return Machine(cores, CPU_OP_NS, CPU_CHAIN_NS, CPU_BYTE_NS, CPU_LAUNCH_NS)
