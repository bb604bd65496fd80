"""vmap over an axis whose size is a Variable: one schedule for all sizes, each with the values that numpy has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scopes import numbers, same
from tinygrad import Tensor, TinyJit, Variable
from tinygrad.engine.schedule import schedule_cache
from tinygrad.func import jacfwd, jvp, vmap

LARGEST = 5
X = numbers(LARGEST, 4, dtype=np.float64)
W = numbers(4, 3, dtype=np.float64)
N = Variable("n", 1, LARGEST)
SIZES = (3, 5, 1, 2)


def rows(size: int, array: np.ndarray = X) -> Tensor:
    return Tensor(array).realize()[: N.bind(size)]


def whole(y: Tensor, size: int, axis: int = 0) -> np.ndarray:
    """The value of a Tensor whose `axis` is symbolic: tinygrad reads memory of fixed sizes alone."""
    padded = y.contiguous().pad(tuple((0, LARGEST - N.bind(size)) if i == axis else None for i in range(y.ndim)))
    return padded.numpy().take(range(size), axis)


def written(v: Tensor) -> Tensor:
    y = v * 1
    y[1:2] = v.sum()
    return y


def numpy_written(v: np.ndarray) -> np.ndarray:
    return np.where(np.arange(4) == 1, v.sum(), v)


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], Any]]] = {
    "elementwise": (lambda v: (v * 2).sin(), lambda v: np.sin(v * 2)),
    "sum": (lambda v: v.sum(), lambda v: v.sum()),
    "softmax": (lambda v: v.softmax(), lambda v: np.exp(v) / np.exp(v).sum()),
    "layer": (lambda v: (v @ Tensor(W)).relu(), lambda v: np.maximum(v @ W, 0)),
    "constant": (lambda v: Tensor.ones(2), lambda v: np.ones(2)),
    "gradient": (lambda v: (v * v).sum().gradient(v)[0], lambda v: 2 * v),
    "jvp": (lambda v: jvp(lambda t: t.sin(), (v,), (v,))[1], lambda v: np.cos(v) * v),
    "jacobian": (jacfwd(lambda v: v @ Tensor(W)), lambda v: W.T),
    "nested": (vmap(lambda e: e * e + 1), lambda v: v * v + 1),
    "two buffers": (lambda v: (v.contiguous() * 2).sum() + v.contiguous().max(), lambda v: 2 * v.sum() + v.max()),
    "setitem": (written, numpy_written),
}


@pytest.mark.parametrize("axis_type", ["loop", "outer"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_size_has_its_values(name: str, axis_type: str) -> None:
    fn, want = FUNCTIONS[name]
    for size in SIZES:
        got = whole(vmap(fn, axis_type=axis_type)(rows(size)), size)
        np.testing.assert_allclose(got, [want(row) for row in X[:size]], rtol=1e-9, atol=1e-12)


def test_all_sizes_have_one_schedule() -> None:
    schedules = set()
    for size in SIZES:
        vmap(lambda v: v * v.sum())(rows(size)).contiguous().realize()
        schedules.add(len(schedule_cache))
    assert len(schedules) == 1


def test_sums_over_the_batch_and_gradients_out_of_it() -> None:
    w = Tensor(W).realize()
    for size in SIZES:
        loss = vmap(lambda v: (v @ w).square().sum())(rows(size)).sum()
        same(loss.gradient(w)[0], X[:size].T @ (X[:size] @ W) * 2)
        same(loss, np.square(X[:size] @ W).sum())


def test_it_may_be_any_axis_and_several_arguments() -> None:
    for size in SIZES:
        by_column = Tensor(X.T.copy()).realize()[:, : N.bind(size)]
        pairs = vmap(lambda a, b, c: a * b.sum() + c, in_axes=(0, 1, None), out_axes=1)(
            rows(size), by_column, Tensor(X[0])
        )
        np.testing.assert_allclose(whole(pairs, size, 1), (X[:size] * X[:size].sum(1, keepdims=True) + X[0]).T)


def test_an_axis_that_is_not_mapped_may_be_symbolic() -> None:
    array = numbers(2, LARGEST, 4, dtype=np.float64)
    for size in SIZES:
        x = Tensor(array).realize()[:, : N.bind(size)]
        same(vmap(lambda v: v.sum(0))(x), array[:, :size].sum(1))
        got = whole(vmap(vmap(lambda v: v / v.sum()))(x), size, 1)
        np.testing.assert_allclose(got, array[:, :size] / array[:, :size].sum(2, keepdims=True))


def test_a_replay_of_tinyjit_has_the_values_of_its_size() -> None:
    @TinyJit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        y = vmap(lambda v: (v @ Tensor(W)).relu() * v.sum())(x)
        return y.sum(0).realize(), y.pad(((0, LARGEST - x.shape[0]), None)).contiguous().realize()

    for size in (*SIZES, 4, 5):
        total, each = step(rows(size))
        want = np.maximum(X[:size] @ W, 0) * X[:size].sum(1, keepdims=True)
        same(total, want.sum(0))
        same(each, np.concatenate([want, np.zeros((LARGEST - size, 3))]))
