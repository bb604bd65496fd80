"""Which nodes of a graph are computed, and from which others. Two kinds of nodes are not computed node by node.

- A product that only a sum reads: the sum is a matrix product of its operands.
- Windows that slide over an axis, as in pools, convolutions and running sums. tinygrad repeats the axis, flattens it,
  cuts it, and splits it again, one element longer: as many elements as the product of both sizes. Here they are a view
  of the axis in which each row starts some elements later than the row before."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from vmapdbg.reference.graph import OpGraph, OpNode
from vmapdbg.reference.value import RangedArray, align, reduce_numbers, sum_dtype, take_first
from vmapdbg.values.numbers import Numbers
from vmapdbg.values.tolerance import EPSILON, is_float

_LARGEST_EXACT = 2.0**53  # integers up to this one are doubles


@dataclass(frozen=True)
class Windows:
    """A shrink that leaves windows. `skipped` nodes need not be computed: from its source to the reshape of the one
    node of `sources`, which must repeat the axes `repeated`. The windows are a view of this node: `starts` has the part
    of each of its axes from the first element on, `strides` an axis and a factor of its stride for each axis of the
    windows."""

    skipped: tuple[int, ...]
    sources: tuple[int]
    repeated: list[int]
    starts: list[slice]
    strides: list[tuple[int, int]]

    def compute(self, graph: OpGraph, slot: int, values: Sequence[RangedArray]) -> RangedArray | None:
        """Returns the windows as a view of the source's value; None if its axes are not repeated."""
        (source,) = values
        steps, shape = len(source.ranges), graph.nodes[slot].shape
        if any(_varies(source.numbers, steps + axis) for axis in self.repeated):
            return None

        def slide(a: Numbers) -> Numbers:
            strides = [a.strides[steps + axis] * factor for axis, factor in self.strides]
            part = a[(*[slice(None)] * steps, *self.starts)]
            return as_strided(part, (*a.shape[:steps], *shape), (*a.strides[:steps], *strides), writeable=False)

        return source.move(slide)


def find_windows(graph: OpGraph, slot: int, readers: Counter[int], kept: Collection[int]) -> Windows | None:
    """Returns the windows of a shrink, or None. `readers` counts the readers of a node; none of `kept` is in them."""
    chain = [slot]
    for op in ("reshape", "shrink", "reshape"):
        below = graph.nodes[chain[-1]].src[0]
        if graph.nodes[below].op != op or readers[below] != 1 or below in kept:
            return None
        chain.append(below)
    if any(len(graph.nodes[one].src) != 1 for one in chain):
        return None
    last, split, cut, flat = (graph.nodes[one] for one in chain)
    source = flat.src[0]
    if any(cut.arg) or len(cut.shape) != len(flat.shape):
        return None
    windows = Windows(tuple(chain[1:]), (source,), [], [], [])
    if _match_axes(windows, graph.nodes[source].shape, flat, cut, split.shape, last) and windows.repeated:
        return windows
    return None


def _match_axes(
    windows: Windows, wide: Sequence[int], flat: OpNode, cut: OpNode, split: Sequence[int], last: OpNode
) -> bool:
    """Adds matching axes to the windows: `flat` has axes of `wide`, or two joined. Returns whether all match."""
    first, left = last.arg, last.shape
    i = j = 0
    for before, after in zip(flat.shape, cut.shape, strict=True):
        if (*wide[i : i + 1], *split[j : j + 1]) == (before, after):
            windows.starts.append(slice(first[j], None))
            windows.strides.append((i, 1))
            i, j = i + 1, j + 1
            continue
        repeated, row = wide[i : i + 2], split[j : j + 2]
        if len(repeated) + len(row) < 4 or (math.prod(repeated), math.prod(row)) != (before, after):
            return False
        step = row[1] - repeated[1]  # each row starts so many elements later than the last
        start = first[j] * step + first[j + 1]
        end = start + (left[j] - 1) * step + left[j + 1]
        # no row may continue at the start of the axis
        if step < 0 or 0 in left[j : j + 2] or end > repeated[1]:
            return False
        windows.repeated.append(i)
        windows.starts.extend([slice(0, 1), slice(start, None)])
        windows.strides.extend([(i + 1, step), (i + 1, 1)])
        i, j = i + 2, j + 2
    return (i, j) == (len(wide), len(split))


@dataclass(frozen=True)
class Product:
    """A product that only a sum reads. `skipped` nodes need not be computed: the reduce's source down to the product of
    `sources`. `is_choice`: a choice between a number and zero, as the condition (0 or 1) times the number."""

    skipped: tuple[int, ...]
    sources: tuple[int, ...]
    is_choice: bool = False

    def compute(self, graph: OpGraph, slot: int, values: Sequence[RangedArray]) -> RangedArray | None:
        """Returns the sum, floats in double precision; None if the products must be computed."""
        if any(value.undefined is not None for value in values):
            return None
        spread, ranges = align(values)
        one, other = spread[0].numbers, spread[-1].numbers
        if self.is_choice:
            other = spread[1].numbers
            if other.dtype.kind == "f" and not np.isfinite(other).all():
                return None  # zero times infinity is not zero
            one = one.astype(other.dtype)
        _, axes, keep, _ = graph.nodes[slot].arg
        steps = len(ranges)
        batch = np.broadcast_shapes(one.shape, other.shape)[:steps]
        moved = [np.broadcast_to(operand, (*batch, *graph.nodes[self.skipped[-1]].shape)) for operand in (one, other)]
        for inner in reversed(self.skipped[:-1]):
            node = graph.nodes[inner]
            if node.op == "permute":
                order = (*range(steps), *(steps + axis for axis in node.arg))
                moved = [operand.transpose(order) for operand in moved]
        places = tuple(steps + axis for axis in axes)
        total = add_products(moved[0], moved[1], places)
        if total is None or (np.isnan(total).any() and not np.isnan(one).any() and not np.isnan(other).any()):
            return None  # which of the products are undefined is to be known: zero times infinity
        return RangedArray(total if keep else np.squeeze(total, places), ranges)


