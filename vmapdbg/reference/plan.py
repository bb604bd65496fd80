"""Which nodes of a graph are computed for what is asked, and from which others.

Windows that slide over an axis, as in pools, convolutions and running sums, are not computed node by node. tinygrad
repeats the axis, flattens it, cuts it, and splits it again, one element longer: as many elements as the product of both
sizes. Here they are a view of the axis in which each row starts some elements later than the row before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from numpy.lib.stride_tricks import as_strided

from vmapdbg.reference.graph import OpGraph, list_sources
from vmapdbg.reference.sums import Product, find_product
from vmapdbg.reference.value import RangedArray
from vmapdbg.values.numbers import Numbers


@dataclass(frozen=True)
class Axis:
    """An axis of `period` elements that is repeated and split into rows of `row` elements. `rows` rows are kept, from
    `first_row` on, and `columns` elements of each, from `first_column` on."""

    period: int
    row: int
    first_row: int
    rows: int
    first_column: int
    columns: int


@dataclass(frozen=True)
class Windows:
    """A shrink that leaves windows. `inside` are the nodes that need not be computed: from its source down to the
    reshape of `source`, which repeats the axes. `axes` says for each axis that is no repetition what it becomes:
    windows, or (first, size) of the part that is kept."""

    inside: tuple[int, ...]
    source: int
    axes: tuple[Axis | tuple[int, int], ...]


def find_windows(graph: OpGraph, slot: int, readers: Counter[int], kept: Collection[int]) -> Windows | None:
    """Returns the windows that a shrink leaves, None if it leaves something else. `readers` has how many nodes read
    each node; nodes in `kept` are never part of windows."""
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
    wide = graph.nodes[source].shape
    axes = _match(wide, flat.shape, cut.shape, split.shape, last.arg, last.shape)
    if axes is None or not any(isinstance(axis, Axis) for axis in axes):
        return None
    return Windows(tuple(chain[1:]), source, axes)


def _match(
    wide: Sequence[int],
    flat: Sequence[int],
    cut: Sequence[int],
    split: Sequence[int],
    first: Sequence[int],
    left: Sequence[int],
) -> tuple[Axis | tuple[int, int], ...] | None:
    """Matches axes from left to right: each axis of `flat` is one axis of `wide`, or two of them joined. The shrink
    keeps `left` elements of each axis of `split`, from `first` on."""
    axes: list[Axis | tuple[int, int]] = []
    i = j = 0
    for before, after in zip(flat, cut, strict=True):
        if (*wide[i : i + 1], *split[j : j + 1]) == (before, after):
            axes.append((first[j], left[j]))
            i, j = i + 1, j + 1
            continue
        repeated, row = wide[i : i + 2], split[j : j + 2]
        if len(repeated) + len(row) < 4 or (math.prod(repeated), math.prod(row)) != (before, after):
            return None
        axis = Axis(repeated[1], row[1], first[j], left[j], first[j + 1], left[j + 1])
        if not _is_straight(axis):
            return None
        axes.append(axis)
        i, j = i + 2, j + 2
    return tuple(axes) if (i, j) == (len(wide), len(split)) else None


def _is_straight(axis: Axis) -> bool:
    """Whether no row continues at the start of the axis."""
    step = axis.row - axis.period
    if step < 0 or not axis.rows or not axis.columns:
        return False
    return (axis.first_row + axis.rows - 1) * step + axis.first_column + axis.columns <= axis.period


def make_windows(windows: Windows, source: RangedArray) -> RangedArray | None:
    """Returns the windows as a view of `source`; None if its axes are not repeated."""
    steps = len(source.ranges)
    numbers = source.numbers
    place = steps
    for axis in windows.axes:
        if isinstance(axis, Axis):
            if numbers.shape[place] > 1 and numbers.strides[place] != 0:
                return None
            place += 1
        place += 1
    return source.move(lambda a: _slide(a, windows.axes, steps))


def _slide(numbers: Numbers, axes: Sequence[Axis | tuple[int, int]], steps: int) -> Numbers:
    shape, strides = list(numbers.shape[:steps]), list(numbers.strides[:steps])
    starts: list[slice | int] = [slice(None)] * steps
    place = steps
    for axis in axes:
        stride = numbers.strides[place]
        if isinstance(axis, Axis):
            step = axis.row - axis.period
            stride = numbers.strides[place + 1]
            starts += [slice(0, 1), slice(axis.first_row * step + axis.first_column, None)]
            shape += [axis.rows, axis.columns]
            strides += [step * stride, stride]
            place += 2
        else:
            starts.append(slice(axis[0], axis[0] + axis[1]))
            shape.append(axis[1])
            strides.append(stride)
            place += 1
    return as_strided(numbers[tuple(starts)], shape, strides, writeable=False)


class Plan:
    """The nodes to be computed: `order`, sources first. `products` and `windows` map the positions of nodes that are
    computed from other nodes than their sources; the nodes in between are not in `order`."""

    def __init__(self, graph: OpGraph, asked: Sequence[int], known: Collection[int]):
        """`known` are the nodes whose values are known already."""
        self.graph = graph
        self.products: dict[int, Product] = {}
        self.windows: dict[int, Windows] = {}
        reached = graph.reach(asked, known)
        readers = Counter(source for slot in reached for source in graph.nodes[slot].src)
        kept = {*asked, *known}
        for slot in reached:
            op = graph.nodes[slot].op
            if slot in known:
                continue
            if op == "reduce" and (product := find_product(graph, slot, readers, kept)) is not None:
                self.products[slot] = product
            elif op == "shrink" and (windows := find_windows(graph, slot, readers, kept)) is not None:
                self.windows[slot] = windows
        self.order = self._reach_sources(asked, known)

    def count_readers(self) -> Counter[int]:
        """Maps each node to the number of nodes in the plan that read it."""
        return Counter(source for slot in self.order for source in self.list_sources(slot))

    def list_sources(self, slot: int) -> Sequence[int]:
        """Returns the nodes whose values a node is computed from."""
        node = self.graph.nodes[slot]
        if slot in self.products:
            return self.products[slot].sources
        if slot in self.windows:
            return (self.windows[slot].source,)
        if node.op == "after":
            return list_sources(self.graph, slot)
        if node.op == "assign":
            return node.src[1:2]
        if node.op == "store":
            return ()
        return node.src

    def _reach_sources(self, asked: Sequence[int], known: Collection[int]) -> list[int]:
        found: set[int] = set()
        stack = list(asked)
        while stack:
            slot = stack.pop()
            if slot not in found and slot not in known:
                found.add(slot)
                stack += self.list_sources(slot)
        return sorted(found)
