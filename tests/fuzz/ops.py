"""The ops of random programs: how each is written in tinygrad, what it is in numpy, and which parameters fit a value.

Comparisons are against odd constants, so that no rounding decides them. An op is kept away from what stock tinygrad
0.12.0 does wrong without any scope; each such place says what that is.
"""

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


OPS: dict[str, Op] = {
    # elementwise
    "neg": Op(lambda a: f"-{a}", lambda a: -a, kinds="fi"),
    "half": Op(lambda a: f"{a} * 0.5", lambda a: like(a, a * 0.5)),
    "plus": Op(lambda a: f"{a} + 0.25", lambda a: like(a, a + 0.25)),
    "plus_int": Op(lambda a: f"{a} + 2", lambda a: a + np.int32(2), kinds="i"),
    "square": Op(lambda a: f"{a} * {a} * 0.3", lambda a: like(a, a * a * 0.3)),
    "sin": Op(lambda a: f"{a}.sin()", np.sin),
    "tanh": Op(lambda a: f"{a}.tanh()", np.tanh),
    "relu": Op(lambda a: f"({a} + 0.0123457).relu()", lambda a: like(a, np.maximum(a + 0.0123457, 0))),
    # stock: codegen rewrites without end if a list indexes the abs of a sum of three, so there is no abs
    "exp": Op(lambda a: f"({a} * 0.1).exp()", lambda a: like(a, np.exp(a * 0.1))),
    "sqrt": Op(lambda a: f"({a}.square() + 0.1).sqrt()", lambda a: like(a, np.sqrt(a * a + 0.1))),
    "recip": Op(lambda a: f"1 / ({a}.square() + 1)", lambda a: like(a, 1 / (a * a + 1))),
    "above": Op(lambda a: f"{a} > 0.0345678", lambda a: a > 0.0345678),
    "not": Op(lambda a: f"{a}.logical_not()", np.logical_not, kinds="b"),
    "select": Op(
        lambda a: f"({a} > 0.0234567).where({a}, {a} * 0.1 - 1)",
        lambda a: like(a, np.where(a > 0.0234567, a, a * 0.1 - 1)),
    ),
    "to_float32": Op(lambda a: f"{a}.cast(dtypes.float32)", lambda a: a.astype(np.float32), kinds="fib"),
    "to_float64": Op(lambda a: f"{a}.cast(dtypes.float64)", lambda a: a.astype(np.float64), kinds="fib"),
    "to_int32": Op(
        lambda a: f"({a} * 3 + 0.0456789).cast(dtypes.int32)", lambda a: (a * 3 + 0.0456789).astype(np.int32), weight=1
    ),
    "contiguous": Op(lambda a: f"{a}.contiguous()", lambda a: a, kinds="fib", weight=6),
    "backward_contiguous": Op(lambda a: f"{a}.contiguous_backward()", lambda a: a, weight=1),
    "detach": Op(lambda a: f"{a}.detach()", lambda a: a, kinds="fib", weight=1),
    # stock: clone is an ASSIGN, which drops gradients
    "clone": Op(lambda a: f"{a}.clone()", lambda a: a, kinds="fib", derivable=False),
    "realize": Op(
        lambda a: a, lambda a: a, kinds="fib", after=lambda out: f"{out}.realize()", only_outside=True, derivable=False
    ),
    # reduces
    "sum": Op(lambda a, i: f"{a}.sum({i})", lambda a, i: like(a, a.sum(i)), axis_of, kinds="fi", weight=5),
    "sum_all": Op(lambda a: f"{a}.sum()", lambda a: like(a, a.sum()), kinds="fi"),
    "sum_keep": Op(
        lambda a, i: f"{a}.sum({i}, keepdim=True)", lambda a, i: like(a, a.sum(i, keepdims=True)), axis_of, kinds="fi"
    ),
    "mean": Op(lambda a, i: f"{a}.mean({i})", lambda a, i: like(a, a.mean(i)), axis_of),
    "max": Op(lambda a, i: f"{a}.max({i})", lambda a, i: a.max(i), axis_of, kinds="fi", weight=4),
    "min": Op(lambda a, i: f"{a}.min({i})", lambda a, i: a.min(i), axis_of, kinds="fi", weight=1),
    "prod": Op(lambda a, i: f"{a}.prod({i})", lambda a, i: like(a, a.prod(i)), axis_of, weight=1),
    "any": Op(lambda a, i: f"{a}.any({i})", lambda a, i: a.any(i), axis_of, kinds="b"),
    "argmax": Op(lambda a, i: f"{a}.argmax({i})", lambda a, i: np.asarray(a.argmax(i)).astype(np.int32), axis_of),
    "cumsum": Op(lambda a, i: f"{a}.cumsum({i}) * 0.3", lambda a, i: like(a, np.cumsum(a, i) * 0.3), axis_of),
    "sort": Op(lambda a, i: f"{a}.sort({i})[0]", lambda a, i: np.sort(a, i), axis_of, weight=1),
    "deviation": Op(
        lambda a, i: f"({a}.var({i}) + 0.1).sqrt()", lambda a, i: like(a, np.sqrt(a.var(i, ddof=1) + 0.1)), long_axis_of
    ),
    "normalize": Op(lambda a, i: f"{a}.layernorm({i})", layernorm, long_axis_of),
    # stock: (x - x).softmax(1) writes over a realized x, so it is a softmax of a product
    "softmax": Op(lambda a, i: f"({a} * 0.7).softmax({i})", lambda a, i: like(a, softmax(a * 0.7, i)), axis_of),
    "times_sum": Op(lambda a: f"{a} * {a}.sum() * 0.1", lambda a: like(a, a * a.sum() * 0.1)),
    # stock: x - x writes over a realized x, and so does x - x.max() of one element
    "minus_max": Op(lambda a: f"{a} - {a}.max() * 0.9", lambda a: like(a, a - a.max() * 0.9)),
    # movement
    "flatten": Op(lambda a: f"{a}.flatten()", lambda a: a.reshape(-1), kinds="fib"),
    "unsqueeze": Op(
        lambda a, i: f"{a}.unsqueeze({i})",
        lambda a, i: np.expand_dims(a, i),
        lambda d, a: (d.integer(0, a.ndim),),
        kinds="fib",
    ),
    "flip": Op(lambda a, i: f"{a}.flip({i})", lambda a, i: np.flip(a, i), axis_of, kinds="fib", weight=4),
    "permute": Op(lambda a, order: f"{a}.permute({order})", np.transpose, draw_permute, kinds="fib", weight=5),
    "merge": Op(
        lambda a, i: f"{a}.flatten({i}, {i + 1})",
        merge,
        lambda d, a: (d.integer(0, a.ndim - 2),) if a.ndim > 1 else None,
        kinds="fib",
        weight=5,
    ),
    "split": Op(lambda a, i, by: f"{a}.unflatten({i}, ({by}, -1))", split, draw_split, kinds="fib", weight=4),
    "pad": Op(
        pad_text,
        pad,
        lambda d, a: (d.integer(1, a.ndim), d.integer(0, 1), d.integer(0, 1)) if a.ndim else None,
        kinds="fib",
        weight=4,
    ),
    "repeat": Op(
        repeat_text, repeat, lambda d, a: (d.integer(0, a.ndim), d.integer(2, 3), a.ndim), kinds="fib", weight=4
    ),
    "slice": Op(
        lambda a, i, start, stop, step: f"{a}[{pre(i)}{start}:{stop}:{step}]".replace("None", ""),
        lambda a, i, start, stop, step: at_axis(a, i, slice(start, stop, step)),
        lambda d, a: axis_of(d, a, *d.choice([(None, None, 2), (None, None, -1), (1, None, 1), (None, -1, 1)])),
        kinds="fib",
    ),
    "shrink": Op(
        lambda a, i, start, stop: f"{a}[{pre(i)}{start}:{stop}]",
        lambda a, i, start, stop: at_axis(a, i, slice(start, stop)),
        draw_shrink,
        kinds="fib",
        weight=3,
    ),
    "roll": Op(lambda a, i: f"{a}.roll(1, {i})", lambda a, i: np.roll(a, 1, i), axis_of, kinds="fib", weight=1),
    "index": Op(lambda a, i, j: f"{a}[{pre(i)}{j}]", at_axis, with_index, kinds="fib", weight=5),
    "index_list": Op(
        lambda a, i, js: f"{a}[{pre(i)}{list(js)}]",
        lambda a, i, js: at_axis(a, i, list(js)),
        with_indices,
        kinds="fib",
        weight=5,
    ),
    "index_constant": Op(
        lambda a, i, js: f"{a}[{pre(i)}Tensor({list(js)})]",
        lambda a, i, js: at_axis(a, i, list(js)),
        with_indices,
        kinds="fib",
    ),
    "gather": Op(
        lambda a, i, text, seed: f"{a}.gather({i}, Tensor({text}, dtype=dtypes.int32))",
        lambda a, i, text, seed: np.take_along_axis(a, gather_index(a, i, seed), i),
        lambda d, a: (
            (i := d.integer(0, a.ndim - 1), gather_index(a, i, s := d.integer(0, 99)).tolist(), s) if a.ndim else None
        ),
        kinds="f",
        weight=1,
    ),
    "twice": Op(
        lambda a, i: f"Tensor.cat({a}, {a} * 0.5, dim={i})",
        lambda a, i: np.concatenate([a, like(a, a * 0.5)], i),
        axis_of,
    ),
    "stack_sums": Op(
        lambda a, i: f"Tensor.stack({a}.sum({i}), {a}.max({i}) * 2, dim=-1)",
        lambda a, i: like(a, np.stack([a.sum(i), a.max(i) * 2], -1)),
        axis_of,
        weight=3,
    ),
    "outer": Op(
        lambda a: f"{a}.flatten()[:3].unsqueeze(1) * {a}.flatten()[:4] * 0.3",
        lambda a: like(a, a.reshape(-1)[:3, None] * a.reshape(-1)[:4] * 0.3),
    ),
    # stock: setitem of a value without a batch can write to its source, and has no gradient
    "set_index": Op(
        lambda a, i, j: f"{a} * 1",
        lambda a, i, j: put(a, i, j, 0.5),
        with_index,
        after=lambda out, i, j: f"{out}[{pre(i)}{j}] = 0.5",
        only_inside=True,
        derivable=False,
    ),
    "set_list": Op(
        lambda a, i, js: f"{a} * 1",
        lambda a, i, js: put(a, i, list(js), at_axis(a, i, list(js)) * 0.5),
        with_indices,
        after=lambda out, i, js: f"{out}[{pre(i)}{list(js)}] = {out}[{pre(i)}{list(js)}] * 0.5",
        only_inside=True,
        derivable=False,
    ),
    # two values
    "add": Op(lambda a, b: f"{a} + {b}", lambda a, b: a + b, fits_together, 2, "fi", 6),
    "sub": Op(lambda a, b: f"{a} - {b} * 0.7", lambda a, b: like(a, a - b * 0.7), fits_together, 2, "f", 4),
    "mul": Op(lambda a, b: f"{a} * {b} * 0.4", lambda a, b: like(a, a * b * 0.4), fits_together, 2, "f", 6),
    "maximum": Op(lambda a, b: f"{a}.maximum({b})", np.maximum, fits_together, 2, "fi", 2),
    "where": Op(
        lambda a, b: f"({a} > {b} + 0.0345678).where({a}, {b} * 0.5)",
        lambda a, b: like(a, np.where(a > b + 0.0345678, a, b * 0.5)),
        fits_together,
        2,
        "f",
        4,
    ),
    "masked": Op(
        lambda a, b: f"{a}.where({b}, 0.125)", lambda a, b: like(b, np.where(a, b, 0.125)), fits_together, 2, "b", 4
    ),
    "and": Op(lambda a, b: f"{a} & {b}", lambda a, b: a & b, fits_together, 2, "b"),
    "matmul": Op(lambda a, b: f"{a} @ {b} * 0.3", lambda a, b: like(a, a @ b * 0.3), fits_matmul, 2, "f", 8),
    "cat": Op(
        lambda a, b, i: f"Tensor.cat({a}, {b}, dim={i})",
        lambda a, b, i: np.concatenate([a, b], i),
        fits_cat,
        2,
        "fib",
        4,
    ),
    "stack": Op(lambda a, b: f"Tensor.stack({a}, {b})", lambda a, b: np.stack([a, b]), same_shape, 2, "fib", 3),
    "cat_flat": Op(
        lambda a, b: f"Tensor.cat({a}.flatten()[:4], {b}.flatten()[:3])",
        lambda a, b: np.concatenate([a.reshape(-1)[:4], b.reshape(-1)[:3]]),
        arity=2,
        kinds="fib",
    ),
    # stock: a bool that is cast to int and used as an index does not pass the check of the linearized kernel
    "index_tensor": Op(
        lambda a, b, i: f"{a}[{pre(i)}({b} > 0.0567891).where(1, 0)]",
        lambda a, b, i: np.take(a, (b > 0.0567891).astype(np.int32), i),
        draw_tensor_index,
        2,
        "f",
        5,
    ),
}
