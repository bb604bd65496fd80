"""Boxes of boxes, for a graph that is still too large to look at: what is equal and stands beside each other is one
box, then what follows each other.

A training step updates each parameter by the same few nodes: they are one box, "16 times". No circle is drawn that the
graph does not have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmapdbg.page.graph.model import Graph, GraphEdge, GraphNode, sort_names

_LEAST_TWINS = 3
"""So many equal boxes beside each other are one."""
_MOST_COMPARED = 500
"""Of more boxes only those are joined that have one reader, or read one: ways through the graph take too long."""


@dataclass(frozen=True)
class Look:
    """What is known of a node: `likeness` is what it has in common with the same node of another parameter, and `place`
    with what it is drawn together with first. What has another `side` never is. A `passive` node, a buffer, is like
    another one only where the same boxes write and read it."""

    likeness: Hashable
    place: Hashable
    side: Hashable = None
    passive: bool = False


@dataclass
class Box:
    """Nodes of a graph that are drawn as one, in the order of the graph. `times` counts those of one kind, where there
    are several of each."""

    key: str
    nodes: list[GraphNode]
    look: Look | None
    times: int = 1


@dataclass(frozen=True)
class Gathered:
    """A graph with boxes of boxes, and for each of these, by its id, the ids of what it has inside."""

    graph: Graph
    inside: dict[str, tuple[str, ...]]


Describe = Callable[[GraphNode], Look | None]
"""Returns nothing for a node that always stands alone."""
Label = Callable[[Box], GraphNode]
"""Returns what is drawn of a box with several nodes; its id is the key of the box."""


def gather_nodes(graph: Graph, most: int, describe: Describe, label: Label) -> Gathered:
    """Returns the graph with at most `most` boxes, where that can be had without a circle."""
    boxes = _Boxes(graph, describe)
    boxes.join_twins()
    boxes.join_simple(most)
    boxes.join_any(most)
    boxes.join_alone()
    return boxes.make_graph(graph, label)


class _Boxes:
    """Which nodes are one box, and which box reads which."""

    def __init__(self, graph: Graph, describe: Describe) -> None:
        self.boxes = {node.id: Box(node.id, [node], describe(node)) for node in graph.nodes}
        self.heads: dict[str, set[str]] = {name: set() for name in self.boxes}
        self.tails: dict[str, set[str]] = {name: set() for name in self.boxes}
        for edge in graph.edges:
            self.heads[edge.tail].add(edge.head)
            self.tails[edge.head].add(edge.tail)
        self.order = {node.id: number for number, node in enumerate(graph.nodes)}

    # *** what stands beside each other

    def join_twins(self) -> None:
        """Joins equal boxes of which none reads another, directly or through others, and the parts of one update."""
        if len(self.boxes) > 4 * _MOST_COMPARED:
            return
        joined = True
        while joined:
            joined = False
            for twins in self._find_twins():
                # what was joined before may have made a way from one to another
                if _are_apart(twins, self._find_below(), self.order):
                    self._join(twins, sum(self.boxes[name].times for name in twins))
                    joined = True
            while (pair := self._find_pair()) is not None:
                self._join(pair, self.boxes[pair[0]].times)
                joined = True

    def _find_twins(self) -> list[list[str]]:
        """The boxes that are alike, in groups of which none reads another."""
        below = self._find_below()
        alike: dict[Hashable, list[list[str]]] = defaultdict(list)
        for name in sort_names(self.tails, self.heads):
            likeness = self._find_likeness(name)
            if likeness is None:
                continue
            groups = alike[likeness]
            group = next((group for group in groups if _are_apart([*group, name], below, self.order)), None)
            if group is None:
                groups.append([name])
            else:
                group.append(name)
        return [group for groups in alike.values() for group in groups if len(group) >= _LEAST_TWINS]

    def _find_likeness(self, name: str) -> Hashable:
        box = self.boxes[name]
        if box.look is None or box.times > 1 or len(box.nodes) > 1:
            return None
        likeness = box.look.likeness, box.look.side
        if box.look.passive:
            return likeness, frozenset(self.heads[name]), frozenset(self.tails[name])
        return likeness

    def _find_pair(self) -> list[str] | None:
        """Two boxes of as many equal ones, of which one reads the other."""
        below: dict[str, int] | None = None
        for tail, box in self.boxes.items():
            if box.times == 1:
                continue
            for head in self.heads[tail]:
                if self._may_join([tail, head], len(self.order), True):
                    below = below or self._find_below()
                    if self._is_free(tail, head, below):
                        return [tail, head]
        return None

    # *** what follows each other

    def join_simple(self, most: int) -> None:
        """Joins boxes with the only one that reads them, or that they read, the smallest first and first those of one
        place. That makes no circle."""
        largest = len(self.order)
        for anywhere in (False, True):
            limit = 2
            while limit < 2 * largest and len(self.boxes) > most:
                self._sweep(most, limit, anywhere)
                limit *= 2

    def _sweep(self, most: int, limit: int, anywhere: bool) -> None:
        for name in sort_names(self.tails, self.heads):
            if len(self.boxes) <= most:
                return
            if name not in self.boxes:
                continue
            for pair in self._list_simple(name):
                if self._may_join(pair, limit, anywhere):
                    self._join(pair, 1)
                    break

    def _list_simple(self, name: str) -> Iterator[list[str]]:
        if len(self.heads[name]) == 1:
            yield [name, next(iter(self.heads[name]))]
        if len(self.tails[name]) == 1:
            yield [next(iter(self.tails[name])), name]

    def _may_join(self, pair: Sequence[str], limit: int, anywhere: bool) -> bool:
        first, second = (self.boxes[name] for name in pair)
        if first.look is None or second.look is None or first.look.side != second.look.side:
            return False
        if first.times != second.times:
            return False
        if len(first.nodes) + len(second.nodes) > limit:
            return False
        return anywhere or first.look.place == second.look.place

    def join_any(self, most: int) -> None:
        """Joins boxes where one reads the other, the smallest first, as long as no circle comes of it."""
        if len(self.boxes) > _MOST_COMPARED:
            return
        while len(self.boxes) > most:
            below = self._find_below()
            pairs = [(tail, head) for tail in self.boxes for head in self.heads[tail]]
            pairs.sort(key=lambda pair: sum(len(self.boxes[name].nodes) for name in pair))
            limit = len(self.order)
            found = next((p for p in pairs if self._may_join(p, limit, True) and self._is_free(*p, below)), None)
            if found is None:
                return
            self._join(found, 1)

    def join_alone(self) -> None:
        """Joins what reads nothing and is read by nothing: it would all stand in one row."""
        alone: dict[Hashable, list[str]] = defaultdict(list)
        for name, box in self.boxes.items():
            if box.look is not None and not self.heads[name] and not self.tails[name]:
                alone[box.look.side].append(name)
        for names in alone.values():
            if len(names) >= _LEAST_TWINS:
                self._join(names, 1)

    # *** the graph of boxes

    def _find_below(self) -> dict[str, int]:
        """For each box those that a way leads to, as bits."""
        below = dict.fromkeys(self.boxes, 0)
        names = sort_names(self.tails, self.heads)[::-1]
        changed = True
        # twice, but for graphs with a circle
        while changed:
            changed = False
            for name in names:
                found = below[name]
                for head in self.heads[name]:
                    found |= below[head] | 1 << self.order[head]
                if found != below[name]:
                    below[name], changed = found, True
        return below

    def _is_free(self, tail: str, head: str, below: dict[str, int]) -> bool:
        """Whether no other way leads from one box to another that reads it."""
        bit = 1 << self.order[head]
        return not any(below[other] & bit for other in self.heads[tail] if other != head)

    def _join(self, names: Sequence[str], times: int) -> None:
        """Makes one box of some, with the key of the last."""
        *others, key = sorted(names, key=self.order.__getitem__)
        boxes = [self.boxes[name] for name in names]
        nodes = sorted((node for box in boxes for node in box.nodes), key=lambda node: self.order[node.id])
        for name in others:
            for head in self.heads.pop(name):
                self.tails[head].discard(name)
                self._connect(key, head)
            for tail in self.tails.pop(name):
                self.heads[tail].discard(name)
                self._connect(tail, key)
            del self.boxes[name]
        self.boxes[key] = Box(key, nodes, boxes[0].look, times)

    def _connect(self, tail: str, head: str) -> None:
        if tail != head:
            self.heads[tail].add(head)
            self.tails[head].add(tail)

    def make_graph(self, graph: Graph, label: Label) -> Gathered:
        """Returns the graph with each box drawn as one."""
        names = {node.id: box.key for box in self.boxes.values() for node in box.nodes}
        joined = {key: box for key, box in self.boxes.items() if len(box.nodes) > 1}
        nodes = [label(joined[node.id]) if node.id in joined else node for node in graph.nodes if node.id in self.boxes]
        inside = {key: tuple(node.id for node in box.nodes) for key, box in joined.items()}
        return Gathered(replace(graph, nodes=tuple(nodes), edges=_move_edges(graph.edges, names)), inside)


def _move_edges(edges: Iterable[GraphEdge], names: Mapping[str, str]) -> tuple[GraphEdge, ...]:
    """Returns the edges between boxes, given the box of each node. Of several between two boxes there is one, without a
    label."""
    moved: dict[tuple[str, str, str, str], GraphEdge] = {}
    for edge in edges:
        tail, head = names[edge.tail], names[edge.head]
        key = tail, head, edge.kind, edge.mark
        if tail == head:
            continue
        if key in moved:
            moved[key] = replace(moved[key], label="", tooltip="")
        else:
            moved[key] = replace(edge, tail=tail, head=head)
    return tuple(moved.values())


def _are_apart(names: Sequence[str], below: dict[str, int], order: dict[str, int]) -> bool:
    """Whether no way leads from one of some boxes to another."""
    bits = sum(1 << order[name] for name in names)
    return not any(below[name] & bits for name in names)
