"""Programs of movement ops, joins, indexing and sorting."""

from __future__ import annotations

from typing import Any

from stock_registry import MATRICES, data, program
from tinygrad import Tensor, dtypes, nn

# *** movement


@program(*MATRICES)
def movement(*shape: int) -> Any:
    x = data(*shape)
    return (
        x.T + 1,
        x.flip(0) * x,
        x.pad(((1, 2), (0, 3))).contiguous(),
        x.repeat(2, 3).sum(0),
        x.roll(2, 1) + x.roll(-1, 0),
        x.reshape(-1).unsqueeze(0).expand(3, -1).contiguous(),
        x.shrink(((0, 1), (0, 2))).exp(),
        x.flatten().pad((3, 3), value=float("-inf")).max(),
    )


@program(*((axis, n) for axis in (0, 1) for n in (2, 3, 7)))
def joins(axis: int, n: int) -> Any:
    parts = [data(3, 4) for _ in range(n)]
    joined = Tensor.cat(*parts, dim=axis)
    return joined + 1, Tensor.stack(*parts, dim=axis).sum(axis), joined.sum(axis), *joined.split(2, dim=axis)


@program(4, 30, 300)
def ranges(n: int) -> Any:
    return (
        Tensor.arange(n).contiguous(),
        Tensor.arange(n).sum(),
        Tensor.linspace(0, 1, n) * 2,
        Tensor.arange(n, 0, -2) + 1,
    )


# *** indexing


@program(*((rows, picked) for rows in (5, 40) for picked in (1, 4)))
def fancy_indexing(rows: int, picked: int) -> Any:
    x, index = data(rows, 6), data(picked, dtype=dtypes.int32)
    return (
        x[index],
        x[index, 2],
        x[:, [1, 3]] * 2,
        x[[0, 2]][:, index % 6],
        x[index].sum(0),
        x[index.reshape(-1, 1), [0, 1]],
    )


@program(*((n, axis) for n in (4, 9) for axis in (0, 1)))
def gather_and_scatter(n: int, axis: int) -> Any:
    x, index = data(n, n), data(n, n, dtype=dtypes.int32)
    return (
        x.gather(axis, index),
        x.scatter(axis, index, x * 2),
        x.scatter_reduce(axis, index, x, "sum"),
        index.one_hot(n).sum(0),
    )


@program(*((rows, dtype) for rows in (3, 50) for dtype in (dtypes.float32, dtypes.half)))
def embedding(rows: int, dtype: Any) -> Any:
    table = nn.Embedding(rows, 8)
    table.weight = data(rows, 8, dtype=dtype).requires_grad_()
    out = table(data(2, 5, dtype=dtypes.int32))
    out.square().sum().backward()
    return out, table.weight.grad


@program(*((n, axis) for n in (2, 5) for axis in (0, 1)))
def sorting(n: int, axis: int) -> Any:
    x = data(n, n)
    values, places = x.sort(axis)
    return values, places, x.argsort(axis), *x.topk(min(n, 3), axis), x.sort(axis, descending=True)[0].sum()


@program(*((shape, dtype) for shape in ((4, 4), (3, 8)) for dtype in (dtypes.float32, dtypes.int32)))
def setitem(shape: tuple[int, ...], dtype: Any) -> None:
    x = data(*shape, dtype=dtype)
    x[0] = 3
    x[1:, 2] = data(shape[0] - 1, dtype=dtype)
    x[:, 1:3] = x[:, 0:2] + 1
    x.realize()
