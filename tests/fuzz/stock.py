"""What a program with derivatives is compared with: loops over single elements, and stock tinygrad's gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from tinygrad import Tensor

from .evaluate import index_of

Axes = tuple[tuple[int | None, ...], ...]


def unroll(fn: Callable[..., Any], sizes: tuple[int, ...], in_axes: Axes, out_axes: Axes, count: int) -> Callable:
    """`fn` on each element, all of it lazy: a derivative can be taken through it."""

    def wrapped(*xs: Tensor) -> Any:
        rows = []
        for at in itertools.product(*[range(s) for s in sizes]):
            # a node of its own for each element, also where the batch is 1 and the slice is the whole
            picked = [
                x[index_of(axes, at, x.ndim)].contiguous_backward() if set(axes) != {None} else x
                for x, axes in zip(xs, in_axes, strict=True)
            ]
            rows.append(as_tuple(fn(*picked), count))
        outs = []
        for i, axes in enumerate(out_axes):
            if axes == (None,):
                outs.append(rows[0][i])
                continue
            stacked = stack([row[i] for row in rows]).reshape(*sizes, *rows[0][i].shape)
            order = permutation(stacked.ndim, [a % stacked.ndim for a in axes if a is not None])
            outs.append(stacked.permute(order))
        return outs[0] if count == 1 else tuple(outs)

    return wrapped


def stack(rows: list[Tensor]) -> Tensor:
    # stock: Tensor.stack(x, x, dim=2).sum() is twice what it should be
    if all(row.uop is rows[0].uop for row in rows):
        return rows[0].unsqueeze(0).expand(len(rows), *rows[0].shape)
    return Tensor.stack(*rows)


def permutation(ndim: int, places: list[int]) -> list[int]:
    """Moves the first axes to `places`."""
    order: list[int | None] = [None] * ndim
    for i, place in enumerate(places):
        order[place] = i
    rest = iter(range(len(places), ndim))
    return [next(rest) if o is None else o for o in order]


def as_tuple(y: Any, count: int) -> tuple[Any, ...]:
    return (y,) if count == 1 else y


def stock_jvp(y: Tensor, x: Tensor, tangent: Tensor) -> Tensor:
    """The derivative of y along `tangent` at x.

    The gradient is linear in the gradient given to it, and the derivative is the gradient to that.
    """
    given = Tensor(np.full(tuple(map(int, y.shape)), 0.5), dtype=y.dtype).contiguous_backward()
    gradient = y.gradient(x, gradient=given, materialize_grads=True)[0]
    return (gradient * tangent).sum().gradient(given, materialize_grads=True)[0]
