"""Evaluates graphs with loops: what the passes of the scheduler make of a graph. A loop is a step range: a node has one
value for each step of the loops that it depends on. What an invalid index reads is undefined, as is memory that no
kernel wrote."""

import math
import operator

import numpy as np

from vmapdbg.reference.arithmetic import carrier_of
from vmapdbg.reference.evaluate import Evaluator, clip_places, write_steps
from vmapdbg.reference.graph import OpNode, Unknown
from vmapdbg.reference.value import RangedArray, align
from vmapdbg.values.numbers import Numbers

MOST_AT_ONCE = 1 << 25  # the most elements that a node has. About a second for each node of that size.


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
        places, outside = clip_places([value.numbers for value in spread], held.numbers.shape)
        taken = held.move(operator.getitem, places, ranges=ranges)
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
        are_valid = [RangedArray(~index.mask, index.ranges) for index in indices]
        write_steps(numbers, undefined, value, indices, are_valid)
        return RangedArray(numbers).mark(undefined)

    def _make_launch(self, slot: int, node: OpNode) -> RangedArray:
        run, written = node.arg
        contents: dict[int, Numbers] = {}
        for number, source in enumerate(node.src):
            memory = self._value(source)
            if memory.ranges:
                raise Unknown("memory depends on a step")
            if memory.undefined is not None and number not in written:
                raise Unknown("it reads memory that was never written")
            contents[number] = memory.numbers.reshape(-1)
        return RangedArray(run(contents).reshape(node.shape))
