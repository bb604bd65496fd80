"""Runs a kernel as the scheduler made it, by numpy: a loop is an axis, an index expression an array of places.

What would take too much memory is computed in parts: some loops of what is stored, a few of their steps at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vmapdbg.reference.evaluate import Evaluator
from vmapdbg.reference.graph import Graph, Node, Unknown
from vmapdbg.reference.kernel import Kernel, Store
from vmapdbg.reference.kinds import find_carrier, load
from vmapdbg.reference.value import Mask, Value, align
from vmapdbg.values.numbers import Array, Numbers, encode

MOST_AT_ONCE = 1 << 22
"""The most elements that a node has at a time."""
MOST_ELEMENTS = 1 << 30
"""The most elements that a node has in all. About ten seconds for each node of that size."""

Part = Mapping[int, range]
"""Step range -> those of its steps that are computed."""


@dataclass(frozen=True)
class Written:
    """What an argument holds when the kernel has run, and which of its elements nobody defines: because they come from
    outside of a buffer, or because C leaves them undefined. None: all are defined."""

    array: Array
    undefined: Mask | None


def run_kernel(kernel: Kernel, contents: Mapping[int, Array]) -> dict[int, Written]:
    """Returns what each argument that is written holds afterwards, by its number.

    `contents` has what the arguments hold before, flat. Raises Unknown where that cannot be said, with the reason.
    """
    refuse_order(kernel)
    memories = {number: load(array) for number, array in contents.items()}
    parts = list(split(kernel))
    after = {store.argument: memories[store.argument].copy() for store in kernel.stores}
    undefined = {number: np.zeros(memory.size, np.bool_) for number, memory in after.items()}
    asked = [slot for store in kernel.stores for slot in store.slots]
    for part in parts:
        evaluator = KernelEvaluator(kernel.graph, memories, part)
        found = dict(zip(asked, evaluator.evaluate(asked), strict=True))
        for store in kernel.stores:
            _write(store, found, after[store.argument], undefined[store.argument])
    return {number: _finish(kernel.dtypes[number], after[number], undefined[number]) for number in after}


def refuse_order(kernel: Kernel) -> None:
    """Raises Unknown where the values depend on the order of the steps: what is read may have been written."""
    written = {store.argument: store.place for store in kernel.stores}
    if len(written) < len(kernel.stores):
        raise Unknown("it writes one buffer in two ways")
    for node in kernel.graph.nodes:
        if node.op == "load" and written.get(node.arg, node.src[0]) != node.src[0]:
            raise Unknown("it reads the buffer that it writes at other places: its value depends on the order")


def _finish(dtype: str, memory: Numbers, undefined: Mask) -> Written:
    return Written(encode(memory, dtype), undefined if undefined.any() else None)


def _write(store: Store, found: Mapping[int, Value | Unknown], memory: Numbers, undefined: Mask) -> None:
    values = []
    for slot in store.slots:
        value = found[slot]
        if isinstance(value, Unknown):
            raise value
        values.append(value)
    spread, _ = align(values)
    shape = np.broadcast_shapes(*(value.numbers.shape for value in spread))
    place, number, *gates = (np.broadcast_to(value.numbers, shape) for value in spread)
    is_written = np.ones(shape, np.bool_)
    for gate in gates:
        is_written &= gate
    outside = is_written & ((place < 0) | (place >= memory.size))
    if outside.any():
        raise Unknown("it writes outside of its buffer")
    # of two values for one place the one of the later step stays, as in the loops of the kernel
    memory[place[is_written]] = number[is_written]
    unknown = spread[1].undefined
    undefined[place[is_written]] = False if unknown is None else np.broadcast_to(unknown, shape)[is_written]


# *** parts


def split(kernel: Kernel) -> Iterator[Part]:
    """Yields the parts in which the kernel is computed. Raises Unknown where it would take too long, or where no loop
    can be split."""
    graph = kernel.graph
    opened = [find_steps(graph, slot, names) for slot, names in enumerate(graph.find_open())]
    counts = [math.prod(graph.ranges[name] for name in names) for names in opened]
    if max(counts, default=0) > MOST_ELEMENTS:
        raise Unknown(f"it takes {max(counts):,} elements at a time")
    chosen = choose_lengths(graph, opened, find_outer(kernel, opened))
    steps = [_cut(name, graph.ranges[name], length) for name, length in chosen.items()]
    yield from map(dict, itertools.product(*steps))


def find_steps(graph: Graph, slot: int, names: frozenset[int]) -> frozenset[int]:
    """Returns the step ranges that it takes to compute a node: a reduce has those that it ends, too."""
    node = graph.nodes[slot]
    return names | set(node.arg[3]) if node.op == "reduce" else names


def find_outer(kernel: Kernel, opened: Sequence[frozenset[int]]) -> set[int]:
    """Returns the loops around what is stored that nothing inside of the kernel ends: those can be split."""
    names = {name for store in kernel.stores for slot in store.slots for name in opened[slot]}
    for node in kernel.graph.nodes:
        if node.op == "reduce":
            names -= set(node.arg[3])
        elif node.op == "pick":
            names -= set(node.arg)
    return names


def choose_lengths(graph: Graph, opened: Sequence[frozenset[int]], outer: set[int]) -> dict[int, int]:
    """Returns how many steps of each loop are computed at a time, for those that are split. Raises Unknown."""
    lengths = dict(graph.ranges)

    def find_largest() -> tuple[int, frozenset[int]]:
        return max(((math.prod(lengths[name] for name in names), names) for names in opened), key=lambda one: one[0])

    chosen: dict[int, int] = {}
    while opened and (largest := find_largest())[0] > MOST_AT_ONCE:
        count, names = largest
        left = sorted(name for name in names & outer if name not in chosen)
        if not left:
            raise Unknown(f"it takes {count:,} elements at a time")
        # the outermost first
        name = left[0]
        rest = count // lengths[name]
        lengths[name] = chosen[name] = max(1, MOST_AT_ONCE // rest)
    return chosen


def _cut(name: int, size: int, length: int) -> list[tuple[int, range]]:
    return [(name, range(start, min(start + length, size))) for start in range(0, size, length)]


class KernelEvaluator(Evaluator):
    """Computes nodes of a kernel. `memories` has the elements of its arguments by their numbers, `part` the steps that
    are computed of those ranges of which not all are."""

    def __init__(self, graph: Graph, memories: Mapping[int, Numbers], part: Part):
        super().__init__(graph, _read_nothing)
        self.memories, self.part = memories, part

    def _check_room(self, slot: int) -> None:
        """The parts are small enough."""

    def _make_step(self, slot: int, node: Node) -> Value:
        name, count = node.arg
        steps = self.part.get(name, range(count))
        return Value(np.arange(steps.start, steps.stop, dtype=find_carrier(node.dtype)), (name,))

    def _make_load(self, slot: int, node: Node) -> Value:
        memory = self.memories[node.arg]
        spread, ranges = align([self._value(source) for source in node.src])
        place = spread[0].numbers
        outside = (place < 0) | (place >= memory.size)
        taken = memory[np.where(outside, 0, place)]
        if len(spread) > 1:
            gate = spread[1].numbers
            outside = outside & gate
            taken = np.where(gate, taken, np.zeros((), taken.dtype))
        value = Value(taken, ranges).mark(outside)
        for source in spread:
            value = value.mark(source.undefined)
        return value

    def _make_pick(self, slot: int, node: Node) -> Value:
        held, *indices = (self._value(source) for source in node.src)
        asked = dict(zip(node.arg, indices, strict=True))
        sizes = dict(zip(held.ranges, held.numbers.shape, strict=False))
        if not sizes:
            return held
        # an axis that was not closed is read at each of its own steps
        places = [asked.get(name, Value(np.arange(size), (name,))) for name, size in sizes.items()]
        spread, ranges = align(places)
        outside = np.zeros((), np.bool_)
        inside = []
        for place, size in zip(spread, sizes.values(), strict=True):
            is_beyond = (place.numbers < 0) | (place.numbers >= size)
            outside = outside | is_beyond
            inside.append(np.where(is_beyond, 0, place.numbers))
        taken = held.move(lambda a: a[tuple(inside)])
        return replace(taken, ranges=ranges).mark(outside)


def _read_nothing(name: str) -> bytes:
    raise Unknown(f"a kernel has no input {name}")
