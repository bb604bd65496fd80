"""Pairs the nodes of two edits of a program whose sources are not the same.

An edit changes what every node after it computes, so the values pair none of these. Such nodes are paired by position:
their readers or sources are already paired. So pairs spread from the inputs up and from the outputs down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from vmapdbg.diff.pairing import HashConsing, match_by_levels, match_in_order
from vmapdbg.model.capture import Node, Schedule
from vmapdbg.model.schedule_index import index_of

Pair = tuple[int, int]


def match_edits(
    before: Schedule, after: Schedule, known: Mapping[int, int], same_lines: Mapping[str, str]
) -> dict[int, int]:
    """Maps nodes of `before` that are not in `known` to the nodes of `after` in the same position.

    Paired nodes have the same op, dtype, shape and argument. `same_lines` maps lines of before to lines of after; of
    several candidates the node on the same line is taken.
    """
    return _EditMatcher(before, after, known, same_lines).match()


class _EditMatcher:
    def __init__(
        self, before: Schedule, after: Schedule, known: Mapping[int, int], same_lines: Mapping[str, str]
    ) -> None:
        self.sides = index_of(before), index_of(after)
        self.same_lines = same_lines
        self.known = known
        self.pairs = dict(known)
        self.partners = {twin: node for node, twin in known.items()}
        cons = HashConsing()
        self.kinds = [
            {n.id: cons(n.op, n.dtype, n.shape, n.arg, len(n.src)) for n in side.schedule.nodes} for side in self.sides
        ]

    def match(self) -> dict[int, int]:
        """Returns the new pairs."""
        before, after = self._list_free()
        if not before or not after:
            return {}
        # nodes without readers: the outputs of both sides
        before = [node for node in before if not self.sides[0].readers[node.id]]
        after = [node for node in after if not self.sides[1].readers[node.id]]
        self._add(match_by_levels(self._list_keys(0, before), self._list_keys(1, after)))
        self._spread(list(self.pairs.items()))
        before, after = ([node for node in free if node.line is not None] for free in self._list_free())
        self._add(match_by_levels(self._list_keys(0, before)[:1], self._list_keys(1, after)[:1]))
        self._spread(self._list_new())
        return dict(self._list_new())

    def _list_free(self) -> tuple[list[Node], list[Node]]:
        before = [node for node in self.sides[0].schedule.nodes if node.id not in self.pairs]
        after = [node for node in self.sides[1].schedule.nodes if node.id not in self.partners]
        return before, after

    def _list_new(self) -> list[Pair]:
        return [pair for pair in self.pairs.items() if pair[0] not in self.known]

    def _list_keys(self, side: int, nodes: Sequence[Node]) -> list[dict[int, Hashable]]:
        """Returns two levels of keys: the kind of a node with its line, and its kind alone."""
        kinds = self.kinds[side]
        with_line: dict[int, Hashable] = {node.id: (kinds[node.id], self._line(side, node)) for node in nodes}
        return [with_line, {node.id: kinds[node.id] for node in nodes}]

    def _line(self, side: int, node: Node) -> str | None:
        """Returns the line of a node by its name after."""
        if side == 1 or node.line is None:
            return node.line
        return self.same_lines.get(node.line, node.line)

    def _add(self, pairs: Mapping[int, int]) -> None:
        self.pairs |= pairs
        self.partners |= {twin: node for node, twin in pairs.items()}

    # *** step by step

    def _spread(self, fresh: list[Pair]) -> None:
        """Pairs the free sources and readers of pairs, then theirs, until nothing is new. The candidate with the most
        votes is taken, then the candidate on the same line, then the candidate with the nearest id."""
        while fresh:
            votes: Counter[Pair] = Counter()
            for pair in fresh:
                votes.update(self._list_candidates(*pair))
            ranked = sorted(votes, key=lambda pair: (-votes[pair], not self._is_same_line(pair), *_distance(pair)))
            chosen = match_in_order(ranked)
            self._add(chosen)
            fresh = list(chosen.items())

    def _is_same_line(self, pair: Pair) -> bool:
        one, other = self.sides[0].nodes[pair[0]], self.sides[1].nodes[pair[1]]
        return other.line is not None and self._line(0, one) == other.line

    def _list_candidates(self, one: int, other: int) -> Iterator[Pair]:
        left, right = self.sides[0].nodes[one], self.sides[1].nodes[other]
        for pair in zip(left.src, right.src, strict=False):
            if self._may_pair(*pair):
                yield pair
        # a constant may have a thousand readers: only readers without another of their kind are candidates
        readers = self._lone_readers(0, one), self._lone_readers(1, other)
        for kind in readers[0].keys() & readers[1].keys():
            yield readers[0][kind], readers[1][kind]

    def _may_pair(self, one: int, other: int) -> bool:
        if one in self.pairs or other in self.partners:
            return False
        kind = self.kinds[0].get(one)
        return kind is not None and kind == self.kinds[1].get(other)

    def _lone_readers(self, side: int, node_id: int) -> dict[tuple[int, int], int]:
        """Maps (kind, position of the source) to the free reader that has it, if there is exactly one."""
        known = (self.pairs, self.partners)[side]
        found: dict[tuple[int, int], list[int]] = {}
        for reader in self.sides[side].readers[node_id]:
            if reader.id not in known:
                kind = self.kinds[side][reader.id], reader.src.index(node_id)
                found.setdefault(kind, []).append(reader.id)
        return {kind: readers[0] for kind, readers in found.items() if len(readers) == 1}


def _distance(pair: Pair) -> tuple[int, int, int]:
    # symmetric in the sides: pairs that tie have no node in common
    return abs(pair[0] - pair[1]), sum(pair), pair[0]
