"""Which node of the one graph is which of the other. Ids and range numbers say nothing: structure does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from vmapdbg.diff.naming import blank_ranges, collect_kinds, find_ranges
from vmapdbg.diff.pairing import match_by_levels
from vmapdbg.model.capture import Node, Schedule


class HashConsing:
    """Hash-consing: gives equal things the same number, whichever side they are of.

    What is made of things is made of their numbers, so that two graphs are compared without going down into them.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, *thing: Hashable) -> int:
        return self._numbers.setdefault(thing, len(self._numbers))


def match_nodes(before: Schedule, after: Schedule, *, loosely: bool = False) -> dict[int, int]:
    """Maps the id of each node of `before` to the id of the same node in `after`, where there is one.

    The same node: op, dtype, shape, arg and sources are the same, all the way down. Of several such the one with
    the same consumers, then the same decisions, then the order decides. `loosely` pairs what is left of two graphs that
    compute a part in two ways: ops alike that are read alike, then ops alike of the same line.
    """
    cons = HashConsing()
    levels: list[list[dict[int, int]]] = []
    for side in (before, after):
        levels.append(_number_graph(side, cons))
        if loosely:
            levels[-1] += _number_alike(side, cons)
    return match_by_levels(*levels)


def have_same_graph(before: Schedule, after: Schedule) -> bool:
    """Tells whether two schedules compute the same in the same ops."""
    cons = HashConsing()
    one, other = (sorted(number_values(side.nodes, cons).values()) for side in (before, after))
    return one == other


def number_values(nodes: Iterable[Node], cons: HashConsing) -> dict[int, int]:
    """Gives each node id the number of what the node computes."""
    values: dict[int, int] = {}
    # a source has a smaller id than what reads it, so its value is known by then
    for node in sorted(nodes, key=lambda node: node.id):
        sources = tuple(values.get(src, -1) for src in node.src)
        values[node.id] = cons("value", node.op, node.dtype, node.shape, node.arg, sources)
    return values


def _number_graph(schedule: Schedule, cons: HashConsing) -> list[dict[int, int]]:
    """Returns the levels of a schedule's nodes, the most particular first."""
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
    """Returns the levels of nodes that do alike, whatever they are computed from: with those that read them, then by
    their line."""
    alike = {node.id: cons("alike", node.op, node.dtype, node.shape) for node in schedule.nodes}
    lines = {node.id: cons("line", alike[node.id], node.line) for node in schedule.nodes if node.line is not None}
    return [_number_uses(schedule.nodes, lines | alike, cons), lines]


def _number_uses(nodes: Iterable[Node], values: Mapping[int, int], cons: HashConsing) -> dict[int, int]:
    """Tells apart nodes that compute the same by who reads them."""
    readers: dict[int, list[tuple[int, int]]] = {}
    uses: dict[int, int] = {}
    # the other way round: all that read a node come before it
    for node in sorted(nodes, key=lambda node: -node.id):
        read_by = tuple(sorted(readers.get(node.id, ())))
        uses[node.id] = cons("use", values[node.id], read_by)
        for position, src in enumerate(node.src):
            readers.setdefault(src, []).append((uses[node.id], position))
    return uses


def _number_ranges(schedule: Schedule, nodes: Mapping[int, int], cons: HashConsing) -> dict[str, int]:
    """Tells ranges apart by what they are and which nodes name them."""
    named: dict[str, list[tuple[int, int]]] = {item.name: [] for item in schedule.ranges}
    for node in schedule.nodes:
        # the empty one keeps the ranges that come in apart from those that go out
        for position, expression in enumerate((*(node.in_ranges or ()), "", *(node.out_ranges or ()))):
            for name in find_ranges(expression):
                named.setdefault(name, []).append((nodes[node.id], position))
    kinds = collect_kinds(schedule.ranges)
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