def find_product(graph: OpGraph, slot: int, readers: Counter[int], kept: Collection[int]) -> Product | None:
    """Returns the product that a reduce sums, or None. `readers` counts readers of nodes; none of `kept` is in it."""
    op, _, _, names = graph.nodes[slot].arg
    if op != "add" or names:
        return None
    skipped: list[int] = []
    below = graph.nodes[slot].src[0]
    while readers[below] == 1 and below not in kept:
        node = graph.nodes[below]
        skipped.append(below)
        if node.op == "mul" and node.dtype != "bool":
            return Product(tuple(skipped), node.src)
        if node.op == "where" and node.dtype != "bool" and _is_zero(graph, node.src[2]):
            return Product(tuple(skipped), node.src, is_choice=True)
        if node.op not in {"permute", "cast"}:
            return None
        below = node.src[0]
        if node.op == "cast" and not _widens(graph.nodes[below].dtype, node.dtype):
            return None
    return None


def _widens(source: str, dtype: str) -> bool:
    """Returns whether a cast from one float dtype to another keeps every number."""
    return is_float(source) and is_float(dtype) and EPSILON[dtype] <= EPSILON[source]


def _is_zero(graph: OpGraph, slot: int) -> bool:
    while graph.nodes[slot].op in {"reshape", "expand"}:
        slot = graph.nodes[slot].src[0]
    node = graph.nodes[slot]
    return node.op == "const" and node.arg == 0


def add_products(x: Numbers, y: Numbers, axes: Sequence[int]) -> Numbers | None:
    """Returns the sum of x * y over axes, which become size 1: floats as doubles, integers as integers. Both have one
    shape; repeated axes are views. None if integers may be too large for doubles: compute the product."""
    dtype = sum_dtype(x.dtype)
    shape = list(x.shape)
    for axis in axes:
        shape[axis] = 1
    if 0 in x.shape:
        return np.zeros(shape, dtype)
    if dtype.kind != "f":
        most = float(np.abs(x.astype(np.float64)).max()) * float(np.abs(y.astype(np.float64)).max())
        if most * math.prod(x.shape[axis] for axis in axes) >= _LARGEST_EXACT:
            return None
    # an axis of no operand is a factor, an axis of one is summed first
    times = math.prod(x.shape[axis] for axis in axes if not _varies(x, axis) and not _varies(y, axis))
    x, y = _drop_repeated(x), _drop_repeated(y)
    x = reduce_numbers(x, "add", tuple(a for a in axes if x.shape[a] > 1 and y.shape[a] == 1))
    y = reduce_numbers(y, "add", tuple(a for a in axes if y.shape[a] > 1 and x.shape[a] == 1))
    product = _multiply(x, y, axes) * float(times)
    total = np.broadcast_to(product, shape)
    return total if dtype.kind == "f" else np.rint(total).astype(dtype)


def _varies(numbers: Numbers, axis: int) -> bool:
    return numbers.shape[axis] > 1 and numbers.strides[axis] != 0


def _drop_repeated(numbers: Numbers) -> Numbers:
    return take_first(numbers, [axis for axis in range(numbers.ndim) if not _varies(numbers, axis)])


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
    order = (*batch, *left, *right, *summed, *ones)  # back to the operands' order of axes
    shape = [1 if axis in summed else max(x.shape[axis], y.shape[axis]) for axis in order]
    return product.reshape(shape).transpose(list(map(order.index, every)))


_SHORTCUTS: dict[str, Callable[..., Product | Windows | None]] = {"reduce": find_product, "shrink": find_windows}
"""Op -> the function that finds other nodes to compute it from."""


class Plan:
    """The nodes to compute: `order`, sources first, without `known` and without what the `shortcuts` skip."""

    def __init__(self, graph: OpGraph, asked: Sequence[int], known: Collection[int]):
        self.graph, self.known = graph, known
        self.shortcuts: dict[int, Product | Windows] = {}
        reached = graph.reach(asked, known)
        readers = Counter(source for slot in reached for source in graph.nodes[slot].src)
        kept = {*asked, *known}
        for slot in reached:
            find = _SHORTCUTS.get(graph.nodes[slot].op)
            if find is None or slot in known:
                continue
            try:
                shortcut = find(graph, slot, readers, kept)
            except Exception:  # the nodes are computed one by one
                continue
            if shortcut is not None:
                self.shortcuts[slot] = shortcut
        self.order = [slot for slot in graph.reach(asked, known, self.list_sources) if slot not in known]

    def list_sources(self, slot: int) -> Sequence[int]:
        """Returns the nodes whose values a node is computed from."""
        node = self.graph.nodes[slot]
        if slot in self.shortcuts:
            return self.shortcuts[slot].sources
        if node.op == "after":
            return self.graph.sources_of_after(slot, self.known)
        if node.op == "assign":
            return node.src[1:2]
        if node.op == "store":
            return ()
        return node.src
