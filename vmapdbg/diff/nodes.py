"""Pairs the nodes of two graphs, and the schedules of two runs, by structure: ids and range numbers mean nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from vmapdbg.diff.pairing import (
    HashConsing,
    blank_ranges,
    find_ranges,
    match_by_levels,
    match_in_order,
    match_most_alike,
    range_kinds,
    share,
)
from vmapdbg.model.capture import Node, Schedule
from vmapdbg.model.schedule_index import index_of

Pair = tuple[int, int]

# Below this share of common nodes, two schedules are not versions of the same one.
_LEAST_ALIKE = 0.3
# The same for the share of nodes with equal op, dtype, shape and argument, whatever their sources.
_LEAST_OF_A_KIND = 0.5
# Two schedules of two edits that are asked for at the same line count as this much more alike.
_SAME_LINE = 0.25
# Changed schedules are compared within this distance: a run can make thousands.
_WINDOW = 64


def match_nodes(before: Schedule, after: Schedule, *, loosely: bool = False) -> dict[int, int]:
    """Maps the node ids of `before` to the ids of the same nodes in `after`.

    Two nodes are the same if op, dtype, shape, arg and all their sources are. Of several candidates the node with the
    same readers is taken, then with the same decisions, then by order. `loosely` also pairs the rest of two graphs that
    compute a part in two ways: nodes of a kind that are read by equal nodes, then nodes of a kind on the same line.
    """
    cons = HashConsing()
    levels = [_number_graph(side, cons) for side in (before, after)]
    if loosely:
        for side, numbers in zip((before, after), levels, strict=True):
            # whatever the sources are: the kind of a node with its readers, then with its line
            alike = {node.id: cons("alike", node.op, node.dtype, node.shape) for node in side.nodes}
            lines = {node.id: cons("line", alike[node.id], node.line) for node in side.nodes if node.line is not None}
            numbers += [_number_uses(side.nodes, lines | alike, cons), lines]
    return match_by_levels(*levels)


def have_same_graph(before: Schedule, after: Schedule) -> bool:
    """Returns whether two schedules compute the same with the same ops."""
    cons = HashConsing()
    one, other = (sorted(number_values(side.nodes, cons).values()) for side in (before, after))
    return one == other


def number_values(nodes: Iterable[Node], cons: HashConsing) -> dict[int, int]:
    """Maps each node id to the number of what the node computes."""
    values: dict[int, int] = {}
    # a source has a smaller id than its readers, so its value is known by then
    for node in sorted(nodes, key=lambda node: node.id):
        sources = tuple(values.get(src, -1) for src in node.src)
        values[node.id] = cons("value", node.op, node.dtype, node.shape, node.arg, sources)
    return values


def _number_graph(schedule: Schedule, cons: HashConsing) -> list[dict[int, int]]:
    """Returns the levels of a schedule's nodes, the most specific first."""
    values = number_values(schedule.nodes, cons)
    uses = _number_uses(schedule.nodes, values, cons)
    decided: dict[int, int] = {}
    for node in schedule.nodes:
        realized = node.realized and (node.realized.axes, node.realized.reason)
        decided[node.id] = cons("decided", uses[node.id], realized, node.ambient, _expressions(node))
    ranges = _number_ranges(schedule, decided, cons)
    exact: dict[int, int] = {}
    for node in schedule.nodes:
        named = _expressions(node, lambda name: f"r{ranges.get(name, -1)}_")
        exact[node.id] = cons("exact", decided[node.id], named)
    return [exact, decided, uses, values]


def _number_uses(nodes: Iterable[Node], values: Mapping[int, int], cons: HashConsing) -> dict[int, int]:
    """Distinguishes nodes that compute the same by their readers."""
    readers: dict[int, list[tuple[int, int]]] = {}
    uses: dict[int, int] = {}
    # in reverse: the readers of a node come before it
    for node in sorted(nodes, key=lambda node: -node.id):
        read_by = tuple(sorted(readers.get(node.id, ())))
        uses[node.id] = cons("use", values[node.id], read_by)
        for position, src in enumerate(node.src):
            readers.setdefault(src, []).append((uses[node.id], position))
    return uses


