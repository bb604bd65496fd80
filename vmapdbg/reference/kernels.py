"""Evaluates graphs with loops: kernels as the scheduler made them, and what its passes make of a graph. A loop is a
step range: a node has one value for each step of the loops that it depends on. A kernel that takes too much memory is
computed in parts, a few steps of its outer loops at a time. What an invalid index reads is undefined, as is memory that
no kernel wrote."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from vmapdbg.reference.arithmetic import Rounding, carrier_of
from vmapdbg.reference.evaluate import Evaluator, clip_places, write_steps
from vmapdbg.reference.graph import OpGraph, OpNode, ScheduledKernel, Unknown, ended_ranges
from vmapdbg.reference.value import RangedArray, align
from vmapdbg.values.numbers import Numbers

MOST_IN_PART = 1 << 22
"""The most elements that a node of a kernel has at a time."""
MOST_ELEMENTS = 1 << 30
"""The most elements that a node of a kernel has in all. About ten seconds for each node of that size."""
MOST_AT_ONCE = 1 << 25
"""The most elements that a node of another graph has. About a second for each node of that size."""


class LoopEvaluator(Evaluator):
    """Computes nodes of a graph with loops."""

    def _check_room(self, slot: int) -> None:
        count = self._count_elements(slot)
        if count > MOST_AT_ONCE:
            raise Unknown(f"it takes {count:,} elements at a time")

    def _count_elements(self, slot: int) -> int:
        """Returns how many elements the value of a node has at all steps together."""
        node = self.graph.nodes[slot]
        sizes: dict[int, int] = {}
        for source in self._plan.list_sources(slot):
            found = self.known.get(source, self._values.get(source))
            if isinstance(found, RangedArray):
                for name, size in found.sizes.items():
                    sizes[name] = max(size, sizes.get(name, 1))
        if node.op == "reduce":
            for name in node.arg[3]:
                sizes[name] = self.graph.ranges[name]
        steps = math.prod(sizes.values())
        if node.op == "close":
            # its axes are among the steps
            return steps * math.prod(n for n, name in zip(node.shape, node.arg[0], strict=True) if name not in sizes)
        if node.op in {"put", "launch"}:
            return max(steps, math.prod(node.shape))
        return steps * math.prod(node.shape)

    def _make_buffer(self, slot: int, node: OpNode) -> RangedArray:
        if slot in self.graph.inputs:
            return super()._make_buffer(slot, node)
        return self._make_invalid(slot, node)

    def _make_invalid(self, slot: int, node: OpNode) -> RangedArray:
        return RangedArray(np.zeros(node.shape, carrier_of(node.dtype)), (), np.ones(node.shape, np.bool_))

    def _make_close(self, slot: int, node: OpNode) -> RangedArray:
        source = self._value(node.src[0])
        names, kept = node.arg
        if source.own_shape:
            raise Unknown("the value of a buffer has axes")
        closed = [name for name in names if name is not None]
        if len(set(closed)) < len(closed):
            raise Unknown("a buffer closes a range twice")
        if kept is not None:
            for lost in set(source.ranges) - {*closed, *kept}:
                source = source.take_step(lost, -1)
        shape = (*source.numbers.shape, *[1] * (len(names) - len(closed)))
        return source.move(np.reshape, shape).leave_scope(names, node.shape)

    def _make_fetch(self, slot: int, node: OpNode) -> RangedArray:
        held, *indices = map(self._value, node.src)
        steps = [RangedArray(np.arange(size), (name,)) for name, size in held.sizes.items()]
        spread, ranges = align([*steps, *indices])
        count = len(spread) - bool(node.arg)
        places, outside = clip_places([value.numbers for value in spread[:count]], held.numbers.shape)
        taken = held.move(operator.getitem, places, ranges=ranges)
        for gate in spread[count:]:
            outside = outside & gate.numbers
            taken = taken.move(lambda a, gate=gate.numbers: np.where(gate, a, np.zeros((), a.dtype)))
        axes_left = (1,) * (taken.numbers.ndim - len(ranges))
        taken = taken.mark(outside.reshape((*outside.shape, *axes_left)))
        for value in spread:
            if value.undefined is not None:
                taken = taken.mark(value.undefined.reshape((*value.numbers.shape, *axes_left)))
        return taken

    def _make_put(self, slot: int, node: OpNode) -> RangedArray:
        memory, value, *indices = map(self._value, node.src)
        if memory.ranges:
            raise Unknown("memory depends on a step")
        if value.own_shape:
            raise Unknown("what is written has axes")
        numbers, undefined = memory.numbers.copy(), memory.mask.copy()
        count = len(indices) - bool(node.arg)
        are_valid = [RangedArray(~index.mask, index.ranges) for index in indices[:count]]
        write_steps(numbers, undefined, value, indices[:count], [*are_valid, *indices[count:]])
        return RangedArray(numbers).mark(undefined)

    def _make_launch(self, slot: int, node: OpNode) -> RangedArray:
        kernel, asked, arguments = node.arg
        assert isinstance(kernel, ScheduledKernel)
        written = kernel.list_written()
        contents: dict[int, Numbers] = {}
        for number, source in zip(arguments, node.src, strict=True):
            memory = self._value(source)
            if memory.ranges:
                raise Unknown("memory depends on a step")
            if memory.undefined is not None and number not in written:
                raise Unknown("it reads memory that was never written")
            contents[number] = memory.numbers.reshape(-1)
        found = run_kernel(kernel, contents).get(asked)
        if found is None:
            raise Unknown("the kernel does not write the buffer")
        return found.move(np.reshape, node.shape)


# *** a whole kernel


def run_kernel(
    kernel: ScheduledKernel, contents: Mapping[int, Numbers], rounding: Rounding | None = None
) -> dict[int, RangedArray]:
    """Maps each written argument to its contents afterwards, flat like the `contents` before. Raises Unknown."""
    refuse_order(kernel)
    given = {slot: RangedArray(contents[number]) for number, slot in kernel.arguments.items()}
    parts = list(split(kernel))
    after = {number: contents[number].copy() for number in kernel.list_written()}
    undefined = {number: np.zeros(memory.size, np.bool_) for number, memory in after.items()}
    asked = [slot for put in kernel.puts for slot in put.src[1:]]
    for part in parts:
        evaluator = LoopEvaluator(kernel.graph, {}.__getitem__, rounding, given)  # a kernel has no inputs
        evaluator.part = part
        found = dict(zip(asked, evaluator.evaluate_all(asked), strict=True))
        for number, put in zip(after, kernel.puts, strict=True):
            value, place, *gates = (found[slot] for slot in put.src[1:])
            write_steps(after[number], undefined[number], value, [place], gates)
    return {number: RangedArray(memory).mark(undefined[number]) for number, memory in after.items()}


def refuse_order(kernel: ScheduledKernel) -> None:
    """Raises Unknown if the values depend on the order of the steps: what is read may have been written."""
    written = {put.src[0]: put.src[2] for put in kernel.puts}  # argument -> the place in it that is written
    if len(written) < len(kernel.puts):
        raise Unknown("it writes one buffer in two ways")
    for node in kernel.graph.nodes:
        if node.op == "fetch" and written.get(node.src[0], node.src[1]) != node.src[1]:
            raise Unknown("it reads the buffer that it writes at other places: its value depends on the order")


def split(kernel: ScheduledKernel) -> Iterator[Mapping[int, range]]:
    """Yields the parts in which a kernel is computed: step range -> its steps. Raises Unknown if it takes too long."""
    graph = kernel.graph
    open_ranges = graph.open_ranges()
    used = [names | ended_ranges(node) for node, names in zip(graph.nodes, open_ranges, strict=True)]
    counts = [math.prod(graph.ranges[name] for name in names) for names in used]
    if max(counts, default=0) > MOST_ELEMENTS:
        raise Unknown(f"it takes {max(counts):,} elements at a time")
    outer = {name for root in graph.roots for name in open_ranges[root]}
    for node in graph.nodes:
        outer -= ended_ranges(node)
    chosen = choose_lengths(graph, used, outer)
    steps: list[list[tuple[int, range]]] = []
    for name, length in chosen.items():
        size = graph.ranges[name]
        steps.append([(name, range(start, min(start + length, size))) for start in range(0, size, length)])
    yield from map(dict, itertools.product(*steps))


def choose_lengths(graph: OpGraph, used: Sequence[frozenset[int]], outer: set[int]) -> dict[int, int]:
    """Returns how many steps at a time, for split loops of `outer`; `used`: nodes' step ranges. Raises Unknown."""
    lengths = dict(graph.ranges)
    chosen: dict[int, int] = {}
    while True:
        counts = [math.prod(lengths[name] for name in names) for names in used]
        largest = max(counts, default=0)
        if largest <= MOST_IN_PART:
            return chosen
        left = used[counts.index(largest)] & outer - chosen.keys()
        if not left:
            raise Unknown(f"it takes {largest:,} elements at a time")
        name = min(left)  # the outermost first
        lengths[name] = chosen[name] = max(1, MOST_IN_PART // (largest // lengths[name]))
