"""The LOCAL buffers of a kernel and the memory of its GROUP stay together within what the target has."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinygrad.codegen import get_program
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.postrange import Scheduler
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.renderer import Renderer
from tinygrad.renderer.cstyle import CUDARenderer, MetalRenderer, OpenCLRenderer
from tinygrad.schedule.indexing import BufferizeOpts
from tinygrad.uop.ops import AxisType, Ops, UOp


def make_kernel(local: int) -> UOp:
    """The sum of 4096 elements that go through a LOCAL buffer of `local` floats."""
    source, output = UOp.placeholder((local,), dtypes.float, 1), UOp.placeholder((1,), dtypes.float, 0)
    copied, summed = UOp.range(local, 0, AxisType.LOOP), UOp.range(4096, 1, AxisType.REDUCE)
    held = source.index(copied).bufferize(copied, arg=BufferizeOpts(None, AddrSpace.LOCAL))
    total = held.index(summed).reduce(summed, arg=Ops.ADD)
    return output.index(UOp.const(dtypes.index, 0), dtype=output.dtype).store(total).sink()


def test_a_group_that_does_not_fit_with_the_local_buffers_is_refused() -> None:
    """Metal has 32,768 bytes: 24,000 are taken, so 4096 lanes of 4 bytes are too many, and 2048 are not."""
    group = Opt(OptOps.GROUPTOP, 0, 4096)
    with pytest.raises(KernelOptError, match="needs 40384 with the LOCAL buffers, max 32768"):
        Scheduler(make_kernel(6000), MetalRenderer()).apply_opt(group)
    Scheduler(make_kernel(6000), MetalRenderer()).apply_opt(Opt(OptOps.GROUPTOP, 0, 2048))
    Scheduler(make_kernel(6000), CUDARenderer("sm_80")).apply_opt(group)


def make_products(held: list[int], outputs: int, dtype: DType) -> UOp:
    """A matrix by a vector that is the product of LOCAL buffers: `held` has their sizes, all multiples of the first."""
    size = held[0]
    matrix, output = UOp.placeholder((outputs * size,), dtype, 1), UOp.placeholder((outputs,), dtype, 0)
    row, column = UOp.range(outputs, 0, AxisType.LOOP), UOp.range(size, 1, AxisType.REDUCE)
    value = matrix.index(row * size + column)
    for number, count in enumerate(held):
        copied = UOp.range(count, 2 + number, AxisType.LOOP)
        source = UOp.placeholder((count,), dtype, 2 + number).index(copied)
        local = source.bufferize(copied, arg=BufferizeOpts(number, AddrSpace.LOCAL))
        value = value * local.index(column)
    return output.index(row, dtype=output.dtype).store(value.reduce(column, arg=Ops.ADD)).end(row).sink()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    filled=st.integers(70, 100),
    times=st.lists(st.integers(1, 3), max_size=2),
    outputs=st.sampled_from([48, 64, 1024]),
    dtype=st.sampled_from([dtypes.half, dtypes.float, dtypes.double]),
    target=st.sampled_from([MetalRenderer(), OpenCLRenderer(), CUDARenderer("sm_80")]),
    opts=st.permutations([OptOps.LOCAL, OptOps.LOCAL, OptOps.UPCAST, OptOps.UNROLL]),
    amounts=st.lists(st.sampled_from([2, 8, 16, 32]), min_size=4, max_size=4),
)
def test_no_opts_take_a_kernel_over_the_limit(
    filled: int, times: list[int], outputs: int, dtype: DType, target: Renderer, opts: list[OptOps], amounts: list[int]
) -> None:
    """BEAM tries any order of opts: what apply_opt lets through has a program that fits, if its LOCAL buffers do."""
    size = target.shared_max * filled // (100 * (1 + sum(times)) * dtype.itemsize) // 32 * 32
    held = [size, *(size * n for n in times)]
    kernel = Scheduler(make_products(held, outputs, dtype), target)
    for op, amount in zip([OptOps.GROUPTOP, *opts], amounts, strict=False):
        with contextlib.suppress(KernelOptError):
            kernel.apply_opt(Opt(op, 0, amount))
    program = get_program(make_products(held, outputs, dtype), target, opts=kernel.applied_opts)
    local = sum(u.ptrdtype.size * u.dtype.base.itemsize for u in program.uops or [] if u.op is Ops.DEFINE_LOCAL)
    assert sum(held) * dtype.itemsize <= local <= target.shared_max
