"""Pairs the nodes of two graphs, and the schedules of two runs, by structure: ids and range numbers mean nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmapdbg.diff.pairing import Numbers, blank_ranges, find_opcodes, make_numbers, match_alike, match_levels, share
from vmapdbg.model.capture import Node, Schedule
from vmapdbg.model.vocabulary import PairedBy

_LEAST_ALIKE = 0.3  # with a lower share of common nodes, two schedules are not versions of one
_LEAST_OF_A_KIND = 0.5  # the same for nodes with equal op, dtype, shape and argument, whatever their sources
_WINDOW = 64  # changed schedules are compared within this distance: a run can make thousands


def match_nodes(before: Schedule, after: Schedule) -> dict[int, int]:
    """Maps node ids of `before` to ids of the same nodes in `after`: with equal op, dtype, shape, arg and sources. Of
    several candidates it takes the node with the same readers, then with the same decisions, then the next in order."""
    numbers = make_numbers()
    return match_levels(_number_graph(before, numbers), _number_graph(after, numbers))


def match_rest(
    before: Schedule, after: Schedule, known: Mapping[int, int], same_lines: Mapping[str, str], *, loosely: bool = False
) -> dict[int, int]:
    """Maps nodes of `before` that are not in `known` to nodes of the same kind in `after`, whatever their sources are.
    Nodes of a kind have the same op, dtype, shape and, except `loosely`, argument. Nodes with the same readers are
    paired first, then nodes of a line (`same_lines`: before to after), then the others in order."""
    if len(known) == min(len(before.nodes), len(after.nodes)):
        return {}
    numbers = make_numbers()
    levels: list[list[dict[int, int]]] = []
    no_names: Mapping[str, str] = {}
    for side, names, done in ((before, same_lines, known.keys()), (after, no_names, set(known.values()))):
        kinds = {node.id: numbers[node.op, node.dtype, node.shape, loosely or node.arg] for node in side.nodes}
        placed = ((node.id, names.get(node.line, node.line)) for node in side.nodes if node.line is not None)
        lines = {node: numbers[kinds[node], line] for node, line in placed}
        found = (_number_uses(side.nodes, kinds | lines, numbers), lines, kinds)
        levels.append([{node: number for node, number in level.items() if node not in done} for level in found])
    return match_levels(*levels)


def have_same_graph(before: Schedule, after: Schedule) -> bool:
    """Returns whether two schedules compute the same with the same ops."""
    numbers = make_numbers()
    one, other = (sorted(number_values(side.nodes, numbers).values()) for side in (before, after))
    return one == other


def number_values(nodes: Iterable[Node], numbers: Numbers) -> dict[int, int]:
    """Maps each node id to the number of what the node computes."""
    values: dict[int, int] = {}
    # a source has a smaller id than its readers, so its value is known by then
    for node in sorted(nodes, key=lambda node: node.id):
        sources = tuple(values.get(src, -1) for src in node.src)
        values[node.id] = numbers["value", node.op, node.dtype, node.shape, node.arg, sources]
    return values


def _number_graph(schedule: Schedule, numbers: Numbers) -> list[dict[int, int]]:
    """Returns the levels of a schedule's nodes, the most specific first."""
    values = number_values(schedule.nodes, numbers)
    uses = _number_uses(schedule.nodes, values, numbers)
    decided: dict[int, int] = {}
    for node in schedule.nodes:
        realized = node.realized and (node.realized.axes, node.realized.reason)
        # the ranges of the node without their numbers
        forms = [ranges and tuple(map(blank_ranges, ranges)) for ranges in (node.in_ranges, node.out_ranges)]
        decided[node.id] = numbers["decided", uses[node.id], realized, node.ambient, *forms]
    return [decided, uses, values]


def _number_uses(nodes: Iterable[Node], values: Mapping[int, int], numbers: Numbers) -> dict[int, int]:
    """Distinguishes nodes that compute the same by their readers."""
    readers: dict[int, list[tuple[int, int]]] = {}
    uses: dict[int, int] = {}
    # in reverse: the readers of a node come before it
    for node in sorted(nodes, key=lambda node: -node.id):
        read_by = tuple(sorted(readers.get(node.id, ())))
        uses[node.id] = numbers["use", values[node.id], read_by]
        for position, src in enumerate(node.src):
            readers.setdefault(src, []).append((uses[node.id], position))
    return uses


class SchedulePair(NamedTuple):
    """The positions of two schedules, None for a side without one, and what they have in common.

    `line`: the same line asked for both, in the same order. `order`: the lines may differ, but all schedules have the
    same graphs in the same order. Only these two are the same values. `graph`, `alike`: equal or similar graphs."""

    before: int | None
    after: int | None
    by: PairedBy


