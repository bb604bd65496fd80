"""What an op of the table is: a function, and what one element of each argument is. And the single ops."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tinygrad import Tensor, dtypes

# the batch: 5 elements at the outer level and 2 in each of them
OUTER, INNER = 5, 2


@dataclass(frozen=True)
class Arg:
    """One argument: the shape of one element, and what its numbers are drawn from."""

    shape: tuple[int, ...]
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

    def batch(self, name: str) -> np.ndarray:
        """Returns (OUTER, INNER, *shape), another row for each element and the same for each `name`."""
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        return np.asarray(self.draw(rng, (OUTER, INNER, *self.shape)))


@dataclass(frozen=True)
class Op:
    """A function of one element. `moves`: whether it is differentiated by its float arguments."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Arg, ...]
    moves: bool

    def arrays(self) -> list[np.ndarray]:
        return [arg.batch(f"{self.name} {i}") for i, arg in enumerate(self.args)]

    def tangents(self) -> list[np.ndarray]:
        return [floats(*arg.shape).batch(f"{self.name} tangent {i}") for i, arg in enumerate(self.args)]

    def cotangents(self, shape: tuple[int, ...]) -> np.ndarray:
        """For a result of `shape`."""
        return floats(*shape).batch(f"{self.name} cotangent")

    def with_scale(self) -> Op:
        """The function with a second argument: an argument that is not mapped needs a mapped argument next to it."""
        if len(self.args) > 1:
            return self
        return Op(self.name, lambda x, scale: self.fn(x) * scale, (*self.args, positive()), self.moves)


def between(low: float, high: float, *shape: int) -> Arg:
    """Floats, spread evenly: no two are close together, so that no order or rounding is decided by the last bit."""

    def draw(rng: np.random.Generator, whole: tuple[int, ...]) -> np.ndarray:
        count = int(np.prod(whole))
        steps = (rng.permutation(count) + rng.uniform(0.2, 0.8, count)) / count
        return (low + (high - low) * steps).reshape(whole).astype(np.float32)

    return Arg(shape, draw)


def floats(*shape: int) -> Arg:
    return between(-2, 2, *shape)


def positive(*shape: int) -> Arg:
    return between(0.3, 2.5, *shape)


def unit(*shape: int) -> Arg:
    return between(-0.9, 0.9, *shape)


def integers(low: int, high: int, *shape: int) -> Arg:
    """int32 from low to high-1."""
    return Arg(shape, lambda rng, whole: rng.integers(low, high, whole).astype(np.int32))


def bools(*shape: int) -> Arg:
    return Arg(shape, lambda rng, whole: rng.integers(0, 2, whole).astype(np.bool_))


def some_of(values: list[float], *shape: int) -> Arg:
    """Floats out of a few: ties, zeros, infinities."""
    return Arg(shape, lambda rng, whole: rng.choice(np.array(values, dtype=np.float32), whole))


X = floats(2, 3)


def op(name: str, fn: Callable[..., Any], *args: Arg, moves: bool = True) -> Op:
    return Op(name, fn, args or (X,), moves)


# *** elementwise ops and casts

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
    # stock tinygrad has no gradient of TRUNC
    op("trunc", lambda x: x.trunc(), between(-3, 3, 2, 3), moves=False),
    op("floor", lambda x: x.floor(), between(-3, 3, 2, 3), moves=False),
    op("ceil", lambda x: x.ceil(), between(-3, 3, 2, 3), moves=False),
    op("round", lambda x: x.round(), between(-3, 3, 2, 3), moves=False),
]  # fmt: skip

BINARY = [
    op("add", lambda x, y: x + y, X, floats(2, 3)),
    op("add broadcast", lambda x, y: x + y, X, floats(3)),
    op("mul", lambda x, y: x * y, X, floats(2, 3)),
    op("mul by a scalar element", lambda x, y: x * y, X, floats()),
    op("pow", lambda x, y: x**y, positive(2, 3), floats(2, 3)),
    op("pow 3", lambda x: x**3),
    op("2 ** x", lambda x: 2.0**x),
    op("maximum", lambda x, y: x.maximum(y), X, floats(2, 3)),
    op("maximum with ties", lambda x, y: x.maximum(y), some_of([0, 1, 2], 2, 3), some_of([0, 1, 2], 2, 3)),
    op("mod", lambda x, y: x.mod(y), X, positive(2, 3), moves=False),
    op("where", lambda m, x, y: m.where(x, y), bools(2, 3), X, floats(3)),
    op("where by comparison", lambda x: (x > 0).where(x.exp(), x * 2)),
]

