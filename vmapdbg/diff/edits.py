"""Which nodes of two edits of a program are the same, where what they are computed from is not.

An edit changes what every node behind it computes, so that the values pair none of these. They are paired by where they
stand: what reads them and what they read is paired already. So pairs spread from those that are known, from the inputs
up and from the outputs down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from vmapdbg.diff.nodes import HashConsing
from vmapdbg.diff.ops import SAME_VALUE
from vmapdbg.diff.pairing import match_by_levels, match_in_order
from vmapdbg.model.capture import Node, Schedule
from vmapdbg.model.schedule_index import index_of

Pair = tuple[int, int]


def match_edits(
    before: Schedule, after: Schedule, known: Mapping[int, int], same_lines: Mapping[str, str]
) -> dict[int, int]:
    """Maps nodes of `before` that `known` has no partner for to those of `after` that stand in their place.

    Such nodes have one op, dtype, shape and argument. `same_lines` has for lines of before those of after; where
    several nodes come into question, the one of the same line is taken.
    """
    return _Matcher(before, after, known, same_lines).match()


class _Matcher:
    def __init__(
        self, before: Schedule, after: Schedule, known: Mapping[int, int], same_lines: Mapping[str, str]
    ) -> None:
        self.sides = index_of(before), index_of(after)
        self.same_lines = same_lines
        self.pairs = dict(known)
        self.twins = {twin: node for node, twin in known.items()}
        self.found: dict[int, int] = {}
        cons = HashConsing()
        self.kinds = [{node.id: _find_kind(node, cons) for node in side.schedule.nodes} for side in self.sides]
        self.cons = cons

    def match(self) -> dict[int, int]:
        """Returns the pairs that are found."""
        if not all(self._list_free()):
            return {}
        self._add(self._match_passed_on())
        # what both sides end in: those that nobody reads
        self._add(self._match_ends())
        self._spread(list(self.pairs.items()))
        self._add(self._match_by_line())
        self._spread(list(self.found.items()))
        return self.found

    def _add(self, pairs: Mapping[int, int]) -> None:
        self.pairs |= pairs
        self.found |= pairs
        self.twins |= {twin: node for node, twin in pairs.items()}

    def _list_free(self) -> tuple[list[Node], list[Node]]:
        before = [node for node in self.sides[0].schedule.nodes if node.id not in self.pairs]
        after = [node for node in self.sides[1].schedule.nodes if node.id not in self.twins]
        return before, after

    # *** at once

    def _match_passed_on(self) -> dict[int, int]:
        """Pairs what computes the same where CONTIGUOUS and its like, which only pass a value on, do not count."""
        levels = [self._number_passed_on(side.schedule.nodes) for side in self.sides]
        free_before, free_after = self._list_free()
        return match_by_levels(
            [{node.id: levels[0][node.id] for node in free_before}],
            [{node.id: levels[1][node.id] for node in free_after}],
        )

    def _number_passed_on(self, nodes: Iterable[Node]) -> dict[int, int]:
        values: dict[int, int] = {}
        numbers: dict[int, int] = {}
        for node in sorted(nodes, key=lambda node: node.id):
            sources = tuple(values.get(src, -1) for src in node.src)
            numbers[node.id] = self.cons("passed on", node.op, node.dtype, node.shape, node.arg, sources)
            is_passed = node.op in SAME_VALUE and len(sources) == 1
            values[node.id] = sources[0] if is_passed else numbers[node.id]
        return numbers

    def _match_ends(self) -> dict[int, int]:
        def number(side: int, nodes: Iterable[Node], name: Callable[[Node], Hashable]) -> dict[int, Hashable]:
            readers = self.sides[side].readers
            return {node.id: (self.kinds[side][node.id], name(node)) for node in nodes if not readers[node.id]}

        before, after = self._list_free()
        return match_by_levels(
            [number(0, before, self._line_before), number(0, before, _say_nothing)],
            [number(1, after, _line_after), number(1, after, _say_nothing)],
        )

    def _match_by_line(self) -> dict[int, int]:
        """Pairs what is left and of a kind with the nodes of its line."""
        before, after = self._list_free()
        return match_by_levels(
            [{node.id: (self.kinds[0][node.id], self._line_before(node)) for node in before if node.line is not None}],
            [{node.id: (self.kinds[1][node.id], node.line) for node in after if node.line is not None}],
        )

    def _line_before(self, node: Node) -> str | None:
        return node.line and self.same_lines.get(node.line, node.line)

    # *** step by step

    def _spread(self, fresh: list[Pair]) -> None:
        """Pairs the free sources and readers of pairs, those of these, and so on. Of several that come into question
        the one that most pairs are for is taken, then the one of the same line, then the one whose id is nearest."""
        while fresh:
            votes: Counter[Pair] = Counter()
            for pair in fresh:
                votes.update(self._list_candidates(*pair))
            ranked = sorted(votes, key=lambda pair: (-votes[pair], not self._is_line(pair), *_place(pair)))
            chosen = match_in_order(ranked)
            self._add(chosen)
            fresh = list(chosen.items())

    def _is_line(self, pair: Pair) -> bool:
        one, other = self.sides[0].nodes[pair[0]], self.sides[1].nodes[pair[1]]
        return other.line is not None and self._line_before(one) == other.line

    def _list_candidates(self, one: int, other: int) -> Iterator[Pair]:
        left, right = self.sides[0].nodes[one], self.sides[1].nodes[other]
        for pair in zip(left.src, right.src, strict=False):
            if self._may_pair(*pair):
                yield pair
        # a constant may have a thousand readers: only those that are alone of their kind come into question
        readers = self._find_lone_readers(0, one), self._find_lone_readers(1, other)
        for kind in readers[0].keys() & readers[1].keys():
            yield readers[0][kind], readers[1][kind]

    def _may_pair(self, one: int, other: int) -> bool:
        if one in self.pairs or other in self.twins:
            return False
        kind = self.kinds[0].get(one)
        return kind is not None and kind == self.kinds[1].get(other)

    def _find_lone_readers(self, side: int, node_id: int) -> dict[tuple[int, int], int]:
        """Returns the free readers of a node by their kind and at which place they read it, each that no other one
        shares."""
        known = (self.pairs, self.twins)[side]
        found: dict[tuple[int, int], int] = {}
        several: set[tuple[int, int]] = set()
        for reader in self.sides[side].readers[node_id]:
            if reader.id in known:
                continue
            kind = self.kinds[side][reader.id], reader.src.index(node_id)
            if kind in found:
                several.add(kind)
            found[kind] = reader.id
        return {kind: reader for kind, reader in found.items() if kind not in several}


def _find_kind(node: Node, cons: HashConsing) -> int:
    return cons("kind", node.op, node.dtype, node.shape, node.arg, len(node.src))


def _line_after(node: Node) -> str | None:
    return node.line


def _say_nothing(_: Node) -> None:
    return None


def _place(pair: Pair) -> tuple[int, int, int]:
    # the same whichever side is before: pairs that it does not tell apart have no node in common
    return abs(pair[0] - pair[1]), sum(pair), pair[0]
