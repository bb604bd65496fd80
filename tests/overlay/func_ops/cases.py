"""The cases of an op. Each runs by `tinygrad.func` and is compared with the oracle: single elements without vmap.

The overlay makes stock's kernels for these graphs (test_stock_keys.py), so the oracle's numbers are stock's. Its
gradient is `Tensor.gradient`. The tangent is computed from it, without our jvp: for the cotangent c, the sum of
gradient * tangent is linear in c, and its gradient by c is the derivative along the tangent.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tinygrad import Tensor
from tinygrad.func import jvp, vmap

from .ops import INNER, OUTER, Op
from .table import OPS

AXES = ("0", "middle", "-1", "None")
FORWARD, GRADIENT, GRADIENT_INSIDE, JVP, JVP_INSIDE = MODES = (
    "forward",
    "gradient of vmap",
    "vmap of gradient",
    "jvp of vmap",
    "vmap of jvp",
)


@dataclass(frozen=True)
class Case:
    """`axis` is the batch axis in each argument and result; None: the innermost vmap gets the first argument whole.

    `sizes` are the sizes of the nested batches, outermost first.
    """

    op: str
    mode: str
    axis: str
    sizes: tuple[int, ...]
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        options = "".join(f", {value}" for _, value in self.options)
        return f"{self.op}: {self.mode}, axis {self.axis}, sizes {'x'.join(map(str, self.sizes))}{options}"

    @property
    def layout(self) -> str:
        """Which elements the oracle takes."""
        depth_1, depth_2 = ("first alone", "first whole") if self.axis == "None" else ("of outer", "every")
        return depth_1 if len(self.sizes) == 1 else depth_2


def all_cases(op: Op) -> Iterator[Case]:
    """The whole product; a middle axis is another case only if an element has two axes or more."""
    modes = MODES if op.moves else (FORWARD,)
    axes = [axis for axis in AXES if axis != "middle" or any(len(arg.shape) > 1 for arg in op.args)]
    for mode, axis, sizes in itertools.product(modes, axes, ((OUTER,), (OUTER, INNER))):
        yield Case(op.name, mode, axis, sizes)
    for sizes in ((1,), (OUTER, 1), (1, INNER)):
        yield Case(op.name, FORWARD, "0", sizes)
    for option in (("method", "pad_reduce"), ("axis_type", "outer")):
        yield Case(op.name, FORWARD, "0", (OUTER,), (option,))


def place(axis: str, ndim: int) -> int:
    """Where the batch goes in an element of `ndim` axes."""
    return {"0": 0, "middle": (ndim + 1) // 2, "-1": -1, "None": 0}[axis]


def lay_out(batch: np.ndarray, axis: str, depth: int) -> np.ndarray:
    """(OUTER, INNER, *element) -> the argument, its batch axes at their places; of depth 1 it is (OUTER, *element)."""
    ndim = batch.ndim - depth
    if depth == 2:
        batch = np.moveaxis(batch, 1, 1 + place(axis, ndim) % (ndim + 1))
    return np.moveaxis(batch, 0, place(axis, ndim + depth - 1))


def take_apart(result: np.ndarray, axis: str, depth: int) -> np.ndarray:
    """The opposite of lay_out."""
    ndim = result.ndim - depth
    result = np.moveaxis(result, place(axis, ndim + depth - 1), 0)
    return np.moveaxis(result, 1 + place(axis, ndim) % (ndim + 1), 1) if depth == 2 else result


class Run:
    """One case: its inputs, the mapped function, and what the oracle says."""

    def __init__(self, case: Case):
        self.case, self.depth = case, len(case.sizes)
        self.op = OPS[case.op] if case.axis != "None" else OPS[case.op].with_scale()
        self.index = tuple(slice(size) for size in case.sizes)
        self.whole = case.axis == "None"

    def stack(self, kind: str, number: int = 0) -> np.ndarray:
        """What the oracle found: (*sizes, *shape)."""
        rows = expected_rows(self.case.op, self.case.layout, kind)[number]
        full = (OUTER, INNER)[: self.depth]
        return rows.reshape(*full, *rows.shape[1:])[self.index]

    def argument(self, i: int, batch: np.ndarray) -> Tensor:
        if self.whole and i == 0:
            # the innermost vmap gets it whole
            return Tensor(np.array(batch[0, 0] if self.depth == 1 else batch[: self.case.sizes[0], 0]))
        batch = batch[self.index] if self.depth == 2 else batch[self.index[0], 0]
        return Tensor(np.ascontiguousarray(lay_out(batch, self.case.axis, self.depth)))

    def batch_axis(self, i: int, ndim: int, level: int) -> int | None:
        """in_axes of argument i, whose element has `ndim` axes; level 0 is the innermost."""
        if not (self.whole and i == 0):
            return place(self.case.axis, ndim + level)
        return None if level == 0 else 0

    def map(self, fn: Callable[..., Any], ndims: list[tuple[int, int]], out_ndims: Any) -> Callable[..., Any]:
        """`fn` under all its vmaps. `ndims`: (argument that it is laid out as, axes of one element)."""
        options: dict[str, Any] = dict(self.case.options)
        for level in range(self.depth):
            in_axes = tuple(self.batch_axis(i, ndim, level) for i, ndim in ndims)
            outs = [
                place(self.case.axis, n + level) for n in (out_ndims if isinstance(out_ndims, list) else [out_ndims])
            ]
            fn = vmap(fn, in_axes, outs if isinstance(out_ndims, list) else outs[0], **options)
        return fn

    def check(self) -> None:
        """Raises AssertionError where the result is not the oracle's."""
        op, mode = self.op, self.case.mode
        batches = op.arrays()
        values = self.stack("values")
        out_ndim = values.ndim - self.depth
        ndims = [(i, len(arg.shape)) for i, arg in enumerate(op.args)]
        xs = [self.argument(i, batch) for i, batch in enumerate(batches)]
        moving = [i for i, x in enumerate(xs) if x.is_floating_point()]
        mapped = self.map(op.fn, ndims, out_ndim)
        if mode == FORWARD:
            return self.compare(mapped(*xs), values)
        if mode == GRADIENT:
            ct = self.cotangent(values)
            y = mapped(*xs)
            found = y.gradient(*[xs[i] for i in moving], gradient=ct.cast(y.dtype), materialize_grads=True)
            for n, (i, g) in enumerate(zip(moving, found, strict=True)):
                self.compare_gradient(i, g, self.stack("gradients", n))
            return None
        if mode == GRADIENT_INSIDE:
            return self.check_gradient_inside(xs, ndims, moving, values)
        tangents = [self.argument(i, batch) for i, batch in enumerate(op.tangents())]
        moved = [tangents[i] for i in moving]
        if mode == JVP:
            y, t = jvp(lambda *ms: mapped(*put(xs, moving, ms)), [xs[i] for i in moving], moved)
        else:
            count = len(xs)

            def fn(*both: Tensor) -> Any:
                inner, dirs = both[:count], both[count:]
                return list(jvp(lambda *ms: op.fn(*put(inner, moving, ms)), [inner[i] for i in moving], dirs))

            y, t = self.map(fn, ndims + [ndims[i] for i in moving], [out_ndim, out_ndim])(*xs, *moved)
        self.compare(t, self.stack("tangents"))
        self.compare(y, values)

    def cotangent(self, values: np.ndarray) -> Tensor:
        """Laid out as the result."""
        batch = self.op.cotangents(values.shape[self.depth :])
        # the oracle takes the second key's: (i, 0) at depth 1
        batch = batch[self.index] if self.depth == 2 else batch[self.index[0], 0]
        return Tensor(np.ascontiguousarray(lay_out(batch, self.case.axis, self.depth)))

    def check_gradient_inside(self, xs: list[Tensor], ndims: list, moving: list[int], values: np.ndarray) -> None:
        op, count = self.op, len(xs)

        def fn(*args: Tensor) -> Any:
            y = op.fn(*args[:count])
            return list(
                y.gradient(*[args[i] for i in moving], gradient=args[count].cast(y.dtype), materialize_grads=True)
            )

        out_ndims = [ndims[i][1] for i in moving]
        found = self.map(fn, [*ndims, (-1, values.ndim - self.depth)], out_ndims)(*xs, self.cotangent(values))
        for n, g in enumerate(found):
            self.compare(g, self.stack("gradients", n))

    def compare_gradient(self, i: int, got: Tensor, want: np.ndarray) -> None:
        if self.whole and i == 0:
            # every element of the innermost batch used it
            close(got.numpy(), want.sum(self.depth - 1))
        else:
            self.compare(got, want)

    def compare(self, got: Tensor, want: np.ndarray) -> None:
        close(take_apart(got.numpy(), self.case.axis, self.depth), want)


