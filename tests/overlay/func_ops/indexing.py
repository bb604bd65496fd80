"""Indexing by ints, slices, lists and tensors; gather, scatter, one_hot, setitem."""

from __future__ import annotations

from typing import Any

from tinygrad import Tensor

from .data import Op, X, bools, floats, integers, op

ROW = integers(0, 2, 2)
COLUMN = integers(0, 3, 2)


def written(x: Tensor, index: Any, value: Any) -> Tensor:
    y = x * 1
    y[index] = value
    return y


OPS: list[Op] = [
    op("x[1]", lambda x: x[1]),
    op("x[-1, 2]", lambda x: x[-1, 2]),
    op("x[:, 1:]", lambda x: x[:, 1:]),
    op("x[::-1]", lambda x: x[::-1]),
    op("x[:, ::2]", lambda x: x[:, ::2]),
    op("x[None, ..., 0]", lambda x: x[None, ..., 0]),
    op("x[1:][:, :2]", lambda x: x.exp()[1:][:, :2]),
    op("x[1:1] is empty", lambda x: x[1:1].sum() + x),
    op("x[[1, 0]]", lambda x: x[[1, 0]]),
    op("x[:, [2, 0, 2]]", lambda x: x[:, [2, 0, 2]]),
    op("x[[0, 1], [2, 0]]", lambda x: x[[0, 1], [2, 0]]),
    op("x[1, [0, 2]]", lambda x: x[1, [0, 2]]),
    op("x[Tensor]", lambda x: x[Tensor([1, 0, 1])]),
    op("x[i]", lambda x, i: x[i], X, integers(0, 2)),
    op("x[rows]", lambda x, i: x[i], X, ROW),
    op("x[:, columns]", lambda x, i: x[:, i], X, COLUMN),
    op("x[rows, columns]", lambda x, i, j: x[i, j], X, ROW, COLUMN),
    op("x[-i]", lambda x, i: x[-1 - i], X, ROW),
    op("x[argmax]", lambda x: x[x.sum(1).argmax()]),
    op("gather", lambda x, i: x.gather(1, i), X, integers(0, 3, 2, 2)),
    op("gather 0", lambda x, i: x.gather(0, i), X, integers(0, 2, 2, 3)),
    op("gather at argmax", lambda x: x.gather(1, x.argmax(1, keepdim=True))),
    op("scatter", lambda x, s: x.scatter(1, Tensor([[0, 2], [1, 0]]), s), X, floats(2, 2)),
    op("scatter by element", lambda x, i: x.scatter(1, i, 5.0), X, integers(0, 3, 2, 1)),
    op("scatter add", lambda x, i: x.scatter(1, i, 1.5, reduce="add"), X, integers(0, 3, 2, 2)),
    op("scatter multiply", lambda x: x.scatter(1, Tensor([[0], [2]]), 3.0, reduce="multiply")),
    op("scatter_reduce prod", lambda x, i, s: x.scatter_reduce(1, i, s, "prod"), X, integers(0, 3, 2, 2), floats(2, 2)),
    op(
        "scatter_reduce sum",
        lambda x, i, s: x.scatter_reduce(1, i, s, "sum"),
        X, integers(0, 3, 2, 2), floats(2, 2),
    ),
    op(
        "scatter_reduce amax",
        lambda x, i, s: x.scatter_reduce(0, i, s, "amax", include_self=False),
        X, integers(0, 2, 1, 3), floats(1, 3),
    ),
    op("one_hot", lambda i: i.one_hot(3), integers(0, 3, 2), moves=False),
    op("one_hot @ x", lambda x, i: i.one_hot(2).float() @ x, X, ROW),
    op("embedding", lambda x, i: (i.unsqueeze(-1) == Tensor.arange(2)).float() @ x, X, ROW),
    op("mask and sum", lambda x, m: (x * m).sum(1), X, bools(2, 3)),
    op("index after a reduce", lambda x: x.sum(1)[[1, 0, 1]]),
    op("index of a softmax", lambda x: x.softmax(-1)[:, [2, 1]]),
    op("setitem int", lambda x: written(x, 0, 2.0), moves=False),
    op("setitem slice", lambda x, y: written(x, (slice(None), slice(1, None)), y), X, floats(2, 2), moves=False),
    op("setitem of its own sum", lambda x: written(x, (slice(0, 1), slice(0, 1)), x.sum()), moves=False),
    op("setitem list", lambda x: written(x, [1], 7.0), moves=False),
]  # fmt: skip
