"""A scan takes a few ops for each element, and has stock's values; a scan for which that does not pay is stock's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lanes import one_of
from tinygrad import Tensor, dtypes
from tinygrad.codegen import get_program
from tinygrad.device import Device
from tinygrad.func import vmap
from tinygrad.uop.ops import Ops
from tinygrad_overlay import _state

RANDOM = np.random.default_rng(0)
Scan = Callable[[np.ndarray, int], np.ndarray]
BY_NUMPY: dict[str, Scan] = {
    "cumsum": np.add.accumulate,
    "cumprod": np.multiply.accumulate,
    "cummax": np.maximum.accumulate,
    "logcumsumexp": np.logaddexp.accumulate,
}
# the longest axis needs three levels of blocks, and no size but the first is a multiple of a block's
SHAPES = [((64, 2048), 1), ((3, 1000, 70), 1), ((40001,), 0)]


def make(*shape: int) -> np.ndarray:
    """Values around one: a product of many stays finite."""
    return (1 + RANDOM.standard_normal(shape) / 100).astype(np.float32)


def count_ops(out: Tensor) -> int:
    """Returns the ops of all kernels."""
    asts = [item.ast for item in out.schedule() if item.ast.op is Ops.SINK]
    return sum(int(get_program(ast, Device[Device.DEFAULT].renderer).estimates.ops) for ast in asts)


def assert_close(found: Tensor, expected: np.ndarray, *, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(found.numpy().astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=lambda value: str(value))
@pytest.mark.parametrize("name", one_of(BY_NUMPY, 2))
def test_scans_have_the_values_of_numpy(name: str, shape: tuple[int, ...], axis: int) -> None:
    values = make(*shape)
    assert_close(getattr(Tensor(values), name)(axis), BY_NUMPY[name](values.astype(np.float64), axis), tolerance=1e-3)


@pytest.mark.parametrize("name", BY_NUMPY)
def test_a_scan_takes_few_ops_for_each_element(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(make(64, 2048)).realize()
    ops = count_ops(getattr(x, name)(1))
    monkeypatch.setattr(_state, "patches", _state.patches - {"short-scans"})
    assert 4 * ops < count_ops(getattr(x, name)(1))


@pytest.mark.slow
def test_the_gradient_of_a_logcumsumexp() -> None:
    x, weight = make(16, 1500), make(16, 1500)
    t = Tensor(x, requires_grad=True)
    (t.logcumsumexp(1) * Tensor(weight)).sum().backward()
    logs = np.logaddexp.accumulate(x.astype(np.float64), 1)
    assert t.grad is not None
    assert_close(t.grad, np.exp(x) * np.cumsum((weight * np.exp(-logs))[:, ::-1], 1)[:, ::-1], tolerance=1e-3)


@pytest.mark.parametrize(
    ("dtype", "result"), [(np.int8, dtypes.int), (np.bool_, dtypes.int), (np.float16, dtypes.half)], ids=str
)
def test_the_dtype_of_a_cumsum_is_stocks(dtype: Any, result: Any) -> None:
    values = RANDOM.integers(0, 2, (64, 3000)).astype(dtype)
    found = Tensor(values).cumsum(1)
    assert found.dtype == result
    # halves can have all whole numbers up to 2,048
    assert np.array_equal(found.numpy(), np.cumsum(values.astype(np.int64), 1))


def test_a_scan_of_large_logarithms_does_not_overflow() -> None:
    values = (RANDOM.standard_normal((64, 600)) * 300).astype(np.float32)
    assert_close(Tensor(values).logcumsumexp(1), np.logaddexp.accumulate(values.astype(np.float64), 1))


def test_a_scan_inside_a_vmap() -> None:
    values = make(4, 40, 600)
    found = vmap(lambda x: x.cumsum(1))(Tensor(values))
    assert_close(found, np.cumsum(values.astype(np.float64), 2), tolerance=1e-3)


@pytest.mark.parametrize("make_scan", [
    lambda: Tensor(make(300)).cumsum(),
    lambda: Tensor(make(40000, 8)).cumsum(1),
    lambda: Tensor.ones(64, 2048).cumsum(1),
    lambda: Tensor(make(10, 20)).logcumsumexp(1),
], ids=["short", "short rows", "constant", "short logcumsumexp"])  # fmt: skip
def test_a_scan_that_does_not_pay_is_stocks(make_scan: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    asts = [item.ast.key for item in make_scan().schedule() if item.ast.op is Ops.SINK]
    monkeypatch.setattr(_state, "patches", _state.patches - {"short-scans"})
    assert asts == [item.ast.key for item in make_scan().schedule() if item.ast.op is Ops.SINK]


@pytest.mark.parametrize("name", BY_NUMPY)
def test_an_axis_that_there_is_not_is_refused_as_by_stock(name: str) -> None:
    with pytest.raises(IndexError, match="out of range"):
        getattr(Tensor(make(64, 2048)), name)(2)