def _number_ranges(schedule: Schedule, nodes: Mapping[int, int], cons: HashConsing) -> dict[str, int]:
    """Distinguishes ranges by their kind and by the nodes that name them."""
    named: dict[str, list[tuple[int, int]]] = {item.name: [] for item in schedule.ranges}
    for node in schedule.nodes:
        # the empty expression separates input ranges from output ranges
        for position, expression in enumerate((*(node.in_ranges or ()), "", *(node.out_ranges or ()))):
            for name in find_ranges(expression):
                named.setdefault(name, []).append((nodes[node.id], position))
    kinds = range_kinds(schedule.ranges)
    return {name: cons("range", kinds.get(name), tuple(sorted(uses))) for name, uses in named.items()}


def _expressions(node: Node, name_of: Callable[[str], str] | None = None) -> Hashable:
    def blank_all(expressions: Iterable[str] | None) -> Hashable:
        if expressions is None:
            return None
        return tuple(blank_ranges(text, name_of) for text in expressions)

    return blank_all(node.in_ranges), blank_all(node.out_ranges)


# *** two edits of a program


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
        self.known = known
        self.pairs, self.taken = dict(known), set(known.values())
        cons = HashConsing()
        self.kinds = [
            {n.id: cons(n.op, n.dtype, n.shape, n.arg, len(n.src)) for n in side.nodes} for side in (before, after)
        ]
        # the lines of nodes by their names after
        self.lines = [
            {node.id: same_lines.get(node.line or "", node.line) for node in before.nodes},
            {node.id: node.line for node in after.nodes},
        ]

    def match(self) -> dict[int, int]:
        """Returns the new pairs."""
        if len(self.known) == min(len(side.nodes) for side in self.sides):
            return {}
        # nodes without readers: the outputs of both sides
        self._match_free(lambda side, node_id: not self.sides[side].readers[node_id], 2)
        self._spread(list(self.pairs.items()))
        self._match_free(lambda side, node_id: self.lines[side][node_id] is not None, 1)
        self._spread(self._list_new())
        return dict(self._list_new())

    def _list_new(self) -> list[Pair]:
        return [pair for pair in self.pairs.items() if pair[0] not in self.known]

    def _match_free(self, is_chosen: Callable[[int, int], bool], levels: int) -> None:
        """Pairs the chosen free nodes (side, node id) by kind and line; with a second level by kind alone."""
        keys: list[list[dict[int, Hashable]]] = []
        for side, done in enumerate((self.pairs, self.taken)):
            kinds: dict[int, Hashable] = {}
            for node_id, kind in self.kinds[side].items():
                if node_id not in done and is_chosen(side, node_id):
                    kinds[node_id] = kind
            with_line: dict[int, Hashable] = {i: (kind, self.lines[side][i]) for i, kind in kinds.items()}
            keys.append([with_line, kinds][:levels])
        self._add(match_by_levels(*keys))

    def _add(self, pairs: Mapping[int, int]) -> None:
        self.pairs |= pairs
        self.taken |= set(pairs.values())

    # *** step by step

    def _spread(self, fresh: list[Pair]) -> None:
        """Pairs the free sources and readers of pairs, then theirs, until nothing is new."""
        while fresh:
            votes: Counter[Pair] = Counter()
            for pair in fresh:
                votes.update(self._list_candidates(*pair))
            chosen = match_in_order(sorted(votes, key=lambda pair: (-votes[pair], *self._rank(*pair))))
            self._add(chosen)
            fresh = list(chosen.items())

    def _rank(self, one: int, other: int) -> tuple[object, ...]:
        """Sorts candidates with the same votes: nodes on the same line first, then nodes with near ids."""
        line = self.lines[1][other]
        is_same_line = line is not None and self.lines[0][one] == line
        # symmetric in the sides: pairs that tie have no node in common
        return not is_same_line, abs(one - other), one + other, one

    def _list_candidates(self, one: int, other: int) -> Iterator[Pair]:
        for left, right in zip(self.sides[0].nodes[one].src, self.sides[1].nodes[other].src, strict=False):
            is_free = left not in self.pairs and right not in self.taken
            if is_free and left in self.kinds[0] and self.kinds[0][left] == self.kinds[1].get(right):
                yield left, right
        # a constant may have a thousand readers: only readers without another of their kind are candidates
        readers = self._lone_readers(0, one), self._lone_readers(1, other)
        for kind in readers[0].keys() & readers[1].keys():
            yield readers[0][kind], readers[1][kind]

    def _lone_readers(self, side: int, node_id: int) -> dict[tuple[int, int], int]:
        """Maps (kind, position of the source) to the free reader that has it, if there is exactly one."""
        done = (self.pairs, self.taken)[side]
        found: dict[tuple[int, int], list[int]] = {}
        for reader in self.sides[side].readers[node_id]:
            if reader.id not in done:
                kind = self.kinds[side][reader.id], reader.src.index(node_id)
                found.setdefault(kind, []).append(reader.id)
        return {kind: readers[0] for kind, readers in found.items() if len(readers) == 1}