WHOLE = [
    op("int //", lambda x, y: x // y, WHOLE_X, WHOLE_Y, moves=False),
    op("int %", lambda x, y: x % y, WHOLE_X, WHOLE_Y, moves=False),
    op("xor", lambda x, y: x ^ y, WHOLE_X, WHOLE_Y, moves=False),
    op("shift", lambda x: (x << 2) + (x >> 1), UNSIGNED, moves=False),
    op("comparisons", lambda x, y: (x < y) ^ (x >= 0) ^ (y != 1), WHOLE_X, WHOLE_Y, moves=False),
    op("isnan", lambda x: (x.log().isnan()) | x.isinf(), some_of([-1, 0, 1], 2, 3), moves=False),
    op("cast to int", lambda x: (x * 3).cast(dtypes.int32), moves=False),
    op("cast to bool", lambda x: x.bool(), some_of([0, 1], 2, 3), moves=False),
    op("bitcast", lambda x: x.bitcast(dtypes.int32), moves=False),
]

CASTS = [
    op("cast to double", lambda x: x.double() * 2),
    op("cast of a mask", lambda x: (x > 0.3).float() * x),
    op("int scales float", lambda x, n: x * n, X, integers(-3, 4, 2, 3)),
    op("full_like", lambda x: x.full_like(2.5) * x),
]

ELEMENTWISE = SMOOTH + BINARY + WHOLE + CASTS

# *** reductions, cumulative ops, the softmax family, norms, sort and ops built from it

REDUCTIONS = [
    op("sum", lambda x: x.sum()),
    op("sum 0", lambda x: x.sum(0)),
    op("sum keepdim", lambda x: x.sum(1, keepdim=True)),
    op("sum of both axes", lambda x: x.sum((0, 2)), floats(2, 2, 3)),
    op("sum dtype", lambda x: x.sum(0, dtype=dtypes.int32), integers(0, 9, 2, 3), moves=False),
    op("mean", lambda x: x.mean()),
    op("max", lambda x: x.max()),
    op("max 1", lambda x: x.max(1)),
    op("max with ties", lambda x: x.max(1), some_of([0, 1], 2, 3)),
    op("prod", lambda x: x.prod()),
    op("any", lambda x: x.any(0), bools(2, 3), moves=False),
    op("all", lambda x: x.all(1), bools(2, 3), moves=False),
    op("var", lambda x: x.var(1)),
    op("std_mean", lambda x: Tensor.cat(*x.std_mean(1))),
    op("softmax", lambda x: x.softmax(-1)),
    op("log_softmax", lambda x: x.log_softmax(-1)),
    op("softmax of softmax", lambda x: x.softmax(-1).softmax(0)),
    op("softmax argmax", lambda x: x.softmax(-1).argmax(), moves=False),
    op("sum of max", lambda x: (x.max(1, keepdim=True) * x).sum(0)),
    op("cumsum", lambda x: x.cumsum(0)),
    op("cumsum 1", lambda x: x.cumsum(1)),
    op("cumprod", lambda x: x.cumprod(1)),
    op("cummax", lambda x: x.cummax(1)[0]),
    op("cummax with ties", lambda x: x.cummax(0)[0], some_of([0, 1], 2, 3)),
    op("logcumsumexp", lambda x: x.logcumsumexp(1)),
    op("layernorm", lambda x: x.layernorm()),
    op("rmsnorm", lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()),
    op(
        "batchnorm",
        lambda x, w, b, m, v: x.batchnorm(w, b, m, v),
        floats(2, 3, 2), floats(3), floats(3), floats(3), positive(3),
    ),
    op("argmax", lambda x: x.argmax(), moves=False),
    op("sort", lambda x: x.sort()[0]),
    op("argsort", lambda x: x.argsort(), moves=False),
    op("topk values", lambda x: x.topk(2)[0]),
    op("topk indices", lambda x: x.topk(2)[1], moves=False),
]  # fmt: skip

# *** movement ops, padding, stacking and splitting, interpolation

IMAGE = floats(1, 1, 2, 3)

MOVEMENT = [
    op("reshape", lambda x: x.reshape(3, 2)),
    op("reshape to a scalar", lambda x: x.reshape(()), floats(1, 1)),
    op("permute", lambda x: x.permute(2, 0, 1), floats(2, 1, 3)),
    op("transpose", lambda x: x.T * 2),
    op("flip", lambda x: x.flip(1)),
    op("expand", lambda x: x.unsqueeze(1).expand(2, 2, 3)),
    op("expand a scalar", lambda x: x.expand(2, 3), floats()),
    op("unsqueeze squeeze", lambda x: x.unsqueeze(0).squeeze(0)),
    op("flatten", lambda x: x.flatten()),
    op("shrink", lambda x: x.shrink(((0, 1), (1, 3)))),
    op("pad", lambda x: x.pad(((0, 1), (2, 0)))),
    op("pad with a value", lambda x: x.pad((1, 1), value=2.0)),
    op("pad negative", lambda x: x.pad((-1, 1))),
    op("pad reflect", lambda x: x.pad((1, 1, 0, 0), mode="reflect"), IMAGE),
    op("roll", lambda x: x.roll(1, 1)),
    op("repeat", lambda x: x.repeat((1, 2))),
    op("repeat_interleave", lambda x: x.repeat_interleave(2, 1)),
    op("unfold", lambda x: x.unfold(1, 2, 1)),
    op("diag", lambda x: x.diag(), floats(3)),
    op("meshgrid", lambda x, y: (lambda g: g[0] * g[1])(x.meshgrid(y)), floats(2), floats(3)),
    op("cat", lambda x, y: x.cat(y, dim=0), X, floats(1, 3)),
    op("cat with itself", lambda x: x.cat(x * 2, x.exp(), dim=1)),
    op("stack", lambda x, y: Tensor.stack(x, y), X, floats(2, 3)),
    op("stack of scalars", lambda x: Tensor.stack(x[0].sum(), x[1].sum(), x.max())),
    op("split", lambda x: (lambda p: p[0] * p[1])(x.split(1, 0))),
    op("interpolate linear", lambda x: x.interpolate((4,)), floats(1, 1, 3)),
]

# *** indexing by ints, slices, lists and tensors; gather, scatter, one_hot, setitem

ROW = integers(0, 2, 2)
COLUMN = integers(0, 3, 2)


def written(x: Tensor, index: Any, value: Any) -> Tensor:
    y = x * 1
    y[index] = value
    return y


INDEXING = [
    op("x[1]", lambda x: x[1]),
    op("x[:, 1:]", lambda x: x[:, 1:]),
    op("x[:, ::2]", lambda x: x[:, ::2]),
    op("x[None, ..., 0]", lambda x: x[None, ..., 0]),
    op("x[1:1] is empty", lambda x: x[1:1].sum() + x),
    op("x[[1, 0]]", lambda x: x[[1, 0]]),
    op("x[:, [2, 0, 2]]", lambda x: x[:, [2, 0, 2]]),
    op("x[[0, 1], [2, 0]]", lambda x: x[[0, 1], [2, 0]]),
    op("x[Tensor]", lambda x: x[Tensor([1, 0, 1])]),
    op("x[i]", lambda x, i: x[i], X, integers(0, 2)),
    op("x[rows]", lambda x, i: x[i], X, ROW),
    op("x[:, columns]", lambda x, i: x[:, i], X, COLUMN),
    op("x[rows, columns]", lambda x, i, j: x[i, j], X, ROW, COLUMN),
    op("x[-i]", lambda x, i: x[-1 - i], X, ROW),
    op("x[argmax]", lambda x: x[x.sum(1).argmax()]),
    op("gather", lambda x, i: x.gather(1, i), X, integers(0, 3, 2, 2)),
    op("gather at argmax", lambda x: x.gather(1, x.argmax(1, keepdim=True))),
    op("scatter", lambda x, s: x.scatter(1, Tensor([[0, 2], [1, 0]]), s), X, floats(2, 2)),
    op("scatter by element", lambda x, i: x.scatter(1, i, 5.0), X, integers(0, 3, 2, 1)),
    op("scatter add", lambda x, i: x.scatter(1, i, 1.5, reduce="add"), X, integers(0, 3, 2, 2)),
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
    op("embedding", lambda x, i: (i.unsqueeze(-1) == Tensor.arange(2)).float() @ x, X, ROW),
    op("index after a reduce", lambda x: x.sum(1)[[1, 0, 1]]),
    op("setitem int", lambda x: written(x, 0, 2.0), moves=False),
    op("setitem slice", lambda x, y: written(x, (slice(None), slice(1, None)), y), X, floats(2, 2), moves=False),
    op("setitem of its own sum", lambda x: written(x, (slice(0, 1), slice(0, 1)), x.sum()), moves=False),
    op("setitem list", lambda x: written(x, [1], 7.0), moves=False),
]  # fmt: skip
