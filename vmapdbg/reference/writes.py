"""What a buffer holds after writes to views of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vmapdbg.reference.graph import Graph, Node
from vmapdbg.reference.kinds import bitcast
from vmapdbg.reference.movement import MOVEMENT
from vmapdbg.reference.value import Unknown, Value, align
from vmapdbg.values.numbers import ITEMSIZE

WRITES = frozenset({"assign", "store"})
_VIEWS = MOVEMENT | WRITES | {"same", "bitcast", "after", "shards", "shard"}


@dataclass(frozen=True)
class View:
    """How a node looks at memory: `base` is the node whose elements these are, and `path` leads from it to the view,
    the view last."""

    base: int
    path: tuple[int, ...]

    def find_sources(self, graph: Graph) -> tuple[int, ...]:
        """Returns the nodes whose values it takes to follow the path: where a shift depends on a step range."""
        return tuple(source for slot in self.path for source in graph.nodes[slot].src[1:] if _is_moved(graph, slot))


def _is_moved(graph: Graph, slot: int) -> bool:
    return graph.nodes[slot].op in MOVEMENT


def find_view(graph: Graph, slot: int) -> View:
    path: list[int] = []
    while graph.nodes[slot].op in _VIEWS and graph.nodes[slot].src:
        path.append(slot)
        slot = graph.nodes[slot].src[0]
    return View(slot, tuple(reversed(path)))


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


def is_whole(graph: Graph, view: View) -> bool:
    """Tells whether a view shows all its memory, in order."""
    return all(_shows_all(graph, slot) for slot in view.path)


def _shows_all(graph: Graph, slot: int) -> bool:
    node = graph.nodes[slot]
    if node.op == "shrink":
        # 0.14 writes the shape that memory has there
        return node.shape == graph.nodes[node.src[0]].shape
    return node.op in {"reshape", "same", "after", "assign"}


def fill(value: Value, seen: tuple[int, ...], whole: tuple[int, ...]) -> Value:
    """Returns memory of shape `whole` after a write of a value to a view that shows all of it, in shape `seen`."""
    batch = value.numbers.shape[: len(value.ranges)]
    return value.move(lambda a: np.broadcast_to(a, (*batch, *seen)).reshape(*batch, *whole))


def recast(value: Value, before: str, after: str) -> Value:
    """Returns elements of memory of dtype `before` as what they are through a bitcast to `after`, of the same size."""
    if before == after:
        return value
    return Value(bitcast(value.numbers, before, after), value.ranges, value.undefined)


def find_writes(graph: Graph, slot: int) -> list[int]:
    """Returns the stores and assigns that an `after` comes after, in the order in which they are done: its own, and
    those that what it looks at, or writes through, comes after."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [slot]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        node = graph.nodes[current]
        if node.op in WRITES:
            found.add(current)
        else:
            stack += node.src[1:]
        stack += _find_earlier(graph, node.src[0])
    return sorted(found)


def _find_earlier(graph: Graph, slot: int) -> list[int]:
    """The assigns and afters on the way down from a view to its memory."""
    return [step for step in find_view(graph, slot).path if graph.nodes[step].op in {"assign", "after"}]


def list_sources(graph: Graph, slot: int) -> Sequence[int]:
    """Returns the nodes whose values an `after` needs: memory, what is written there, and what the views depend on."""
    writes = [graph.nodes[write] for write in find_writes(graph, slot)]
    views = [find_view(graph, seen) for seen in (graph.nodes[slot].src[0], *(write.src[0] for write in writes))]
    needed = [needed for view in views for needed in (view.base, *view.find_sources(graph))]
    return (*needed, *(write.src[1] for write in writes))