# *** the oracle

# which element each argument gives: (outer, inner) of the first argument, and of the others
Key = tuple[tuple[int, int], tuple[int, int]]
EVERY: list[Key] = [((i, j), (i, j)) for i in range(OUTER) for j in range(INNER)]
OF_OUTER: list[Key] = [((i, 0), (i, 0)) for i in range(OUTER)]
# the first argument is not mapped: over the inner level, over any level
FIRST_WHOLE: list[Key] = [((i, 0), (i, j)) for i in range(OUTER) for j in range(INNER)]
FIRST_ALONE: list[Key] = [((0, 0), (i, 0)) for i in range(OUTER)]
LAYOUTS = {"every": EVERY, "of outer": OF_OUTER, "first whole": FIRST_WHOLE, "first alone": FIRST_ALONE}


@functools.cache
def expected_rows(name: str, layout: str, kind: str) -> list[np.ndarray]:
    """Returns the stacks over the layout's keys: the values, the tangents, or the gradients by each float argument."""
    op = OPS[name] if layout in {"every", "of outer"} else OPS[name].with_scale()
    rows = []
    for key in LAYOUTS[layout]:
        # a graph for each of them: when one is realized, stock may use its constants for another
        first, *others = build(op, key, kind)
        rows.append([first.numpy(), *[build(op, key, kind)[i].numpy() for i in range(1, 1 + len(others))]])
    return [np.stack(row) for row in zip(*rows, strict=True)]


