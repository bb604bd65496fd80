"""The LOCAL buffers of a kernel and the memory of its GROUP stay together within what the target has."""

from __future__ import annotations

import pytest
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.postrange import Scheduler
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.renderer.cstyle import CUDARenderer, MetalRenderer
from tinygrad.schedule.indexing import BufferizeOpts
from tinygrad.uop.ops import AxisType, Ops, UOp


def make_kernel(local: int) -> UOp:
    """The sum of 4096 elements that go through a LOCAL buffer of `local` floats."""
    source, output = UOp.placeholder((local,), dtypes.float, 1), UOp.placeholder((1,), dtypes.float, 0)
    copied, summed = UOp.range(local, 0, AxisType.LOOP), UOp.range(4096, 1, AxisType.REDUCE)
    held = source.index(copied).bufferize(copied, arg=BufferizeOpts(None, AddrSpace.LOCAL))
    total = held.index(summed).reduce(summed, arg=Ops.ADD)
    return output.index(UOp.const(dtypes.index, 0), dtype=output.dtype).store(total).sink()


def test_a_group_that_does_not_fit_beside_the_local_buffers_is_refused() -> None:
    """Metal has 32,768 bytes: 24,000 are taken, so 4096 lanes of 4 bytes are too many, and 2048 are not."""
    group = Opt(OptOps.GROUPTOP, 0, 4096)
    with pytest.raises(KernelOptError, match="needs 40384 with the LOCAL buffers, max 32768"):
        Scheduler(make_kernel(6000), MetalRenderer()).apply_opt(group)
    Scheduler(make_kernel(6000), MetalRenderer()).apply_opt(Opt(OptOps.GROUPTOP, 0, 2048))
    Scheduler(make_kernel(6000), CUDARenderer("sm_80")).apply_opt(group)
