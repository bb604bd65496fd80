"""What a buffer holds after writes to views of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vmapdbg.reference.graph import MOVEMENT, Graph, Node, Unknown
from vmapdbg.reference.kinds import bitcast
from vmapdbg.reference.value import Value, align
from vmapdbg.reference.views import View
from vmapdbg.values.itemsize import ITEMSIZE

Apply = Callable[[int, Value], Value]
"""Returns what a movement op, by its position, makes of a value."""


def write(memory: Value, places: Value, value: Value) -> Value:
    """Returns memory with a value at some places of it: `places` has the number of an element, see `number_elements`,
    for each element of the value."""
    if not set(value.ranges) <= set(places.ranges):
        raise Unknown("what is written depends on a step, where it is written does not")
    (where, what), _ = align([places, value])
    # where two elements have one place nobody says which of them stays
    numbers = memory.numbers.copy()
    numbers.reshape(-1)[where.numbers] = np.broadcast_to(what.numbers, where.numbers.shape)
    if memory.undefined is None and what.undefined is None:
        return replace(memory, numbers=numbers)
    undefined = memory.mask.copy()
    undefined.reshape(-1)[where.numbers] = what.mask
    return replace(memory, numbers=numbers, undefined=undefined)


def number_elements(memory: Value) -> Value:
    """Returns memory of the same size in which each element is its own number."""
    return Value(np.arange(memory.numbers.size).reshape(memory.numbers.shape), memory.ranges)


def follow(view: View, graph: Graph, memory: Value, apply: Apply) -> Value:
    """Returns what a view shows of memory that has the shape of its base."""
    value = memory
    for slot in view.path:
        node = graph.nodes[slot]
        if node.op in MOVEMENT or node.op in {"shards", "shard"}:
            value = apply(slot, value)
        elif node.op == "bitcast" and _changes_size(graph, node):
            raise Unknown("a write through a bitcast to elements of another size")
    return value


def _changes_size(graph: Graph, node: Node) -> bool:
    return ITEMSIZE[node.dtype] != ITEMSIZE[graph.nodes[node.src[0]].dtype]


def fill(value: Value, seen: tuple[int, ...], whole: tuple[int, ...]) -> Value:
    """Returns memory of shape `whole` after a write of a value to a view that shows all of it, in shape `seen`."""
    batch = value.numbers.shape[: len(value.ranges)]
    return value.move(lambda a: np.broadcast_to(a, (*batch, *seen)).reshape(*batch, *whole))


def recast(value: Value, before: str, after: str) -> Value:
    """Returns elements of memory of dtype `before` as what they are through a bitcast to `after`, of the same size."""
    if before == after:
        return value
    return Value(bitcast(value.numbers, before, after), value.ranges, value.undefined)
