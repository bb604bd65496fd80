"""What is drawn of a schedule at first, and what is inside of its boxes: each a drawing of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from vmapdbg.page.graph.items import DrawnSchedule
from vmapdbg.page.graph.kernels import MOST_BOXES, fold_layers, gather_kernels
from vmapdbg.page.graph.model import BUFFERS, Graph, GraphEdge, GraphNode, keep_nodes, list_components

_MOST_DRAWN = 160
"""A drawing of more boxes is no help, however they were folded: buffers are left out, and in the end it is cut."""
_MOST_INSIDE = 400
"""So many boxes are drawn inside of others; what is inside of the rest is not."""
_OPENED = frozenset({"folded", "repeat"})


@dataclass(frozen=True)
class Part:
    """A graph to draw: of a whole schedule, or of what is inside a box. `note` says what is folded or left out, `opens`
    has for a box the number of the part inside, among all of them, and `hidden` the kernels that it stands for."""

    title: str
    graph: Graph
    note: str
    opens: dict[str, int]
    hidden: dict[str, list[str]]


def plan_parts(graph: Graph, drawn: DrawnSchedule, group_of: Mapping[str, int]) -> list[Part]:
    """Returns the drawings of the kernels of a schedule, the whole first; `group_of` has the program of each kernel."""
    return _Planner(drawn, group_of).plan(graph)


class _Planner:
    """Folds a graph, then what is inside of its boxes."""

    def __init__(self, drawn: DrawnSchedule, group_of: Mapping[str, int]) -> None:
        self.drawn, self.group_of = drawn, group_of
        # what is inside of a box, by its id and kind: a box has the id of one of its nodes
        self.inside: dict[tuple[str, str], Graph] = {}

    def plan(self, graph: Graph) -> list[Part]:
        parts = [self._fold("all", graph)]
        left = _MOST_INSIDE
        for number, part in enumerate(parts):
            opens: dict[str, int] = {}
            for node in part.graph.nodes:
                inner = self.inside.get((node.id, node.kind))
                if node.kind not in _OPENED or inner is None or len(inner.nodes) > left:
                    continue
                left -= len(inner.nodes)
                opens[node.id] = len(parts)
                some, left_out = _take_some(inner)
                parts.append(self._fold(node.lines[0], some, left_out))
            parts[number] = replace(part, opens=opens)
        return parts

    def _fold(self, title: str, graph: Graph, left_out: str = "") -> Part:
        """Folds a graph to what one can look at, and says what is left out of it."""
        notes = [left_out] if left_out else []
        runs = fold_layers(graph)
        self.inside |= {(name, "repeat"): keep_nodes(graph, set(names)) for name, names in runs.inside.items()}
        folded = runs.graph
        if folded.folded:
            notes.append("repeated layers are one box")
        if len(folded.nodes) > MOST_BOXES:
            gathered = gather_kernels(folded, self.drawn)
            for name, names in gathered.inside.items():
                self.inside[name, "folded"] = keep_nodes(folded, set(names))
            folded = gathered.graph
            notes.append("what is alike, or follows each other, is one box: click opens it")
        shown, note = _limit(folded, self.group_of, notes)
        drawn = {node.id for node in shown.nodes if node.kind == "kernel"}
        hidden = {node.id: self._find_hidden(node, drawn) for node in shown.nodes if node.kind in _OPENED}
        return Part(title, shown, note, {}, hidden)

    def _find_hidden(self, box: GraphNode, drawn: Collection[str]) -> list[str]:
        """The kernels that a box stands for: those that have no box of their own."""
        if box.kind == "repeat":
            members = set(box.members)
            kernels = enumerate(self.drawn.schedule.kernels)
            found = [f"kernel{number}" for number, kernel in kernels if members.intersection(kernel.outputs)]
            return [name for name in found if name not in drawn]
        hidden: list[str] = []
        for node in self.inside[box.id, box.kind].nodes:
            if node.kind == "kernel":
                hidden.append(node.id)
            elif node.kind in _OPENED:
                hidden += self._find_hidden(node, drawn)
        return hidden


def _take_some(graph: Graph) -> tuple[Graph, str]:
    """Returns what one can look at of parts that are alike and do not hang together, and says how many they are."""
    alike = list_components(graph)
    if len(graph.nodes) <= MOST_BOXES or len(alike) == 1:
        return graph, ""
    shown: set[str] = set()
    for count, names in enumerate(alike):
        if shown and len(shown) + len(names) > MOST_BOXES:
            return keep_nodes(graph, shown), f"the first {count} of {len(alike)} that are alike"
        shown |= names
    return graph, ""


def _limit(graph: Graph, group_of: Mapping[str, int], notes: list[str]) -> tuple[Graph, str]:
    if len(graph.nodes) > _MOST_DRAWN:
        graph = _drop_buffers(graph)
        notes = ["buffers are left out", *notes]
    if len(graph.nodes) > _MOST_DRAWN:
        graph = _join_programs(graph, group_of)
        notes = ["each program is one box, however often it runs; buffers are left out"]
    if len(graph.nodes) > _MOST_DRAWN:
        heaviest = sorted(graph.nodes, key=lambda node: -node.weight)[:_MOST_DRAWN]
        notes.append(f"only the {_MOST_DRAWN} of {len(graph.nodes)} with the most work are drawn")
        graph = keep_nodes(graph, {node.id for node in heaviest})
    return graph, "; ".join(notes)


def _drop_buffers(graph: Graph) -> Graph:
    """Joins what writes a buffer with what reads it."""
    buffers = {node.id for node in graph.nodes if node.kind in BUFFERS}
    writers: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        if edge.head in buffers:
            writers[edge.head].append(edge.tail)
    edges: dict[tuple[str, str], None] = {}
    for edge in graph.edges:
        tails = writers[edge.tail] if edge.tail in buffers else [edge.tail]
        if edge.head not in buffers:
            edges.update(dict.fromkeys((tail, edge.head) for tail in tails if tail != edge.head))
    nodes = tuple(node for node in graph.nodes if node.id not in buffers)
    return replace(graph, nodes=nodes, edges=tuple(GraphEdge(tail, head) for tail, head in edges))


def _join_programs(graph: Graph, group_of: Mapping[str, int]) -> Graph:
    """Draws kernels that are one program as the first of them."""
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    for node in graph.nodes:
        names[node.id] = node.id
        if node.id in group_of and node.kind == "kernel":
            names[node.id] = first.setdefault(group_of[node.id], node.id)
    moved = {(names[edge.tail], names[edge.head]): None for edge in graph.edges}
    edges = tuple(GraphEdge(tail, head) for tail, head in moved if tail != head)
    nodes = tuple(node for node in graph.nodes if names[node.id] == node.id)
    return replace(graph, nodes=nodes, edges=edges)