# *** schedules


def match_schedules(
    before: Sequence[Schedule], after: Sequence[Schedule], same_lines: Mapping[str, str] | None = None
) -> list[tuple[int | None, int | None]]:
    """Pairs the positions of schedules in `before` and `after` by what they compute. None: no partner.

    Equal graphs are paired first, then schedules with the most nodes in common, then with the most nodes of a kind,
    then by order. `same_lines` maps lines of before to lines of after.

    The result is in the order of `after`. A schedule of `before` alone follows its predecessor in `before`.
    """
    cons = HashConsing()
    counts: list[list[Counter[int]]] = []
    kinds: list[list[Counter[int]]] = []
    graphs: list[dict[int, int]] = []
    for side in (before, after):
        counts.append([Counter(number_values(item.nodes, cons).values()) for item in side])
        kinds.append([Counter(cons("kind", n.op, n.dtype, n.shape, n.arg) for n in item.nodes) for item in side])
        graphs.append({i: cons(*sorted(count.items())) for i, count in enumerate(counts[-1])})
    matched = match_by_levels([graphs[0]], [graphs[1]])
    lines = same_lines or {}

    def is_same_line(i: int, j: int) -> bool:
        line = before[i].line
        # in one program the lines add nothing to the graphs
        return bool(lines) and line is not None and lines.get(line, line) == after[j].line

    matched |= _match_alike(counts, matched, _LEAST_ALIKE, is_same_line)
    # an edit near the inputs changes what nearly every node computes
    matched |= _match_alike(kinds, matched, _LEAST_OF_A_KIND, is_same_line)
    matched |= _match_empty(before, after, matched, lines)
    return _order_pairs(len(before), len(after), matched)


def _match_alike(
    counts: Sequence[Sequence[Counter[int]]],
    matched: Mapping[int, int],
    least: float,
    is_same_line: Callable[[int, int], bool],
) -> dict[int, int]:
    taken = set(matched.values())
    rest_before = [i for i in range(len(counts[0])) if i not in matched]
    rest_after = [i for i in range(len(counts[1])) if i not in taken]

    def measure(i: int, j: int) -> float:
        left, right = counts[0][i], counts[1][j]
        alike = share((left & right).total(), left.total() + right.total())
        return 0.0 if alike < least else alike + _SAME_LINE * is_same_line(i, j)

    found = match_most_alike(rest_before, rest_after, measure, _WINDOW)
    return {rest_before[i]: rest_after[j] for i, j in found.items()}


def _match_empty(
    before: Sequence[Schedule], after: Sequence[Schedule], matched: dict[int, int], same_lines: Mapping[str, str]
) -> dict[int, int]:
    """Pairs schedules that tinygrad refused before the pass saw them: they have no nodes, only a line."""
    taken = set(matched.values())
    rest_before = [(i, item) for i, item in enumerate(before) if i not in matched and item.line is not None]
    rest_after = [(j, item) for j, item in enumerate(after) if j not in taken]
    return match_in_order(
        (i, j)
        for i, one in rest_before
        for j, other in rest_after
        if same_lines.get(one.line or "", one.line) == other.line and not (one.nodes and other.nodes)
    )


def _order_pairs(before: int, after: int, matched: dict[int, int]) -> list[tuple[int | None, int | None]]:
    partner = {j: i for i, j in matched.items()}
    pairs: list[tuple[int | None, int | None]] = []
    waiting = [i for i in range(before) if i not in matched]
    for j in range(after):
        i = partner.get(j)
        while i is not None and waiting and waiting[0] < i:
            pairs.append((waiting.pop(0), None))
        pairs.append((i, j))
    return [*pairs, *((i, None) for i in waiting)]
