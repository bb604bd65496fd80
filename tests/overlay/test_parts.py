"""What has nothing to decide is scheduled once: the buffers of stock's schedule are known without scheduling it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tinygrad import Tensor
from tinygrad.engine.schedule import schedule_cache
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule import _fusion, rangeify
from tinygrad_overlay.schedule._parts import find_kept
from tinygrad_overlay.schedule._pass import Attempt

Make = Callable[[], Tensor]


def training() -> Tensor:
    x, w = Tensor.empty(32, 64), Tensor.empty(64, 48)
    return (x @ w).layernorm().softmax().square().mean().gradient(w)[0]


def shared_reads() -> Tensor:
    a, b, c, d = (Tensor.empty(64, 64) for _ in range(4))
    # four buffers are more than stock lets a value read that is computed again
    wide = a.exp() + b.exp() + c.exp() + d.exp()
    narrow = a.exp() + b.exp()
    return (wide @ a) + (narrow @ b)


def attention() -> Tensor:
    q, k, v = (Tensor.empty(2, 64, 32) for _ in range(3))
    return q.scaled_dot_product_attention(k, v)


def scores() -> Tensor:
    x = Tensor.empty(16, 128)
    picked = x[Tensor.arange(16), Tensor.empty(16, dtype="int")]
    return x.softmax().cumsum(1) + picked.unsqueeze(1)


PROGRAMS: dict[str, Make] = {
    "softmax": lambda: Tensor.empty(64, 64).softmax(),
    "attention": attention,
    "training": training,
    "shared reads": shared_reads,
    "scores": scores,
    "copies": lambda: Tensor.empty(8, 8).contiguous().T.contiguous().sum(0),
    "sort": lambda: Tensor.empty(4, 64).sort()[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kept_buffers_are_those_of_stock(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[set[UOp], set[UOp]]] = []
    decide = _fusion.decide_fusions

    def compare(sink: UOp, run_stages: Callable[[UOp], dict[UOp, UOp]]) -> dict[UOp, UOp]:
        made, stock = (
            _fusion.make_attempt(lambda: run_stages(sink), Attempt(is_compared=True, keeps_all=keeps))[0]
            for keeps in (False, True)
        )
        kept = {x for x in find_kept(made) if x in made.ctx.realize_map or x in made.fused}
        seen.append(
            ({x for x in kept if x.op is not Ops.BUFFER}, {k.node for k in stock.kernels if k.node is not None})
        )
        return decide(sink, run_stages)

    monkeypatch.setattr(_fusion, "decide_fusions", compare)
    schedule_cache.clear()
    PROGRAMS[name]().schedule()
    assert seen
    assert all(stock for _, stock in seen)
    assert all(kept == stock for kept, stock in seen)


def count_runs(make: Make, monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns how often the stages run for a program."""
    # what other tests found out is not found out again
    monkeypatch.setattr(_state.process, "parts", {})
    runs: list[UOp] = []
    run_stages = rangeify.stock_get_rangeify_map

    def note(sink: UOp) -> dict[UOp, UOp]:
        runs.append(sink)
        return run_stages(sink)

    monkeypatch.setattr(rangeify, "stock_get_rangeify_map", note)
    schedule_cache.clear()
    make().schedule()
    return len(runs)


def cholesky() -> Tensor:
    full = Tensor.empty(256, 4, 4)
    lower: dict[tuple[int, int], Tensor] = {}
    for i in range(4):
        for j in range(i + 1):
            left = full[:, i, j]
            for k in range(j):
                left = left - lower[i, k] * lower[j, k]
            lower[i, j] = left.sqrt() if i == j else left / lower[j, j]
    return Tensor.stack(*lower.values())


@pytest.mark.parametrize("make", [PROGRAMS["sort"], PROGRAMS["copies"], cholesky])
def test_without_a_choice_the_stages_run_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_runs(make, monkeypatch) == 1


@pytest.mark.parametrize("name", ["softmax", "shared reads"])
def test_a_choice_is_compared_with_stock(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fusion, and a value that a matmul would compute again: with one run, nothing would be compared."""
    assert count_runs(PROGRAMS[name], monkeypatch) > 1
