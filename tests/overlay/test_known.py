"""Decisions about fusions are kept on disk: another process makes each schedule once, with the same kernels."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from tinygrad import Tensor
from tinygrad.engine.schedule import schedule_cache
from tinygrad.func import vmap
from tinygrad.helpers import Context
from tinygrad.uop.ops import Ops, UOp
from tinygrad_overlay import _state
from tinygrad_overlay.schedule import _known, rangeify


class Runs:
    """Schedules programs as new processes with one cache on disk would. Counts the runs of the stages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk: dict[str, bytes] = {}
        self.count = 0
        stages = rangeify.stock_get_rangeify_map

        def run_stages(sink: UOp) -> dict[UOp, UOp]:
            self.count += 1
            return stages(sink)

        def get(_: str, key: str) -> Any:
            return pickle.loads(self.disk[key]) if key in self.disk else None

        monkeypatch.setattr(rangeify, "stock_get_rangeify_map", run_stages)
        monkeypatch.setattr(_known, "diskcache_get", get)
        monkeypatch.setattr(_known, "diskcache_put", lambda _, key, value: self.disk.update({key: pickle.dumps(value)}))
        monkeypatch.setattr(_state.process, "keeps_decisions", True)

    def schedule(self, make: Callable[[], Tensor]) -> tuple[int, list[bytes]]:
        """Returns how often the stages ran, and the keys of the kernels."""
        schedule_cache.clear()
        for known in ("kernel_works", "kernel_verdicts", "kernel_reduces", "parts"):
            getattr(_state.process, known).clear()
        self.count = 0
        kernels = make().schedule()
        return self.count, [item.ast.key for item in kernels if item.ast.op is Ops.SINK]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def training() -> Tensor:
    x, w = Tensor.empty(32, 64), Tensor.empty(64, 48)
    return (x @ w).layernorm().softmax().square().mean().gradient(w)[0]


def attention() -> Tensor:
    q, k, v = (Tensor.empty(2, 64, 32) for _ in range(3))
    return q.scaled_dot_product_attention(k, v)


def rotary() -> Tensor:
    angles = Tensor.arange(64).reshape(64, 1) * Tensor.empty(32).exp()
    return (Tensor.empty(16, 64, 32) * angles.cos() + Tensor.empty(16, 64, 32) * angles.sin()).softmax()


def scope() -> Tensor:
    """The gradient of each sample, with a RANGE that has another id in each call."""
    x, w = Tensor.empty(16, 64), Tensor.empty(64, 48)
    return vmap(lambda one: (one @ w).softmax().square().mean().gradient(w)[0])(x)


@pytest.mark.parametrize("make", [training, attention, rotary, scope])
def test_another_process_decides_nothing(runs: Runs, make: Callable[[], Tensor]) -> None:
    first, kernels = runs.schedule(make)

    assert first > 1
    assert len(runs.disk) == 1
    assert runs.schedule(make) == (1, kernels)


def test_what_is_decided_at_once_is_not_kept(runs: Runs) -> None:
    assert runs.schedule(lambda: Tensor.empty(8, 8) + 1)[0] == 1
    assert not runs.disk


def test_another_setting_or_target_decides_anew(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.schedule(attention)

    with Context(SPLIT_REDUCEOP=0):
        assert runs.schedule(attention)[0] > 1
    monkeypatch.setattr(_known, "digest_code", lambda: "other code")
    assert runs.schedule(attention)[0] > 1
    assert len(runs.disk) == 3


@pytest.mark.parametrize("error", [OSError("read-only"), sqlite3.OperationalError("locked")])
def test_without_a_cache_each_process_decides(error: Exception, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    first, kernels = runs.schedule(attention)
    fails = Mock(side_effect=error)
    monkeypatch.setattr(_known, "diskcache_get", fails)
    monkeypatch.setattr(_known, "diskcache_put", fails)

    assert runs.schedule(attention) == (first, kernels)
    assert fails.call_count == 2


def test_an_observer_sees_the_decisions_made(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    class Listener(type(_state.nobody)):
        listens = True

    first, kernels = runs.schedule(attention)
    monkeypatch.setattr(_state, "observer", Listener())

    assert runs.schedule(attention)[0] >= first
    assert runs.schedule(attention)[1] == kernels
