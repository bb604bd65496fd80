"""The time that the cost model predicts for a kernel: at least the time of a launch; nothing if codegen fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tinygrad import Tensor, codegen
from tinygrad.engine.schedule import schedule_cache
from tinygrad_overlay import _state

from vmapdbg.child.listen.records import Launch
from vmapdbg.child.listen.values_and_times import predict


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What other tests found out about kernels does not count."""
    schedule_cache.clear()
    monkeypatch.setattr(_state.process, "kernel_works", {})
    yield
    schedule_cache.clear()


def launch(size: int) -> Launch:
    """A sum of `size` products, which is one kernel."""
    (item,) = (Tensor.empty(size) * Tensor.empty(size)).sum().schedule()
    return Launch(item.ast, tuple(Tensor.empty(1).uop.base for _ in item.bufs), True, {}, None)


def test_more_work_takes_longer() -> None:
    short, long = predict(launch(64)), predict(launch(16_000))
    assert short is not None
    assert long is not None
    assert 1e-6 < short < long < 1e-3


def test_nothing_is_predicted_where_codegen_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = launch(64)

    def fail(*_: object) -> None:
        raise RuntimeError("no such axis")

    monkeypatch.setattr(codegen, "apply_opts", fail)
    assert predict(launched) is None
