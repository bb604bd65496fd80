"""Programs of elementwise ops, casts, constants and reduces."""

from __future__ import annotations

from typing import Any

from stock_registry import FLOATS, INTS, MATRICES, data, program, shapes
from tinygrad import Tensor, dtypes

# *** elementwise, casts, constants


@program(*((shape, dtype) for shape in ((6,), (3, 5)) for dtype in (*FLOATS, *INTS)))
def arithmetic(shape: tuple[int, ...], dtype: Any) -> Any:
    a, b = data(*shape, dtype=dtype), data(*shape, dtype=dtype)
    return a * b + a, (a - b).maximum(a), (a < b).where(a, b * 2), a.cast(dtypes.float32) / 3


@program(*((a, b) for a in (dtypes.float32, dtypes.int8, dtypes.bool) for b in (*FLOATS, *INTS, dtypes.bool)))
def casts(source: Any, target: Any) -> Any:
    x = data(4, 6, dtype=source)
    return x.cast(target).contiguous(), x.cast(target).sum(1), x.sum(0).cast(target)


@program()
def constant_folding() -> Any:
    x, ones, zeros = data(4, 4), Tensor.ones(4, 4), Tensor.zeros(4, 4)
    return (
        x * 0 + 1,
        x + zeros,
        x * ones,
        ones.sum(),
        (ones + 2).sum(0),
        zeros.contiguous(),
        Tensor.full((3,), 7.0) ** 2,
    )


@program(*shapes((0,), (0, 4), (3, 0, 2)))
def size_zero(shape: tuple[int, ...]) -> Any:
    x = data(*shape)
    return x + 1, x.sum(), x.sum(0), x.exp().contiguous(), Tensor.ones(2, *shape[1:]).cat(x)


# *** reduces


@program(*((shape, axis) for shape in MATRICES for axis in (None, 0, 1, (0, 1))))
def reduces(shape: tuple[int, ...], axis: Any) -> Any:
    x = data(*shape)
    return (x.sum(axis), x.max(axis), x.mean(axis), x.min(axis) + x.sum(axis), x.exp().sum(axis, keepdim=True) * x)


@program(*((shape, dtype) for shape in ((4, 4, 4), (2, 3, 5)) for dtype in (*FLOATS, *INTS)))
def chained_reduces(shape: tuple[int, ...], dtype: Any) -> Any:
    x = data(*shape, dtype=dtype)
    return x.sum(2).sum(1), x.sum(0).max(1), (x - x.sum(2, keepdim=True)).sum(0), x.prod(1)


@program(*shapes((256, 255), (64, 1024), (70000,), (3, 40000)))
def split_reduces(shape: tuple[int, ...]) -> Any:
    x = data(*shape)
    return x.sum(), (x * 2).sum(-1), x.max(), (x.sum() + x.max()) * x[..., 0].sum()


@program(*MATRICES)
def spread(*shape: int) -> Any:
    x = data(*shape)
    return x.var(), x.std(1), x.var_mean(0)[0], x.std_mean(1)[1], ((x - x.mean()) ** 2).mean()


@program(*((n, axis) for n in (5, 16, 600) for axis in (0, 1)))
def scans(n: int, axis: int) -> Any:
    x = data(n, 4) if axis == 0 else data(4, n)
    return x.cumsum(axis), x.cumprod(axis), x.cummax(axis)[0], x.logcumsumexp(axis)
