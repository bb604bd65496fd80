"""Graphs of the reference, made by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmapdbg.reference.arithmetic import Rounding
from vmapdbg.reference.evaluate import Evaluator
from vmapdbg.reference.graph import OpGraph, OpNode, Unknown
from vmapdbg.reference.value import RangedArray
from vmapdbg.values.numbers import encode


class Maker:
    """Makes one graph; every method returns the position of the node that it adds."""

    def __init__(self) -> None:
        self.graph, self.contents = OpGraph(), dict[str, bytes]()

    def add(self, op: str, *src: int, arg: Any = None, shape: tuple[int, ...] = (), dtype: str = "float") -> int:
        return self.graph.add(OpNode(op, dtype, shape, src, arg))

    def loop(self, name: int, size: int) -> int:
        self.graph.ranges[name] = size
        return self.add("step", arg=(name, size), dtype="long")

    def input(self, numbers: ArrayLike, dtype: str) -> int:
        array = np.asarray(numbers)
        slot = self.graph.add(OpNode("buffer", dtype, (array.size,)))
        self.graph.inputs[slot] = (self.keep(array, dtype),)
        return self.view("reshape", slot, array.shape)

    def sharded(self, shards: Sequence[ArrayLike], dtype: str) -> int:
        """A buffer on several devices, in the shape of its shards."""
        arrays = [np.asarray(shard) for shard in shards]
        slot = self.graph.add(OpNode("buffer", dtype, (arrays[0].size,)))
        self.graph.inputs[slot] = tuple(self.keep(array, dtype) for array in arrays)
        return self.view("reshape", slot, arrays[0].shape)

    def keep(self, array: NDArray[Any], dtype: str) -> str:
        name = f"input {len(self.contents)}"
        self.contents[name] = encode(array, dtype).data
        return name

    def const(self, number: float, dtype: str, shape: tuple[int, ...] = ()) -> int:
        return self.graph.add(OpNode("const", dtype, shape, (), number))

    def view(self, op: str, source: int, shape: tuple[int, ...], arg: Any = None, *numbers: int) -> int:
        return self.graph.add(OpNode(op, self.node(source).dtype, shape, (source, *numbers), arg))

    def op(self, op: str, *sources: int, dtype: str | None = None, arg: Any = None) -> int:
        shape = np.broadcast_shapes(*(self.node(source).shape for source in sources))
        return self.graph.add(OpNode(op, dtype or self.node(sources[-1]).dtype, shape, sources, arg))

    def view_as(self, op: str, source: int, dtype: str) -> int:
        """A cast or a bitcast to a dtype of the same size."""
        return self.graph.add(OpNode(op, dtype, self.node(source).shape, (source,)))

    def reduce(self, op: str, source: int, axes: tuple[int, ...], keep: bool = True) -> int:
        before = self.node(source).shape
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(before))
        shape = kept if keep else tuple(size for axis, size in enumerate(before) if axis not in axes)
        return self.graph.add(OpNode("reduce", self.node(source).dtype, shape, (source,), (op, axes, keep, ())))

    def node(self, slot: int) -> OpNode:
        return self.graph.nodes[slot]

    def evaluator(self, rounding: Rounding | None = None, **options: Any) -> Evaluator:
        return Evaluator(self.graph, self.contents.__getitem__, rounding, **options)

    def value(self, slot: int, rounding: Rounding | None = None) -> RangedArray:
        (found,) = self.evaluator(rounding).evaluate([slot])
        if isinstance(found, Unknown):
            raise found
        shape = self.node(slot).shape
        assert found.own_shape == shape, (found.own_shape, shape)
        return found

    def numbers(self, slot: int) -> NDArray[Any]:
        """The value of a node without step ranges, all of it defined."""
        value = self.value(slot)
        assert value.ranges == ()
        assert value.undefined is None
        return value.numbers


def count(*shape: int, start: float = 0.0) -> NDArray[np.float64]:
    """Numbers that are all different, in a shape."""
    return np.arange(start, start + math.prod(shape)).reshape(shape)
