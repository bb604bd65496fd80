"""Reduces. Floats are summed in double precision and rounded once. A product that only a sum reads is never computed
element by element: the sum is a matrix product of its operands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vmapdbg.reference.graph import OpGraph, OpNode
from vmapdbg.reference.value import RangedArray
from vmapdbg.values.numbers import Numbers
from vmapdbg.values.tolerance import EPSILON, is_float

_LARGEST_EXACT = 2.0**53
"""Integers up to this one are doubles."""


def reduce_value(value: RangedArray, op: str, axes: Sequence[int], keep: bool, names: Sequence[int]) -> RangedArray:
    """Reduces a value over own axes and step ranges. Returns floats in double precision, not rounded yet.

    The value must have all the step ranges: the caller repeats it over ranges that it does not depend on.
    """
    steps = len(value.ranges)
    places = tuple(value.ranges.index(name) for name in names) + tuple(steps + axis for axis in axes)
    numbers = _reduce(value.numbers, op, places)
    reduced = RangedArray(numbers, value.ranges)
    if value.undefined is not None:
        reduced = reduced.mark(np.asarray(value.undefined.any(places, keepdims=True)))
    if op == "max" and numbers.dtype.kind == "f":
        # if a number is NaN the largest differs from device to device
        reduced = reduced.mark(np.isnan(numbers))
    gone = places
    if keep:
        # the step ranges are removed in any case
        gone = places[: len(names)]
    ranges = tuple(name for name in value.ranges if name not in names)
    return replace(reduced.move(lambda a: np.squeeze(a, gone)), ranges=ranges)


def _reduce(numbers: Numbers, op: str, axes: tuple[int, ...]) -> Numbers:
    if not axes:
        return numbers
    kind = numbers.dtype.kind
    with np.errstate(all="ignore"):
        if kind == "b":
            function = np.logical_and if op == "mul" else np.logical_or
            return function.reduce(numbers, axis=axes, keepdims=True)
        if op == "max":
            lowest = -math.inf if kind == "f" else np.iinfo(numbers.dtype).min
            return np.max(numbers, axis=axes, keepdims=True, initial=lowest)
        dtype = _widen(numbers.dtype)
        if op == "mul":
            return np.prod(numbers, axis=axes, keepdims=True, dtype=dtype)
        return _add(numbers, axes, dtype)


def _widen(dtype: np.dtype) -> np.dtype:
    """Returns the dtype in which numbers are summed: double for floats, the same for integers."""
    if dtype.kind == "f":
        return np.dtype(np.float64)
    return dtype


def _add(numbers: Numbers, axes: tuple[int, ...], dtype: np.dtype) -> Numbers:
    """Adds numbers along axes: windows by running sums, and a repeated element by its count."""
    running = _add_windows(numbers, axes, dtype)
    if running is not None:
        return running
    repeated = [axis for axis in axes if numbers.strides[axis] == 0 and numbers.shape[axis] > 1]
    times = math.prod(numbers.shape[axis] for axis in repeated)
    total = np.sum(_take_first(numbers, repeated), axis=axes, keepdims=True, dtype=dtype)
    if times == 1:
        return total
    return total * np.array(times).astype(dtype)


def _add_windows(numbers: Numbers, axes: tuple[int, ...], dtype: np.dtype) -> Numbers | None:
    """Returns the sums of windows of integers that slide over one axis by one element a row, None for other numbers.
    The windows have many times the elements of the axis."""
    if len(axes) != 1 or numbers.dtype.kind not in "iu" or numbers.shape[axes[0]] < 2:
        return None
    (axis,) = axes
    rows = [i for i in range(numbers.ndim) if i != axis and numbers.strides[i] == numbers.strides[axis] != 0]
    if len(rows) != 1 or numbers.shape[rows[0]] < 2:
        return None
    (row,) = rows
    # the first window, and the new element of each later window
    head = _cut(numbers, row, slice(0, 1)).swapaxes(row, axis)
    tail = _cut(_cut(numbers, axis, slice(-1, None)), row, slice(1, None))
    total = np.cumsum(np.concatenate([head, tail], row), axis=row, dtype=dtype)
    before = np.concatenate([np.zeros_like(_cut(total, row, slice(0, 1))), total], row)
    size, count = numbers.shape[axis], numbers.shape[row]
    return _cut(before, row, slice(size, size + count)) - _cut(before, row, slice(0, count))


def _cut(numbers: Numbers, axis: int, part: slice) -> Numbers:
    """Returns a part of an axis, as a view."""
    return numbers[(*[slice(None)] * axis, part)]


def _take_first(numbers: Numbers, axes: Iterable[int]) -> Numbers:
    """Returns a view of the first element along some axes, which stay with the size 1."""
    for axis in axes:
        numbers = _cut(numbers, axis, slice(0, 1))
    return numbers


# *** products


def add_products(x: Numbers, y: Numbers, axes: Sequence[int]) -> Numbers | None:
    """Returns the sum of x * y over axes, which stay with the size 1: floats in double precision, integers as integers.

    The operands have the same shape; a repeated axis is a view. Returns None if integers could be too large for a
    double: then the product must be computed.
    """
    if x.dtype.kind != "f" and not _fits_double(x, y, axes):
        return None
    dtype = _widen(x.dtype)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    if 0 in x.shape:
        return np.zeros(shape, dtype)
    # an axis of only one operand is summed first, and an axis of none is a factor
    times = math.prod(x.shape[axis] for axis in axes if not _varies(x, axis) and not _varies(y, axis))
    x, y = _drop_repeated(x), _drop_repeated(y)
    x = _reduce(x, "add", tuple(a for a in axes if x.shape[a] > 1 and y.shape[a] == 1))
    y = _reduce(y, "add", tuple(a for a in axes if y.shape[a] > 1 and x.shape[a] == 1))
    product = _multiply(x, y, axes) * float(times)
    total = np.broadcast_to(product, shape)
    if dtype.kind == "f":
        return total
    return np.rint(total).astype(dtype)


def _fits_double(x: Numbers, y: Numbers, axes: Sequence[int]) -> bool:
    if 0 in x.shape:
        return True
    most = float(np.abs(x.astype(np.float64)).max()) * float(np.abs(y.astype(np.float64)).max())
    return most * math.prod(x.shape[axis] for axis in axes) < _LARGEST_EXACT


def _varies(numbers: Numbers, axis: int) -> bool:
    return numbers.shape[axis] > 1 and numbers.strides[axis] != 0


def _drop_repeated(numbers: Numbers) -> Numbers:
    return _take_first(numbers, [axis for axis in range(numbers.ndim) if not _varies(numbers, axis)])


def _multiply(x: Numbers, y: Numbers, axes: Sequence[int]) -> Numbers:
    """Returns the sum of products with the axes of the operands; summed axes have the size 1."""
    every = range(x.ndim)
    both = [axis for axis in every if x.shape[axis] > 1 and y.shape[axis] > 1]
    batch = [axis for axis in both if axis not in axes]
    summed = [axis for axis in both if axis in axes]
    left = [axis for axis in every if x.shape[axis] > 1 and y.shape[axis] == 1]
    right = [axis for axis in every if y.shape[axis] > 1 and x.shape[axis] == 1]
    if not (left and right):
        kept = [axis for axis in every if axis not in summed]
        with np.errstate(all="ignore"):
            total = np.einsum(x, list(every), y, list(every), kept, dtype=np.float64, casting="unsafe")
        return np.expand_dims(total, tuple(summed))
    ones = [axis for axis in every if axis not in {*both, *left, *right}]
    rows = math.prod(x.shape[axis] for axis in left)
    columns = math.prod(y.shape[axis] for axis in right)
    deep = math.prod(x.shape[axis] for axis in summed)
    one = x.transpose((*batch, *left, *summed, *right, *ones)).astype(np.float64, order="C")
    other = y.transpose((*batch, *summed, *right, *left, *ones)).astype(np.float64, order="C")
    with np.errstate(all="ignore"):
        product = one.reshape(-1, rows, deep) @ other.reshape(-1, deep, columns)
    # back to the operands' order of axes
    order = (*batch, *left, *right, *summed, *ones)
    shape = [1 if axis in summed else max(x.shape[axis], y.shape[axis]) for axis in order]
    return product.reshape(shape).transpose([order.index(axis) for axis in every])


@dataclass(frozen=True)
class Product:
    """A product that only a sum reads. `inside` are the nodes that need not be computed, from the source of the reduce
    down to the product, whose sources are `sources`. With `is_choice` it is a choice between a number and zero: the
    number times the condition as 0 or 1; with `is_turned` the condition chooses the zero."""

    inside: tuple[int, ...]
    sources: tuple[int, ...]
    is_choice: bool = False
    is_turned: bool = False


def find_product(graph: OpGraph, slot: int, readers: Counter[int], kept: Collection[int]) -> Product | None:
    """Returns the product that a reduce sums, None if it sums something else. `readers` has how many nodes read each
    node; nodes in `kept` are never part of a product."""
    op, _, _, names = graph.nodes[slot].arg
    if op != "add" or names:
        return None
    inside: list[int] = []
    below = graph.nodes[slot].src[0]
    while readers[below] == 1 and below not in kept:
        node = graph.nodes[below]
        inside.append(below)
        if node.op == "mul" and node.dtype != "bool":
            return Product(tuple(inside), node.src)
        if node.op == "where":
            return _find_choice(graph, node, tuple(inside))
        if node.op != "permute" and not _only_widens(graph, node):
            return None
        below = node.src[0]
    return None


def _only_widens(graph: OpGraph, node: OpNode) -> bool:
    if node.op != "cast" or not is_float(node.dtype):
        return False
    source = graph.nodes[node.src[0]].dtype
    return is_float(source) and EPSILON[node.dtype] <= EPSILON[source]


def _find_choice(graph: OpGraph, node: OpNode, inside: tuple[int, ...]) -> Product | None:
    _, one, other = node.src
    if node.dtype == "bool":
        return None
    if _is_zero(graph, other):
        return Product(inside, node.src, is_choice=True)
    if _is_zero(graph, one):
        return Product(inside, node.src, is_choice=True, is_turned=True)
    return None


def _is_zero(graph: OpGraph, slot: int) -> bool:
    while graph.nodes[slot].op in {"reshape", "expand"}:
        slot = graph.nodes[slot].src[0]
    node = graph.nodes[slot]
    return node.op == "const" and node.arg == 0


def sum_product(
    graph: OpGraph, product: Product, reduce: OpNode, sources: Sequence[Numbers], steps: int
) -> Numbers | None:
    """Returns the sum of a product, floats in double precision; None if the product must be computed. `sources` can be
    broadcast against each other, and have the axes of `steps` step ranges first."""
    one, other = sources[0], sources[-1]
    if product.is_choice:
        other = sources[1]
        if product.is_turned:
            one, other = ~one, sources[2]
        if other.dtype.kind == "f" and not np.isfinite(other).all():
            # zero times infinity is not zero
            return None
        one = one.astype(other.dtype)
    _, axes, keep, _ = reduce.arg
    batch = np.broadcast_shapes(one.shape, other.shape)[:steps]
    shape = graph.nodes[product.inside[-1]].shape
    moved = [np.broadcast_to(operand, (*batch, *shape)) for operand in (one, other)]
    for inner in reversed(product.inside[:-1]):
        node = graph.nodes[inner]
        if node.op == "permute":
            order = (*range(steps), *(steps + axis for axis in node.arg))
            moved = [operand.transpose(order) for operand in moved]
    places = tuple(steps + axis for axis in axes)
    total = add_products(moved[0], moved[1], places)
    if total is None or keep:
        return total
    return np.squeeze(total, places)
