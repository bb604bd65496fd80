"""Evaluates graphs between the tensor graph and the kernels, where some values have axes and others a step range for
each axis: what the scheduler's passes make of a graph one after the other.

Beside the ops of `vmapdbg.reference.graph.OPS` there are those of MIXED_OPS. What stands under an invalid index is
undefined, as is memory that nobody wrote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vmapdbg.reference.evaluate import Evaluator
from vmapdbg.reference.graph import Node, Unknown
from vmapdbg.reference.kernel import Kernel
from vmapdbg.reference.kinds import find_carrier, load
from vmapdbg.reference.movement import leave_scope
from vmapdbg.reference.run_kernel import run_kernel
from vmapdbg.reference.value import Mask, Value, align
from vmapdbg.values.numbers import Array, Numbers, encode

MIXED_OPS = {
    "invalid": "no number at all: None",
    "close": "(for each axis of the result the id of the step range that it is closed over, None for one of size 1; "
    "the step ranges that it may still depend on, None for any); source: a value without axes. Of another range the "
    "last step stays: memory is the same at each step",
    "fetch": "None; sources: a value with axes, and an index for each of the first of them. Other axes stay",
    "put": "None; sources: what memory holds before, the value that is written, and an index for each axis of it",
    "launch": "(a kernel, the number of the argument asked for, the numbers of its arguments); sources: what each of "
    "these holds before; the value is what the one asked for holds afterwards",
}
"""Op -> what its `arg` says."""

MOST_AT_ONCE = 1 << 25
"""The most elements that a node has: about a second for each node of that size."""


class MixedEvaluator(Evaluator):
    """Computes nodes of a graph that a pass has made."""

    def _check_room(self, slot: int) -> None:
        node = self.graph.nodes[slot]
        sizes: dict[int, int] = {}
        for source in self._plan.list_sources(slot):
            for name, size in self._list_sizes(source):
                sizes[name] = max(size, sizes.get(name, 1))
        if node.op == "reduce":
            sizes |= {name: self.graph.ranges[name] for name in node.arg[3]}
        own = math.prod(node.shape)
        if node.op == "close":
            # its axes are among the steps
            own = math.prod(size for size, name in zip(node.shape, node.arg[0], strict=True) if name not in sizes)
        elif node.op in {"put", "launch"}:
            own = max(1, own // math.prod(sizes.values()))
        count = own * math.prod(sizes.values())
        if count > MOST_AT_ONCE:
            raise Unknown(f"it takes {count:,} elements at a time")

    def _list_sizes(self, slot: int) -> list[tuple[int, int]]:
        """Returns the step ranges of a value that is known with their sizes."""
        found = self.known.get(slot, self._values.get(slot))
        if not isinstance(found, Value):
            return []
        return _list_sizes(found)

    def _make_buffer(self, slot: int, node: Node) -> Value:
        if slot in self.graph.inputs:
            return super()._make_buffer(slot, node)
        return _undefine(Value(np.zeros(node.shape, find_carrier(node.dtype))))

    def _make_invalid(self, slot: int, node: Node) -> Value:
        return _undefine(Value(np.zeros(node.shape, find_carrier(node.dtype))))

    def _make_close(self, slot: int, node: Node) -> Value:
        source = self._value(node.src[0])
        names, kept = node.arg
        if source.own_shape:
            raise Unknown("a buffer is made of a value that has axes")
        closed = [name for name in names if name is not None]
        if len(set(closed)) < len(closed):
            raise Unknown("a buffer closes a range twice")
        if kept is not None:
            for lost in set(source.ranges) - {*closed, *kept}:
                source = source.take_step(lost, -1)
        shape = (*source.numbers.shape, *[1] * (len(names) - len(closed)))
        flat = source.move(lambda a: a.reshape(shape))
        return leave_scope(flat, names, node.shape)

    def _make_fetch(self, slot: int, node: Node) -> Value:
        held, *indices = (self._value(source) for source in node.src)
        steps = [_step_through(name, size) for name, size in _list_sizes(held)]
        spread, ranges = align([*steps, *indices])
        sizes = held.numbers.shape
        places, outside = _find_places([value.numbers for value in spread], sizes)
        taken = held.move(lambda a: a[places])
        return replace(taken, ranges=ranges).mark(self._spread_mask(outside, spread, taken))

    def _spread_mask(self, outside: Mask, indices: Sequence[Value], taken: Value) -> Mask:
        """Returns which elements are undefined as their index is, or is beyond the end."""
        for index in indices:
            outside = outside | index.mask
        left = taken.numbers.ndim - outside.ndim
        return outside.reshape((*outside.shape, *[1] * left))

    def _make_put(self, slot: int, node: Node) -> Value:
        memory, value, *indices = (self._value(source) for source in node.src)
        if memory.ranges:
            raise Unknown("memory depends on a step")
        if value.own_shape:
            raise Unknown("what is written has axes")
        spread, _ = align([value, *indices])
        shape = np.broadcast_shapes(*(one.numbers.shape for one in spread))
        what, *where = (np.broadcast_to(one.numbers, shape) for one in spread)
        is_written = np.ones(shape, np.bool_)
        for index in spread[1:]:
            is_written &= ~np.broadcast_to(index.mask, shape)
        places, outside = _find_places(where, memory.numbers.shape)
        if (outside & is_written).any():
            raise Unknown("it writes outside of its buffer")
        # of two values for one place the one of the later step stays, as in the loops of the kernel
        chosen = tuple(place[is_written] for place in places)
        numbers, undefined = memory.numbers.copy(), memory.mask.copy()
        numbers[chosen] = what[is_written]
        undefined[chosen] = np.broadcast_to(spread[0].mask, shape)[is_written]
        return Value(numbers).mark(undefined)

    def _make_launch(self, slot: int, node: Node) -> Value:
        kernel, asked, arguments = node.arg
        assert isinstance(kernel, Kernel)
        written = {store.argument for store in kernel.stores}
        contents: dict[int, Array] = {}
        for number, source in zip(arguments, node.src, strict=True):
            memory = self._value(source)
            if memory.ranges:
                raise Unknown("memory depends on a step")
            if memory.undefined is not None and number not in written:
                raise Unknown("it reads memory that nobody wrote")
            dtype = kernel.dtypes.get(number)
            if dtype is not None:
                contents[number] = encode(memory.numbers.reshape(-1), dtype)
        found = run_kernel(kernel, contents).get(asked)
        if found is None:
            raise Unknown("the kernel does not write the buffer")
        return Value(load(found.array).reshape(node.shape)).mark(_reshape(found.undefined, node.shape))


def _undefine(value: Value) -> Value:
    return replace(value, undefined=np.ones(value.numbers.shape, np.bool_))


def _reshape(mask: Mask | None, shape: tuple[int, ...]) -> Mask | None:
    return None if mask is None else mask.reshape(shape)


def _list_sizes(value: Value) -> list[tuple[int, int]]:
    """Returns the step ranges of a value with their sizes: 1 where it is the same at each step."""
    return list(zip(value.ranges, value.numbers.shape, strict=False))


def _step_through(name: int, size: int) -> Value:
    return Value(np.arange(size), (name,))


def _find_places(indices: Sequence[Numbers], sizes: Sequence[int]) -> tuple[tuple[Numbers, ...], Mask]:
    """Returns indices within the first axes of memory, and which of them were beyond it."""
    outside = np.zeros((), np.bool_)
    inside = []
    for index, size in zip(indices, sizes, strict=False):
        is_beyond = (index < 0) | (index >= size)
        outside = outside | is_beyond
        inside.append(np.where(is_beyond, 0, index))
    return tuple(inside), outside
