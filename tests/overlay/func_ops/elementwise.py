"""Unary, binary and ternary ops, and casts."""

from __future__ import annotations

import numpy as np
from tinygrad import Tensor, dtypes

from .data import Arg, Op, X, between, bools, floats, integers, op, positive, some_of, unit

WHOLE_X, WHOLE_Y = integers(-7, 8, 2, 3), integers(1, 6, 2, 3)
UNSIGNED = Arg((2, 3), lambda rng, whole: rng.integers(0, 9, whole).astype(np.uint32))

SMOOTH = [
    *[op(name, lambda x, name=name: getattr(x, name)()) for name in (
        "neg", "exp", "exp2", "sin", "cos", "tan", "square", "relu", "leaky_relu", "elu", "celu", "selu", "silu",
        "gelu", "quick_gelu", "mish", "softplus", "softsign", "sigmoid", "logsigmoid", "hardsigmoid", "hardswish",
        "hardtanh", "relu6", "tanh", "sinh", "cosh", "asinh", "atan", "erf", "abs", "sign",
    )],
    *[op(name, lambda x, name=name: getattr(x, name)(), positive(2, 3)) for name in (
        "log", "log2", "sqrt", "rsqrt", "reciprocal",
    )],
    *[op(name, lambda x, name=name: getattr(x, name)(), unit(2, 3)) for name in ("asin", "acos", "atanh")],
    op("acosh", lambda x: x.acosh(), between(1.2, 3, 2, 3)),
    op("clamp", lambda x: x.clamp(-0.7, 0.9)),
    op("clip by tensors", lambda x, y: x.clip(y - 1, y + 1), X, unit(2, 3)),
    # tinygrad has no gradient of TRUNC
    op("trunc", lambda x: x.trunc(), between(-3, 3, 2, 3), moves=False),
    op("floor", lambda x: x.floor(), between(-3, 3, 2, 3), moves=False),
    op("ceil", lambda x: x.ceil(), between(-3, 3, 2, 3), moves=False),
    op("round", lambda x: x.round(), between(-3, 3, 2, 3), moves=False),
]  # fmt: skip

BINARY = [
    op("add", lambda x, y: x + y, X, floats(2, 3)),
    op("add broadcast", lambda x, y: x + y, X, floats(3)),
    op("add broadcast both", lambda x, y: x + y, floats(2, 1), floats(3)),
    op("sub", lambda x, y: x - y, X, floats(2, 3)),
    op("scalar - x", lambda x: 3 - x),
    op("mul", lambda x, y: x * y, X, floats(2, 3)),
    op("mul by a scalar element", lambda x, y: x * y, X, floats()),
    op("div", lambda x, y: x / y, X, positive(2, 3)),
    op("scalar / x", lambda x: 3 / x, positive(2, 3)),
    op("pow", lambda x, y: x**y, positive(2, 3), floats(2, 3)),
    op("pow 2.5", lambda x: x**2.5, positive(2, 3)),
    op("pow 3", lambda x: x**3),
    op("pow -2", lambda x: x**-2, positive(2, 3)),
    op("2 ** x", lambda x: 2.0**x),
    op("maximum", lambda x, y: x.maximum(y), X, floats(2, 3)),
    op("maximum with ties", lambda x, y: x.maximum(y), some_of([0, 1, 2], 2, 3), some_of([0, 1, 2], 2, 3)),
    op("minimum", lambda x, y: x.minimum(y), X, floats(2, 3)),
    op("copysign", lambda x, y: x.copysign(y), X, floats(2, 3)),
    op("logaddexp", lambda x, y: x.logaddexp(y), X, floats(2, 3)),
    op("mod", lambda x, y: x.mod(y), X, positive(2, 3), moves=False),
    op("lerp", lambda x, y, w: x.lerp(y, w), X, floats(2, 3), unit(2, 3)),
    op("masked_fill", lambda x, m: x.masked_fill(m, 0.5), X, bools(2, 3)),
    op("where", lambda m, x, y: m.where(x, y), bools(2, 3), X, floats(3)),
    op("where by comparison", lambda x: (x > 0).where(x.exp(), x * 2)),
]

WHOLE = [
    op("int add mul", lambda x, y: x * y + 3, WHOLE_X, WHOLE_Y, moves=False),
    op("int //", lambda x, y: x // y, WHOLE_X, WHOLE_Y, moves=False),
    op("int idiv trunc", lambda x, y: x.div(y, rounding_mode="trunc"), WHOLE_X, WHOLE_Y, moves=False),
    op("int %", lambda x, y: x % y, WHOLE_X, WHOLE_Y, moves=False),
    op("int pow", lambda x: x**3, WHOLE_Y, moves=False),
    op("int sum", lambda x: x.sum(0), WHOLE_X, moves=False),
    op("xor", lambda x, y: x ^ y, WHOLE_X, WHOLE_Y, moves=False),
    op("and or", lambda x, y: (x & y) | (x * 2), WHOLE_X, WHOLE_Y, moves=False),
    op("bitwise_not", lambda x: ~x, WHOLE_X, moves=False),
    op("shift", lambda x: (x << 2) + (x >> 1), UNSIGNED, moves=False),
    op("comparisons", lambda x, y: (x < y) ^ (x >= 0) ^ (y != 1), WHOLE_X, WHOLE_Y, moves=False),
    op("logical_not", lambda x: x.logical_not(), bools(2, 3), moves=False),
    op("isnan", lambda x: (x.log().isnan()) | x.isinf(), some_of([-1, 0, 1], 2, 3), moves=False),
    op("isfinite", lambda x: (1 / x).isfinite(), some_of([-1, 0, 1], 2, 3), moves=False),
    op("isclose", lambda x, y: x.isclose(y), some_of([0, 1], 2, 3), some_of([0, 1], 2, 3), moves=False),
    op("cast to int", lambda x: (x * 3).cast(dtypes.int32), moves=False),
    op("cast to bool", lambda x: x.bool(), some_of([0, 1], 2, 3), moves=False),
    op("cast from int", lambda x: x.float() / 2, WHOLE_X, moves=False),
    op("bitcast", lambda x: x.bitcast(dtypes.int32), moves=False),
]

CASTS = [
    op("cast to double", lambda x: x.double() * 2),
    op("cast to double and back", lambda x: (x.double() * 3).float()),
    op("cast of a mask", lambda x: (x > 0.3).float() * x),
    op("int scales float", lambda x, n: x * n, X, integers(-3, 4, 2, 3)),
    op("full_like", lambda x: x.full_like(2.5) * x),
    op("ones_like zeros_like", lambda x: x.ones_like() + x.zeros_like() + x),
    op("Tensor.full", lambda x: x * Tensor.full((2, 3), 1.5)),
]

OPS: list[Op] = SMOOTH + BINARY + WHOLE + CASTS
