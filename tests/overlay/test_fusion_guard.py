"""The guard compares what a fusion makes with what it replaces, kernel by kernel: none is left out."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinygrad import Device, Tensor, Variable, codegen
from tinygrad.codegen import get_program
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.codegen.opt.postrange import Scheduler
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.engine.schedule import schedule_cache
from tinygrad.renderer import Renderer
from tinygrad.renderer.cstyle import CUDARenderer, MetalRenderer, OpenCLRenderer
from tinygrad.schedule.indexing import BufferizeOpts
from tinygrad.uop.ops import AxisType, Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.codegen._work import CannotLower, estimate_work, predict_ns
from tinygrad_overlay.schedule import _fusion, _guard, _reuse
from tinygrad_overlay.schedule._parts import DisjointSets, find_kept
from tinygrad_overlay.schedule._pass import Attempt


def test_joined_things_are_in_one_set() -> None:
    chooses = random.Random(0)
    for _ in range(50):
        sets, expected = DisjointSets(), {n: {n} for n in range(20)}
        for _ in range(chooses.randrange(25)):
            a, b = chooses.randrange(20), chooses.randrange(20)
            sets.join(a, b)
            for n in (joined := expected[a] | expected[b]):
                expected[n] = joined
            assert all((sets.find(a) == sets.find(b)) == (b in expected[a]) for a in range(20) for b in range(20))


def gradient(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def result(x: Tensor) -> Tensor:
        y = function(x)
        return (y * Tensor.empty(*y.shape)).sum().gradient(x)[0]

    return result


@pytest.mark.parametrize("length", [5, 16])
def test_a_row_whose_length_is_a_variable_is_summed_to_its_end(length: int) -> None:
    """The row opts divide a row by its size, and a Variable has none: the sum would be of the longest row."""
    x, wide = Tensor.arange(64 * 16).reshape(64, 16).contiguous().realize(), Tensor.ones(64, 32).contiguous().realize()
    rows = x[:, : Variable("length", 1, 16).bind(length)]
    found = (wide + rows.sum(1, keepdim=True)).numpy()
    assert found.tolist() == (x.numpy()[:, :length].sum(1, keepdims=True) + wide.numpy()).tolist()


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(),
    "softmax of softmax": lambda x: x.softmax().softmax(),
    "norms": lambda x: x.layernorm().softmax().layernorm(),
    "attention": lambda x: x.scaled_dot_product_attention(x, x),
}


def nearest_centers() -> Tensor:
    """A step of k-means: distances and a choice of centers, each of 128 KiB."""
    x, centers = Tensor.empty(2048, 16), Tensor.empty(16, 16)
    distances = (x.unsqueeze(1) - centers.unsqueeze(0)).square().sum(-1)
    chosen = distances.argmin(1).one_hot(16).float()
    return (chosen.T @ x) / chosen.sum(0).maximum(1).unsqueeze(1)


def test_a_fusion_is_worth_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both large buffers are in use at once if the kernel that chooses is fused."""
    peaks: list[int] = []
    fit_memory = _fusion.fit_memory

    def note(run: _fusion.Run, made: Attempt, ret: _fusion.Result) -> Any:
        fitted = fit_memory(run, made, ret)
        stock = _fusion.StockAttempt(run, set()).get()
        peaks.extend(_reuse.find_peak(one, _guard.stored_nodes(one))[0] for one in (made, fitted[0], stock))
        assert _reuse.find_peak(made, find_kept(made))[0] == peaks[-1]
        return fitted

    monkeypatch.setattr(_fusion, "fit_memory", note)
    monkeypatch.setattr(_state.process, "parts", {})
    schedule_cache.clear()
    nearest_centers().schedule()

    fused, fitted, stock = peaks
    assert fused > _reuse.MAX_PEAK * stock
    assert fitted <= _reuse.MAX_PEAK * stock

    peaks.clear()
    monkeypatch.setattr(_guard, "WORTH_MEMORY", -1.0)
    monkeypatch.setattr(_state.process, "parts", {})
    schedule_cache.clear()
    nearest_centers().schedule()
    assert peaks == [fused, fused, stock]


