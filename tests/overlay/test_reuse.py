"""Values that their readers would compute again: which get a buffer, and that nothing else changes (realize-reused)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tinygrad import Tensor, Variable
from tinygrad.engine.schedule import schedule_cache
from tinygrad.func import vmap
from tinygrad.uop.ops import Ops
from tinygrad_overlay import _state
from tinygrad_overlay.codegen import _work
from tinygrad_overlay.schedule import _reuse

Make = Callable[[], Tensor]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """What is said of each value in the schedules of a test, with its node."""
    # what other tests found out is not found out again
    monkeypatch.setattr(_state.process, "parts", {})
    listed: list[tuple[Any, Any]] = []
    find_reused = _reuse.Reuse.choose

    def choose(reuse: _reuse.Reuse) -> dict[Any, Any]:
        chosen = find_reused(reuse)
        listed.extend(chosen.items())
        return chosen

    monkeypatch.setattr(_reuse.Reuse, "choose", choose)
    return listed


def list_kernels(make: Make) -> list[bytes]:
    """Returns the keys of the kernels that a program is scheduled as."""
    schedule_cache.clear()
    return [item.ast.key for item in make().schedule() if item.ast.op is Ops.SINK]


def without_patch(make: Make, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    with monkeypatch.context() as patched:
        patched.setattr(_state, "patches", _state.patches - {"realize-reused"})
        return list_kernels(make)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


A, B = numbers(64, 96), numbers(96, 80, seed=1)


def sine_in_matmul() -> Tensor:
    return Tensor(A).realize().sin() @ Tensor(B).realize()


def test_what_a_matmul_reads_is_computed_once(found: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = list_kernels(sine_in_matmul)
    ((sine, refusal),) = found
    assert sine.op is Ops.SIN
    assert (refusal.patch, refusal.rule) == ("realize-reused", "stored-once")
    assert refusal.numbers["elements"] == A.size
    # each product asks for one; four are computed side by side, and share it
    assert refusal.numbers["evaluations"] == A.size * B.shape[1] // 4
    assert refusal.numbers["ns"] < refusal.numbers["stock_ns"]
    assert len(kernels) == len(without_patch(sine_in_matmul, monkeypatch)) + 1
    np.testing.assert_allclose(sine_in_matmul().numpy(), np.sin(A) @ B, rtol=1e-4, atol=1e-4)


def test_what_two_kernels_compute_is_computed_once(found: list[tuple[Any, Any]]) -> None:
    big = numbers(700, 600)
    shared = Tensor(big).realize().sin()
    columns, rows = shared.sum(0), shared.sum(1)
    Tensor.realize(columns, rows)
    ((node, refusal),) = found
    assert node.op is Ops.SIN
    assert refusal.numbers["kernels"] == 2
    assert refusal.numbers["evaluations"] == 2 * big.size
    np.testing.assert_allclose(columns.numpy(), np.sin(big).sum(0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(rows.numpy(), np.sin(big).sum(1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        # what is computed again is cheap next to the product that asks for it
        lambda: (Tensor(A).realize() + 1) @ Tensor(B).realize(),
        # each element once: nothing to save
        lambda: Tensor(numbers(512, 512)).realize().sin() * 2,
        # computed for each row again, but in less time than a launch takes
        lambda: Tensor(numbers(8, 8)).realize() * Tensor(numbers(1, 8)).realize().sin(),
        # an index: the sum over the table is none
        lambda: Tensor(numbers(300, 40)).realize()[Tensor(np.arange(200) % 300).realize()] * 2,
        lambda: Tensor.arange(4096).reshape(64, 64).float() @ Tensor(numbers(64, 64)).realize(),
        # the values of a row, of which softmax computes one twice
        lambda: Tensor(numbers(256, 256)).realize().softmax(),
        lambda: Tensor(numbers(256, 256)).realize().layernorm(),
    ],
    ids=["cheap", "once", "small", "gather", "arange", "softmax", "layernorm"],
)
def test_what_does_not_pay_is_left_as_it_is(
    make: Make, found: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list_kernels(make) == without_patch(make, monkeypatch)
    assert not found


def test_memory_is_bounded(found: list[tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer that saves less than WORTH_MEMORY of the time may not make the peak much larger."""
    monkeypatch.setattr(_reuse, "WORTH_MEMORY", 0.99)
    assert list_kernels(sine_in_matmul) == without_patch(sine_in_matmul, monkeypatch)
    ((_, refusal),) = found
    result = 4 * A.shape[0] * B.shape[1]
    assert (refusal.rule, refusal.numbers["peak"], refusal.numbers["stock_peak"]) == (
        "over-memory",
        A.nbytes + result,
        result,
    )


