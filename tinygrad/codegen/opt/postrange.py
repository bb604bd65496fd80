"""GROUP and GROUPTOP count the LOCAL memory that the kernel has already (patch local-budget)."""
from __future__ import annotations
import math
from types import ModuleType
from tinygrad.codegen.opt import Opt, OptOps, check
from tinygrad.dtype import AddrSpace
from tinygrad.uop.ops import AxisType, Ops
from tinygrad_overlay import _state
from tinygrad_overlay._patching import Changes

# after a GROUP opt, each of these multiplies the memory of the groups, as stock counts it
MORE_LANES = {OptOps.LOCAL, OptOps.UPCAST, OptOps.UNROLL}

def apply_opt(self, opt:Opt, append_opt:bool=True):
  makes_groups = opt.op in {OptOps.GROUP, OptOps.GROUPTOP} or (opt.op in MORE_LANES and self.group_for_reduces)
  if "local-budget" not in _state.patches or not makes_groups or self.reduceop is None: return stock_apply_opt(self, opt, append_opt)
  local = [u for u in self.ast.toposort() if u.op is Ops.BUFFERIZE and u.arg.addrspace == AddrSpace.LOCAL]
  if held:=int(sum(math.prod(u.shape)*u.dtype.itemsize for u in local)):
    lanes = opt.arg or int(self.rngs[self.real_axis(opt.op, opt.axis)].vmax)+1
    beside = math.prod(self.full_shape[a] for a in self.axes_of(AxisType.UPCAST, AxisType.WARP, AxisType.LOCAL, AxisType.GROUP_REDUCE))
    needs = held + lanes*beside*self.reduceop.dtype.itemsize
    check(needs <= self.ren.shared_max, f"exceeds maximum shared memory size: needs {needs} with the LOCAL buffers, max {self.ren.shared_max}")
  return stock_apply_opt(self, opt, append_opt)

def patch(module:ModuleType) -> None:
  global stock_apply_opt
  with Changes("local-budget") as changes:
    stock_apply_opt = changes.replace(module.Scheduler, "apply_opt", apply_opt)
