"""The guard compares what a fusion makes with what it replaces, kernel by kernel: none is left out."""

from __future__ import annotations

import random
from collections.abc import Callable
from unittest.mock import MagicMock

import pytest
from tinygrad import Tensor
from tinygrad.engine.schedule import schedule_cache
from tinygrad.renderer.cstyle import MetalRenderer
from tinygrad.uop.ops import Ops
from tinygrad_overlay import _state
from tinygrad_overlay.schedule import _fusion, _guard
from tinygrad_overlay.schedule._parts import DisjointSets
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


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(),
    "softmax of softmax": lambda x: x.softmax().softmax(),
    "norms": lambda x: x.layernorm().softmax().layernorm(),
    "attention": lambda x: x.scaled_dot_product_attention(x, x),
}


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
        assert "no-faster" in rules
    monkeypatch.setattr(_state, "observer", _state.nobody)
    monkeypatch.setattr(_state, "patches", patches - {"fuse-broadcast", "local-budget", "fusion-guard"})
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
        groups = _guard.find_groups(made, stock)
        assert all(group.fused and group.stock for group in groups)
        assert sum(len(group.fused) for group in groups) <= len(made.kernels)
