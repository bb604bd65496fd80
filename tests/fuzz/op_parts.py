"""The parts of the table of ops (ops.py): `Op`, parameters that fit a value, and numpy functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .draw import Draw

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Op:
    """`text` takes the names of the args and the params, `value` the arrays and the params.

    `draw` returns params that fit the arrays, or None if none fit. `kinds` holds the numpy kinds that the
    first argument may have. `after` is a line that follows, with the name of the result and the params.
    """

    text: Callable[..., str]
    value: Callable[..., Any]
    draw: Callable[..., tuple[Any, ...] | None] = lambda d, *xs: ()
    arity: int = 1
    kinds: str = "f"
    weight: int = 2
    after: Callable[..., str] | None = None
    only_inside: bool = False  # of an element of a batch
    only_outside: bool = False
    derivable: bool = True  # may be in a program with derivatives


def pre(axis: int) -> str:
    return ":, " * axis


def axis_of(d: Draw, x: Array, *more: Any) -> tuple[Any, ...] | None:
    return (d.integer(0, x.ndim - 1), *more) if x.ndim else None


def long_axis_of(d: Draw, x: Array, *more: Any) -> tuple[Any, ...] | None:
    axes = [i for i, s in enumerate(x.shape) if s > 1]
    return (d.choice(axes), *more) if axes else None


def with_indices(d: Draw, x: Array) -> tuple[Any, ...] | None:
    if not x.ndim:
        return None
    axis = d.integer(0, x.ndim - 1)
    return axis, tuple(d.integer(0, x.shape[axis] - 1) for _ in range(d.integer(1, 3)))


def with_index(d: Draw, x: Array) -> tuple[Any, ...] | None:
    if not x.ndim:
        return None
    axis = d.integer(0, x.ndim - 1)
    return axis, d.integer(0, x.shape[axis] - 1) - (x.shape[axis] if d.chance(30) else 0)


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def pad(x: Array, from_end: int, before: int, after: int) -> Array:
    axis = x.ndim - from_end
    if axis < 0:
        raise ValueError("no such axis")
    return np.pad(x, [(before, after) if i == axis else (0, 0) for i in range(x.ndim)])


def pad_text(a: str, from_end: int, before: int, after: int) -> str:
    return f"{a}.pad(({'0, 0, ' * (from_end - 1)}{before}, {after}))"


def repeat(x: Array, axis: int, times: int, ndim: int) -> Array:
    if x.ndim != ndim:
        raise ValueError("another rank")
    return np.repeat(np.expand_dims(x, axis), times, axis)


def repeat_text(a: str, axis: int, times: int, ndim: int) -> str:
    return f"{a}.unsqueeze({axis}).expand({', '.join([*['-1'] * axis, str(times), *['-1'] * (ndim - axis)])})"


def merge(x: Array, axis: int) -> Array:
    if axis + 1 >= x.ndim:
        raise ValueError("no such axis")
    return x.reshape(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])


def split(x: Array, axis: int, by: int) -> Array:
    return x.reshape(*x.shape[:axis], by, x.shape[axis] // by, *x.shape[axis + 1 :])


def draw_split(d: Draw, x: Array) -> tuple[Any, ...] | None:
    fits = [(i, by) for i, s in enumerate(x.shape) for by in (2, 3, 5) if s % by == 0]
    return d.choice(fits) if fits else None


def draw_permute(d: Draw, x: Array) -> tuple[Any, ...] | None:
    if x.ndim < 2:
        return None
    left, order = list(range(x.ndim)), []
    while left:
        order.append(left.pop(d.integer(0, len(left) - 1)))
    return (tuple(order),)


def at_axis(x: Array, axis: int, index: Any) -> Array:
    if axis >= x.ndim:
        raise ValueError("no such axis")
    return x[(slice(None),) * axis + (index,)]


def put(x: Array, axis: int, index: Any, value: Any) -> Array:
    ret = x.copy()
    ret[(slice(None),) * axis + (index,)] = value
    return ret


def gather_index(x: Array, axis: int, seed: int) -> Array:
    shape = tuple(2 if i == axis else s for i, s in enumerate(x.shape))
    return np.random.default_rng(seed).integers(0, x.shape[axis], shape).astype(np.int32)


def like(x: Array, v: Any) -> Array:
    """numpy makes int64 of an int32 sum, and float64 of a bool mean: tinygrad keeps the dtype."""
    return np.asarray(v).astype(x.dtype)


def fits_together(d: Draw, x: Array, y: Array) -> tuple[Any, ...] | None:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return None
    return ()


def same_shape(d: Draw, x: Array, y: Array) -> tuple[Any, ...] | None:
    return () if x.shape == y.shape else None


def fits_matmul(d: Draw, x: Array, y: Array) -> tuple[Any, ...] | None:
    # a batched matmul of other shapes is left to broadcasting ops
    return () if x.ndim in (1, 2) and y.ndim in (1, 2) and x.shape[-1] == y.shape[0] else None


def fits_cat(d: Draw, x: Array, y: Array) -> tuple[Any, ...] | None:
    if x.ndim != y.ndim or not x.ndim:
        return None
    fits = [a for a in range(x.ndim) if x.shape[:a] + x.shape[a + 1 :] == y.shape[:a] + y.shape[a + 1 :]]
    return (d.choice(fits),) if fits else None


def draw_tensor_index(d: Draw, x: Array, y: Array) -> tuple[Any, ...] | None:
    if y.ndim > 1 or y.size > 4:
        return None
    return long_axis_of(d, x)


def layernorm(x: Array, axis: int) -> Array:
    y = x - x.mean(axis, keepdims=True)
    return like(x, y / np.sqrt((y * y).mean(axis, keepdims=True) + 1e-5))


def draw_shrink(d: Draw, x: Array) -> tuple[Any, ...] | None:
    axes = [i for i, s in enumerate(x.shape) if s > 1]
    if not axes:
        return None
    at = d.choice(axes)
    start = d.integer(0, x.shape[at] - 1)
    return at, start, d.integer(start + 1, x.shape[at])
