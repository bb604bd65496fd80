"""Folds a graph into fewer boxes: layers that repeat, boxes that are alike, and boxes that follow each other.

Every stage and the report fold with `Boxes`. A caller says by a `Look` what two things have in common. No step adds a
circle that the graph does not have.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from vmapdbg.page.graph.model import COMMON, SIGNS, Graph, GraphEdge, GraphNode, measure_ranks, sort_names

_LEAST_ALIKE = 3
"""A layer must run this often, and this many alike boxes must be beside each other, to become one box."""
_MOST_COMPARED = 500
"""With more boxes than this, only a box and its only reader (or only source) are joined: looking for other ways through
the graph takes too long."""
_MOST_TO_SEARCH = 3000
_FAR_ROWS = 6
_MOST_NAMED = 6

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Look:
    """What is known of a thing in a box.

    Things with equal `likeness` are alike. Things of one `place` are joined first, things of two `side`s never. A
    `passive` thing (a buffer, an input) counts as alike only if the same boxes write and read it.
    """

    likeness: Hashable
    place: Hashable = None
    side: Hashable = None
    passive: bool = False


@dataclass
class Box(Generic[Thing]):
    """Things drawn as one box.

    `members` are the keys of `things`. `times` says how many of each kind are in it, if they are alike. `repeats`
    counts the layers in it, which are copies of the layer above it; `layer` has the members of the last copy.
    """

    key: str
    members: list[str]
    things: list[Thing]
    look: Look | None
    times: int = 1
    repeats: int = 0
    layer: tuple[str, ...] = ()


LookOf = Callable[[Thing], Look | None]
"""Returns the look of a thing, None for a thing that always has a box of its own."""


class Boxes(Generic[Thing]):
    """The boxes of a graph by key, and which box reads which. At first every thing has its own box."""

    def __init__(self, things: Mapping[str, Thing], edges: Iterable[tuple[str, str]], look: LookOf[Thing]) -> None:
        self.things = things
        self.boxes = {key: Box(key, [key], [thing], look(thing)) for key, thing in things.items()}
        # dicts in the place of sets: their order does not change from run to run
        self.heads: dict[str, dict[str, None]] = {key: {} for key in self.boxes}
        self.tails: dict[str, dict[str, None]] = {key: {} for key in self.boxes}
        for tail, head in edges:
            self._connect(tail, head)
        self.order = {key: number for number, key in enumerate(things)}

    def _connect(self, tail: str, head: str) -> None:
        if tail != head:
            self.heads[tail][head] = None
            self.tails[head][tail] = None

    def _join(self, keys: Sequence[str], members: list[str], look: Look | None, times: int) -> Box[Thing]:
        """Makes one box of several, with the key and the place of the last."""
        *others, key = keys
        for other in others:
            for head in self.heads.pop(other):
                self.tails[head].pop(other)
                self._connect(key, head)
            for tail in self.tails.pop(other):
                self.heads[tail].pop(other)
                self._connect(tail, key)
            del self.boxes[other]
        self.boxes[key] = Box(key, members, [self.things[member] for member in members], look, times)
        return self.boxes[key]

    def _join_sorted(self, keys: Sequence[str], times: int = 1) -> None:
        members = sorted((member for key in keys for member in self.boxes[key].members), key=self.order.__getitem__)
        self._join(sorted(keys, key=self.order.__getitem__), members, self.boxes[keys[0]].look, times)

    # *** what repeats

    def join_repeats(self) -> None:
        """Keeps the first copy of each repeated run of boxes, such as a layer, and joins the other copies.

        The longest repetition comes first. Passive boxes are joined with the copies that use them.
        """
        while True:
            run = [box for box in self.boxes.values() if box.look is not None and not box.look.passive]
            found = find_repeats([_describe_copy(box) for box in run])
            if found is None:
                return
            start, period, count = found
            copies = [box.key for box in run[start + period : start + period * count]]
            last = copies[-period:]
            layer = (*last, *self._find_used_only_by(last))
            keys = [*self._find_used_only_by(copies), *copies]
            joined = self._join(keys, keys, run[start].look, 1)
            joined.repeats = count - 1
            joined.layer = layer

    def _find_used_only_by(self, keys: Sequence[str]) -> list[str]:
        """The passive boxes that only these boxes touch, or that they both write and read."""
        users = set(keys)
        found: list[str] = []
        for key, box in self.boxes.items():
            if box.look is not None and box.look.passive:
                touching = self.heads[key].keys() | self.tails[key]
                both = self.heads[key].keys() & users and self.tails[key].keys() & users
                if both or (touching and touching <= users):
                    found.append(key)
        return found

    # *** what is alike, beside each other

    def gather(self, most: int) -> None:
        """Joins boxes until at most `most` are left, or no two can be joined without a circle."""
        self._join_alike()
        self._join_chains(most)
        self._join_neighbours(most)
        self._join_lonely()

    def _join_alike(self) -> None:
        """Joins boxes that are alike and do not depend on each other, then the steps of equal chains."""
        if len(self.boxes) > 4 * _MOST_COMPARED:
            return
        joined = True
        while joined:
            joined = False
            for alike in self._find_alike():
                # an earlier join may have made one depend on another
                if self._are_apart(alike, self._find_below()):
                    self._join_sorted(alike, sum(self.boxes[key].times for key in alike))
                    joined = True
            while (pair := self._find_equal_steps()) is not None:
                self._join_sorted(pair, self.boxes[pair[0]].times)
                joined = True

    def _find_alike(self) -> list[list[str]]:
        """The boxes that are alike, in groups of boxes that do not depend on each other."""
        below = self._find_below()
        alike: dict[Hashable, list[list[str]]] = defaultdict(list)
        for key in sort_names(self.tails, self.heads):
            likeness = self._likeness(key)
            if likeness is None:
                continue
            groups = alike[likeness]
            group = next((group for group in groups if self._are_apart([*group, key], below)), None)
            if group is None:
                groups.append([key])
            else:
                group.append(key)
        return [group for groups in alike.values() for group in groups if len(group) >= _LEAST_ALIKE]

    def _likeness(self, key: str) -> Hashable:
        box = self.boxes[key]
        if box.look is None or box.times > 1 or len(box.things) > 1:
            return None
        likeness = box.look.likeness, box.look.side
        if box.look.passive:
            return likeness, frozenset(self.heads[key]), frozenset(self.tails[key])
        return likeness

    def _find_equal_steps(self) -> list[str] | None:
        """Two boxes with equally many alike things, if one box reads the other."""
        below: dict[str, int] | None = None
        for tail, box in self.boxes.items():
            if box.times == 1:
                continue
            for head in self.heads[tail]:
                if self._may_join([tail, head], len(self.order)):
                    below = below or self._find_below()
                    if self._is_only_way(tail, head, below):
                        return [tail, head]
        return None

    # *** what follows each other

    def _join_chains(self, most: int) -> None:
        """Joins a box with its only reader or only source: small boxes first, boxes of one place first."""
        largest = len(self.order)
        for anywhere in (False, True):
            limit = 2
            while limit < 2 * largest and len(self.boxes) > most:
                self._join_short_chains(most, limit, anywhere)
                limit *= 2

    def _join_short_chains(self, most: int, limit: int, anywhere: bool) -> None:
        for key in sort_names(self.tails, self.heads):
            if len(self.boxes) <= most:
                return
            if key not in self.boxes:
                continue
            for pair in self._list_only_neighbours(key):
                if self._may_join(pair, limit, anywhere):
                    self._join_sorted(pair)
                    break

    def _list_only_neighbours(self, key: str) -> Iterator[list[str]]:
        if len(self.heads[key]) == 1:
            yield [key, next(iter(self.heads[key]))]
        if len(self.tails[key]) == 1:
            yield [next(iter(self.tails[key])), key]

    def _may_join(self, pair: Sequence[str], limit: int, anywhere: bool = True) -> bool:
        first, second = (self.boxes[key] for key in pair)
        if first.look is None or second.look is None or first.look.side != second.look.side:
            return False
        if first.times != second.times:
            return False
        if len(first.things) + len(second.things) > limit:
            return False
        return anywhere or first.look.place == second.look.place

    def _join_neighbours(self, most: int) -> None:
        """Joins a box with any reader, the smallest first, while that makes no circle."""
        if len(self.boxes) > _MOST_COMPARED:
            return
        while len(self.boxes) > most:
            below = self._find_below()
            pairs = [(tail, head) for tail in self.boxes for head in self.heads[tail]]
            pairs.sort(key=lambda pair: sum(len(self.boxes[key].things) for key in pair))
            limit = len(self.order)
            found = next((p for p in pairs if self._may_join(p, limit) and self._is_only_way(*p, below)), None)
            if found is None:
                return
            self._join_sorted(found)

    def _join_lonely(self) -> None:
        """Joins boxes without any edge: they would be one very wide row."""
        lonely: dict[Hashable, list[str]] = defaultdict(list)
        for key, box in self.boxes.items():
            if box.look is not None and not self.heads[key] and not self.tails[key]:
                lonely[box.look.side].append(key)
        for keys in lonely.values():
            if len(keys) >= _LEAST_ALIKE:
                self._join_sorted(keys)

    # *** ways through the graph

    def _find_below(self) -> dict[str, int]:
        """For each box the boxes that depend on it, as bits."""
        below = dict.fromkeys(self.boxes, 0)
        keys = sort_names(self.tails, self.heads)[::-1]
        changed = True
        # two rounds, more only for a graph with a circle
        while changed:
            changed = False
            for key in keys:
                found = below[key]
                for head in self.heads[key]:
                    found |= below[head] | 1 << self.order[head]
                if found != below[key]:
                    below[key], changed = found, True
        return below

    def _is_only_way(self, tail: str, head: str, below: Mapping[str, int]) -> bool:
        """Whether the edge is the only way from `tail` to `head`."""
        bit = 1 << self.order[head]
        return not any(below[other] & bit for other in self.heads[tail] if other != head)

    def _are_apart(self, keys: Sequence[str], below: Mapping[str, int]) -> bool:
        """Whether no box of these depends on another."""
        bits = sum(1 << self.order[key] for key in keys)
        return not any(below[key] & bits for key in keys)


def _describe_copy(box: Box[Thing]) -> Hashable:
    """What a box has in common with the same box of another layer. Joined layers are like nothing else."""
    if box.repeats or box.look is None:
        return box.key
    return box.look.likeness


def find_repeats(sequence: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """Returns (start, period, count) of the repetition that saves most entries, None without three copies."""
    numbers: dict[Hashable, int] = {}
    codes = [numbers.setdefault(entry, len(numbers)) for entry in sequence[:_MOST_TO_SEARCH]]
    best: tuple[int, int, int] | None = None
    saved = 0
    for period in range(2, len(codes) // _LEAST_ALIKE + 1):
        for start, count in _find_runs(codes, period):
            if count >= _LEAST_ALIKE and (count - 2) * period > saved:
                best, saved = (start, period, count), (count - 2) * period
    return best


def _find_runs(codes: Sequence[int], period: int) -> Iterator[tuple[int, int]]:
    start = 0
    for i in range(period, len(codes) + 1):
        if i == len(codes) or codes[i] != codes[i - period]:
            yield start, (i - start) // period
            start = i - period + 1


# *** boxes of a drawing


@dataclass(frozen=True)
class Folded:
    """A graph with boxes of several nodes. `inside` has for each such box the ids of the nodes to draw if it is opened;
    `count` says how many nodes are gone."""

    graph: Graph
    inside: dict[str, tuple[str, ...]]
    count: int


def fold_graph(
    graph: Graph, look: LookOf[GraphNode], label: Callable[[Box[GraphNode]], GraphNode], most: int | None = None
) -> Folded:
    """Returns the graph with at most `most` boxes if possible, or without `most` with each repeated layer drawn once.

    `label` returns the node to draw for a box with several nodes. Its id is the key of the box.
    """
    nodes = {node.id: node for node in graph.nodes}
    boxes = Boxes(nodes, ((edge.tail, edge.head) for edge in graph.edges), look)
    if most is None:
        boxes.join_repeats()
    else:
        boxes.gather(most)
    joined = {key: box for key, box in boxes.boxes.items() if len(box.things) > 1}
    box_of = {node.id: box.key for box in boxes.boxes.values() for node in box.things}
    shown = [label(joined[key]) if key in joined else node for key, node in nodes.items() if key in boxes.boxes]
    moved = replace(graph, nodes=tuple(shown), edges=_move_edges(graph.edges, box_of))
    inside = {key: box.layer or tuple(box.members) for key, box in joined.items()}
    return Folded(moved, inside, len(nodes) - len(shown))


def _move_edges(edges: Iterable[GraphEdge], box_of: Mapping[str, str]) -> tuple[GraphEdge, ...]:
    """The edges between boxes. Several edges between the same boxes become one without a label."""
    moved: dict[tuple[str, str, str, str], GraphEdge] = {}
    for edge in edges:
        tail, head = box_of[edge.tail], box_of[edge.head]
        key = tail, head, edge.kind, edge.mark
        if tail == head:
            continue
        if key in moved:
            moved[key] = replace(moved[key], label="", tooltip="")
        else:
            moved[key] = replace(edge, tail=tail, head=head)
    return tuple(moved.values())


def name_shortly(node: GraphNode) -> str:
    """Returns how another box names a node: `#12` for a kernel, else its number."""
    first = node.lines[0].removeprefix(SIGNS[node.mark]).split()[0].rstrip(",")
    if first[0] == "#" or first[0].isdigit():
        return first
    return re.sub(r"\D", "", node.id)


def find_far_edges(graph: Graph, rows: int) -> set[GraphEdge]:
    """Returns the edges that pass at least `rows` rows."""
    ranks = measure_ranks(graph)
    return {edge for edge in graph.edges if ranks[edge.head] - ranks[edge.tail] >= rows}


def name_far_sources(graph: Graph) -> Graph:
    """Replaces edges over many rows by a line in the box that reads: `also reads #3, #5`.

    The edges from the forward part of a training step to its gradients would make a drawing three times as wide.
    """
    far = {edge for edge in find_far_edges(graph, _FAR_ROWS) if edge.mark == COMMON}
    known = {node.id: node for node in graph.nodes}
    names: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        if edge in far:
            names[edge.head].append(name_shortly(known[edge.tail]))
    nodes = tuple(_add_sources(node, names[node.id]) if node.id in names else node for node in graph.nodes)
    return replace(graph, nodes=nodes, edges=tuple(edge for edge in graph.edges if edge not in far))


def _add_sources(node: GraphNode, names: Sequence[str]) -> GraphNode:
    line = f"also reads {', '.join(names[:_MOST_NAMED])}"
    if len(names) > _MOST_NAMED:
        line += f" and {len(names) - _MOST_NAMED} more"
    return replace(node, lines=(*node.lines, line), tooltip=f"{node.tooltip}\nalso reads {', '.join(names)}")
