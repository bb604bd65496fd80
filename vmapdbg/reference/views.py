"""What a node of a graph looks at, and what is written through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmapdbg.reference.graph import MOVEMENT, Graph

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


def is_whole(graph: Graph, view: View) -> bool:
    """Tells whether a view shows all its memory, in order."""
    return all(_shows_all(graph, slot) for slot in view.path)


def _shows_all(graph: Graph, slot: int) -> bool:
    node = graph.nodes[slot]
    if node.op == "shrink":
        # 0.14 writes the shape that memory has there
        return node.shape == graph.nodes[node.src[0]].shape
    return node.op in {"reshape", "same", "after", "assign"}


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
