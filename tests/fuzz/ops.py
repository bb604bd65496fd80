"""The ops of random programs: how each is written in tinygrad, what it is in numpy, and which parameters fit a value.

Comparisons are against odd constants, so that no rounding decides them. An op is kept away from what stock tinygrad
0.12.0 does wrong without any scope; each such place says what that is.
"""

from __future__ import annotations

import numpy as np

from .op_parts import (
    Op,
    at_axis,
    axis_of,
    draw_permute,
    draw_shrink,
    draw_split,
    draw_tensor_index,
    fits_cat,
    fits_matmul,
    fits_together,
    gather_index,
    layernorm,
    like,
    long_axis_of,
    merge,
    pad,
    pad_text,
    pre,
    put,
    repeat,
    repeat_text,
    same_shape,
    softmax,
    split,
    with_index,
    with_indices,
)

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