def build(op: Op, key: Key, kind: str) -> list[Any]:
    def one(batch: np.ndarray, index: tuple[int, int], dtype: Any = None) -> Tensor:
        return Tensor(np.array(batch[index]), dtype=dtype).realize()

    at = [key[0]] + [key[1]] * (len(op.args) - 1)
    xs = [one(a, i) for a, i in zip(op.arrays(), at, strict=True)]
    y = op.fn(*xs)
    if kind == "values":
        return [y]
    moving = [(x, t, i) for x, t, i in zip(xs, op.tangents(), at, strict=True) if x.is_floating_point()]
    ct = one(op.cotangents(y.shape), key[1], y.dtype)
    g = y.gradient(*[x for x, _, _ in moving], gradient=ct, materialize_grads=True)
    if kind == "gradients":
        return g
    total = sum((a * one(t, i)).sum() for a, (_, t, i) in zip(g, moving, strict=True))
    return list(total.gradient(ct, materialize_grads=True))


def put(values: Any, places: list[int], new: Any) -> list[Any]:
    """`values` with `new` in those places."""
    by_place = dict(zip(places, new, strict=True))
    return [by_place.get(i, v) for i, v in enumerate(values)]


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape, f"shape {got.shape} instead of {want.shape}"
    assert got.dtype == want.dtype, f"dtype {got.dtype} instead of {want.dtype}"
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