@pytest.mark.parametrize("observed", [False, True])
def test_if_no_fusion_pays_the_kernels_equal_stock(observed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffers exist already by then. They are built again for an observer, which gets the reasons."""
    rules: list[str] = []
    observer = MagicMock()
    observer.fusion_refused = lambda x, refusal: rules.append(refusal.rule)

    def schedule() -> list[bytes]:
        schedule_cache.clear()
        x = Tensor.empty(8, 64)
        out = (x / (x.abs().sum(0, keepdim=True) + 1)) @ Tensor.empty(64, 64)
        return [item.ast.key for item in out.schedule() if item.ast.op is Ops.SINK]

    patched, patches = schedule(), _state.patches
    if observed:
        monkeypatch.setattr(_state, "observer", observer)
        assert schedule() == patched
        assert "slower" in rules
    monkeypatch.setattr(_state, "observer", _state.nobody)
    monkeypatch.setattr(_state, "patches", patches - {"fuse-broadcast", "local-budget", "fusion-guard"})
    assert schedule() == patched


def test_a_gain_in_chains_alone_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adds of a cumulative maximum seem to wait less in one kernel with the sum that reads it: it takes a fifth
    longer."""

    def schedule() -> list[bytes]:
        schedule_cache.clear()
        items = Tensor.empty(64, 512).logcumsumexp(1).schedule()
        return [item.ast.key for item in items if item.ast.op is Ops.SINK]

    monkeypatch.setattr(_state, "patches", _state.patches - {"short-scans"})
    patched = schedule()
    monkeypatch.setattr(_state, "patches", _state.patches - {"fuse-broadcast"})
    assert schedule() == patched


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel_is_compared_with_nothing(name: str, backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of a group compute the same values. A group with one side would never lose."""
    attempts: list[tuple[Attempt, Attempt]] = []
    find_losses = _fusion.find_losses

    def observe(made: Attempt, stock: Attempt) -> dict:
        attempts.append((made, stock))
        return find_losses(made, stock)

    monkeypatch.setattr(_fusion, "find_losses", observe)
    monkeypatch.setattr(_state, "find_renderer", MetalRenderer)
    function = gradient(PROGRAMS[name]) if backward else PROGRAMS[name]
    function(Tensor.empty(3, 8, 32, requires_grad=True)).schedule()
    assert attempts
    for made, stock in attempts:
        groups = _guard.find_groups(made, stock, made.fused)
        assert all(group.fused and group.stock for group in groups)
        assert sum(len(group.fused) for group in groups) <= len(made.kernels)


# *** the time that the cost model predicts for a kernel


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What other tests found out about kernels does not count."""
    schedule_cache.clear()
    monkeypatch.setattr(_state.process, "kernel_works", {})
    yield
    schedule_cache.clear()


def predict(size: int) -> float:
    """Returns the nanoseconds of a sum of `size` products, which is one kernel."""
    (item,) = (Tensor.empty(size) * Tensor.empty(size)).sum().schedule()
    renderer = Device[Device.DEFAULT].renderer
    return predict_ns(estimate_work(item.ast, renderer), renderer)


@pytest.mark.usefixtures("fresh")
def test_more_work_takes_longer() -> None:
    assert 1e3 < predict(64) < predict(16_000) < 1e6


@pytest.mark.usefixtures("fresh")
def test_nothing_is_predicted_where_codegen_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such axis")

    monkeypatch.setattr(codegen, "apply_opts", fail)
    with pytest.raises(CannotLower, match="no such axis"):
        predict(64)


# *** the LOCAL buffers of a kernel and the memory of its GROUP stay together within what the target has


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