def match_schedules(
    before: Sequence[Schedule],
    after: Sequence[Schedule],
    same_lines: Mapping[str, str] | None = None,
    *,
    edited: bool = False,
) -> list[SchedulePair]:
    """Pairs the schedules of two runs: first by line and order, then by what they compute.

    `same_lines` maps lines of before to lines of after; with `edited` an equal line may be another statement. The
    schedules of a line are paired in order, between those with equal graphs; the rest by equal graphs, then by most
    common nodes, then by kinds of nodes. In the order of `after`; a schedule of `before` alone follows its predecessor.
    """
    numbers = make_numbers()
    counts: list[list[Counter[int]]] = []
    kinds: list[list[Counter[int]]] = []
    graphs: list[dict[int, int]] = []
    for side in (before, after):
        counts.append([Counter(number_values(item.nodes, numbers).values()) for item in side])
        kinds.append([Counter(numbers["kind", n.op, n.dtype, n.shape, n.arg] for n in item.nodes) for item in side])
        graphs.append({i: numbers[tuple(sorted(count.items()))] for i, count in enumerate(counts[-1])})
    found: dict[int, SchedulePair] = {}

    def add(pairs: Iterable[tuple[int, int]], by: PairedBy) -> None:
        found.update({i: SchedulePair(i, j, by) for i, j in pairs})

    def list_rest() -> tuple[list[int], list[int]]:
        taken = {pair.after for pair in found.values()}
        return [i for i in graphs[0] if i not in found], [j for j in graphs[1] if j not in taken]

    if not edited:
        groups = _group_by_line(after, {})
        for line, group in _group_by_line(before, same_lines or {}).items():
            add(_pair_in_order(group, groups.get(line, ()), *graphs), "line")
    elif list(graphs[0].values()) == list(graphs[1].values()):
        add(zip(graphs[0], graphs[1], strict=True), "order")
    rest = [{i: side[i] for i in left} for side, left in zip(graphs, list_rest(), strict=True)]
    add(match_levels(rest[:1], rest[1:]).items(), "graph")
    rest_before, rest_after = list_rest()

    def measure(i: int, j: int) -> float:
        # an edit near the inputs changes what nearly every node computes, but not the kinds of nodes
        for (lefts, rights), least, rank in ((counts, _LEAST_ALIKE, 4), (kinds, _LEAST_OF_A_KIND, 2)):
            left, right = lefts[i], rights[j]
            alike = share((left & right).total(), left.total() + right.total())
            if alike >= least:
                return rank + alike
        return 0.0

    alike = match_alike(rest_before, rest_after, measure, _WINDOW)
    add(((rest_before[i], rest_after[j]) for i, j in alike.items()), "alike")
    return list(_order_pairs(len(before), len(after), found))


def _group_by_line(schedules: Sequence[Schedule], names: Mapping[str, str]) -> dict[str | None, list[int]]:
    groups: dict[str | None, list[int]] = {}
    for position, item in enumerate(schedules):
        groups.setdefault(names.get(item.line or "", item.line), []).append(position)
    return groups


def _pair_in_order(
    left: Sequence[int], right: Sequence[int], graphs_left: Mapping[int, int], graphs_right: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Yields the schedules of one line that must be the same: all if none is missing, else those with equal graphs and
    as many between them. If one side has a graph more often, it is unknown which one is missing."""
    before, after = [graphs_left[i] for i in left], [graphs_right[j] for j in right]
    if before == after:
        yield from zip(left, right, strict=True)
        return
    missing = Counter(before)
    missing.subtract(after)
    for tag, i, end, j, end_after in find_opcodes(before, after):
        is_aligned = i == j and len(left) == len(right) and end - i == end_after - j
        for one, other in zip(left[i:end], right[j:end_after], strict=False):
            if is_aligned or (tag == "equal" and not missing[graphs_left[one]]):
                yield one, other


def _order_pairs(before: int, after: int, found: Mapping[int, SchedulePair]) -> Iterator[SchedulePair]:
    partners = {pair.after: i for i, pair in found.items()}
    waiting = [i for i in range(before) if i not in found]
    for j in range(after):
        i = partners.get(j)
        while i is not None and waiting and waiting[0] < i:
            yield SchedulePair(waiting.pop(0), None, "")
        yield SchedulePair(None, j, "") if i is None else found[i]
    yield from (SchedulePair(i, None, "") for i in waiting)
