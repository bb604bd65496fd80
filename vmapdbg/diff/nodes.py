"""Pairs the nodes of two graphs, and the schedules of two runs, by structure: ids and range numbers mean nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from vmapdbg.diff.pairing import (
    HashConsing,
    blank_ranges,
    find_ranges,
    match_by_levels,
    match_in_order,
    range_kinds,
    share,
)
from vmapdbg.model.capture import Node, Schedule

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
    levels: list[list[dict[int, int]]] = []
    for side in (before, after):
        levels.append(_number_graph(side, cons))
        if loosely:
            levels[-1] += _number_alike(side, cons)
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
    decided = {node.id: cons("decided", uses[node.id], _decision(node)) for node in schedule.nodes}
    ranges = _number_ranges(schedule, decided, cons)
    exact = {
        node.id: cons("exact", decided[node.id], _expressions(node, lambda name: f"r{ranges.get(name, -1)}_"))
        for node in schedule.nodes
    }
    return [exact, decided, uses, values]


def _number_alike(schedule: Schedule, cons: HashConsing) -> list[dict[int, int]]:
    """Returns two more levels, whatever the sources are: the kind of a node with its readers, then with its line."""
    alike = {node.id: cons("alike", node.op, node.dtype, node.shape) for node in schedule.nodes}
    lines = {node.id: cons("line", alike[node.id], node.line) for node in schedule.nodes if node.line is not None}
    return [_number_uses(schedule.nodes, lines | alike, cons), lines]


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


def _decision(node: Node) -> Hashable:
    realized = node.realized and (node.realized.axes, node.realized.reason)
    return realized, node.ambient, _expressions(node)


def _expressions(node: Node, name_of: Callable[[str], str] | None = None) -> Hashable:
    def blank_all(expressions: Iterable[str] | None) -> Hashable:
        if expressions is None:
            return None
        return tuple(blank_ranges(text, name_of) for text in expressions)

    return blank_all(node.in_ranges), blank_all(node.out_ranges)


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
    counts = [[Counter(number_values(item.nodes, cons).values()) for item in side] for side in (before, after)]
    graphs = [{i: cons(*sorted(count.items())) for i, count in enumerate(side)} for side in counts]
    matched = match_by_levels([graphs[0]], [graphs[1]])
    lines = same_lines or {}

    def is_same_line(i: int, j: int) -> bool:
        # in one program the lines add nothing to the graphs
        line = before[i].line
        return bool(lines) and line is not None and lines.get(line, line) == after[j].line

    matched |= _match_alike(counts, matched, _LEAST_ALIKE, is_same_line)
    # an edit near the inputs changes what nearly every node computes
    kinds = [
        [Counter(cons("kind", node.op, node.dtype, node.shape, node.arg) for node in item.nodes) for item in side]
        for side in (before, after)
    ]
    matched |= _match_alike(kinds, matched, _LEAST_OF_A_KIND, is_same_line)
    matched |= _match_empty(before, after, matched, lines)
    return _order_pairs(len(before), len(after), matched)


def _match_alike(
    counts: Sequence[Sequence[Counter[int]]],
    matched: dict[int, int],
    least: float,
    is_same_line: Callable[[int, int], bool],
) -> dict[int, int]:
    before, after = counts
    taken = set(matched.values())
    rest_before = [i for i in range(len(before)) if i not in matched]
    rest_after = [i for i in range(len(after)) if i not in taken]
    scored: list[tuple[float, int, int, int]] = []
    for row, i in enumerate(rest_before):
        first = max(row - _WINDOW, 0)
        for column, j in enumerate(rest_after[first : row + _WINDOW], first):
            alike = share((before[i] & after[j]).total(), before[i].total() + after[j].total())
            if alike >= least:
                scored.append((-alike - _SAME_LINE * is_same_line(i, j), abs(row - column), i, j))
    return match_in_order((i, j) for _, _, i, j in sorted(scored))


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