def scan() -> Tensor:
    """A selective scan as in Mamba: the decay of each step is a sum over all steps before it."""

    def weight(seed: int, *shape: int) -> Tensor:
        return Tensor(numbers(*shape, seed=seed) / 8).realize()

    x, gate = (weight(0, 2, 128, 64) @ weight(1, 64, 128)).chunk(2, dim=-1)
    x = x.silu()
    steps = (x @ weight(2, 64, 64)).softplus()
    decay = (steps.unsqueeze(-1) * -weight(3, 64, 16).abs()).cumsum(1).clip(-30, 0)
    states = (steps * x).unsqueeze(-1) * (x @ weight(4, 64, 16)).unsqueeze(2)
    states = decay.exp() * (states * (-decay).exp()).cumsum(1)
    return ((states * (x @ weight(5, 64, 16)).unsqueeze(2)).sum(-1) * gate.silu()) @ weight(6, 64, 64)


def test_a_choice_is_compared_with_stock_s_own_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fusion may not remove a buffer without which another choice only seems to pay: the scan ran 8 times the ops."""

    def count_ops() -> int:
        schedule_cache.clear()
        renderer = _work.find_renderer("CPU")
        asts = [item.ast for item in scan().schedule() if item.ast.op is Ops.SINK]
        return sum(_work.estimate_work(ast, renderer).ops for ast in asts)

    patched = count_ops()
    monkeypatch.setattr(_state, "patches", _state.patches - {"fuse-broadcast", "realize-reused"})
    assert patched <= count_ops()


def test_one_index_is_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is read in many ways at one index is computed once in a kernel."""
    regions: list[_reuse.Region] = []
    walk = _reuse.Reuse.walk

    def note(reuse: _reuse.Reuse, root: Any) -> _reuse.Region:
        regions.append(walk(reuse, root))
        return regions[-1]

    monkeypatch.setattr(_reuse.Reuse, "walk", note)
    monkeypatch.setattr(_state.process, "parts", {})
    size = 40_000
    x, rows = Tensor(numbers(size)).realize(), []
    for _ in range(4):
        # a buffer is thought of at each step, because two values read it along other axes
        rows.append((x.reshape(200, 200).sum(0), x.reshape(200, 200).sum(1)))
        x = (x * 2).sin() + x.sin()
    Tensor.realize(x, *(row for pair in rows for row in pair))
    assert regions
    assert max(max(region.inlined.values(), default=0) for region in regions) <= size


def test_the_first_stored_value_may_no_longer_pay() -> None:
    """Of a chain of expensive values it is enough to store what the matmul reads."""

    def make() -> Tensor:
        x = Tensor(A).realize()
        scale = Tensor(numbers(64, 1, seed=3)).realize().sin()
        return (x.sin() * scale) @ Tensor(B).realize()

    kernels = list_kernels(make)
    assert len(kernels) <= 3
    np.testing.assert_allclose(make().numpy(), (np.sin(A) * np.sin(numbers(64, 1, seed=3))) @ B, rtol=1e-4, atol=1e-4)


def test_in_a_scope(found: list[tuple[Any, Any]]) -> None:
    """The steps of a batch that compute one value again are loops around it, too."""
    batch = numbers(6, 64, 96)
    ret = vmap(lambda a: a.sin() @ Tensor(B).realize())(Tensor(batch).realize())
    np.testing.assert_allclose(ret.numpy(), np.sin(batch) @ B, rtol=1e-4, atol=1e-4)
    assert any(node.op is Ops.SIN for node, _ in found)


def test_a_size_that_is_a_variable(found: list[tuple[Any, Any]]) -> None:
    steps = Variable("steps", 1, 64)
    x, w = Tensor(A).realize(), Tensor(B).realize()
    for bound in (5, 64):
        got = (x.shrink(((0, steps.bind(bound)), None)).sin() @ w).sum(0).numpy()
        np.testing.assert_allclose(got, (np.sin(A[:bound]) @ B).sum(0), rtol=1e-3, atol=1e-3)
    # such a graph is decided about as a whole
    assert any(node.op is Ops.SIN for node, _ in found)


def test_the_patch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs none of the others."""
    monkeypatch.setattr(_state, "patches", frozenset({"realize-reused"}))
    stored = list_kernels(sine_in_matmul)
    np.testing.assert_allclose(sine_in_matmul().numpy(), np.sin(A) @ B, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(_state, "patches", frozenset())
    assert len(stored) == len(list_kernels(sine_in_matmul)) + 1
