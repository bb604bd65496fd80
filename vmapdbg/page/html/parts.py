"""What is drawn of a schedule at first, and what is inside its boxes: each is a drawing of its own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from vmapdbg.page.graph.items import DrawnSchedule
from vmapdbg.page.graph.kernels import MOST_BOXES, fold_layers, gather_kernels
from vmapdbg.page.graph.model import Graph, GraphNode, keep_nodes, list_components

_MOST_DRAWN = 160
"""Of a drawing with more boxes, however it is folded, only those with the most work are drawn."""
_MOST_INSIDE = 400
"""So many boxes are drawn inside other boxes. Boxes beyond that cannot be opened."""
_OPENED = frozenset({"folded", "repeat"})


@dataclass(frozen=True)
class DrawnPart:
    """A graph to draw: a whole schedule, or the inside of a box. `note` says what is folded or left out. `opens` has
    for a box the number of the part inside it, and `hidden` its kernels."""

    title: str
    graph: Graph
    note: str
    opens: dict[str, int]
    hidden: dict[str, list[str]]


def plan_parts(graph: Graph, drawn: DrawnSchedule) -> list[DrawnPart]:
    """Returns the drawings of the kernels of a schedule, the whole first."""
    return _Planner(drawn).plan(graph)


class _Planner:
    """Folds a graph, then the inside of its boxes."""

    def __init__(self, drawn: DrawnSchedule) -> None:
        self.drawn = drawn
        # the inside of a box, by its id and kind: a box has the id of one of its nodes
        self.contents: dict[tuple[str, str], Graph] = {}

    def plan(self, graph: Graph) -> list[DrawnPart]:
        parts = [self._fold("all", graph)]
        left = _MOST_INSIDE
        for number, part in enumerate(parts):
            opens: dict[str, int] = {}
            for node in part.graph.nodes:
                inner = self.contents.get((node.id, node.kind))
                if node.kind not in _OPENED or inner is None or len(inner.nodes) > left:
                    continue
                left -= len(inner.nodes)
                opens[node.id] = len(parts)
                some, left_out = _take_some(inner)
                parts.append(self._fold(node.lines[0], some, left_out))
            parts[number] = replace(part, opens=opens)
        return parts

    def _fold(self, title: str, graph: Graph, left_out: str = "") -> DrawnPart:
        """Folds a graph until a reader can look at it, and says what is left out."""
        notes = [left_out] if left_out else []
        layers = fold_layers(graph)
        self.contents |= {(name, "repeat"): keep_nodes(graph, names) for name, names in layers.contents.items()}
        folded = layers.graph
        if folded.folded:
            notes.append("repeated layers are one box")
        if len(folded.nodes) > MOST_BOXES:
            gathered = gather_kernels(folded, self.drawn)
            self.contents |= {(name, "folded"): keep_nodes(folded, names) for name, names in gathered.contents.items()}
            folded = gathered.graph
            notes.append("what is alike, or follows each other, is one box: click opens it")
        if len(folded.nodes) > _MOST_DRAWN:
            heaviest = sorted(folded.nodes, key=lambda node: -node.weight)[:_MOST_DRAWN]
            notes.append(f"only the {_MOST_DRAWN} of {len(folded.nodes)} boxes with the most work are drawn")
            folded = keep_nodes(folded, {node.id for node in heaviest})
        shown = {node.id for node in folded.nodes if node.kind == "kernel"}
        hidden = {node.id: self._list_hidden(node, shown) for node in folded.nodes if node.kind in _OPENED}
        return DrawnPart(title, folded, "; ".join(notes), {}, hidden)

    def _list_hidden(self, box: GraphNode, shown: Collection[str]) -> list[str]:
        """Returns the kernels of a box that are not drawn."""
        if box.kind == "repeat":
            members = set(box.members)
            kernels = enumerate(self.drawn.schedule.kernels)
            found = [f"kernel{number}" for number, kernel in kernels if members.intersection(kernel.outputs)]
            return [name for name in found if name not in shown]
        hidden: list[str] = []
        for node in self.contents[box.id, box.kind].nodes:
            if node.kind == "kernel":
                hidden.append(node.id)
            elif node.kind in _OPENED:
                hidden += self._list_hidden(node, shown)
        return hidden


def _take_some(graph: Graph) -> tuple[Graph, str]:
    """Returns enough of the unconnected parts of a graph, which are alike, and says how many there are."""
    alike = list_components(graph)
    if len(graph.nodes) <= MOST_BOXES or len(alike) == 1:
        return graph, ""
    shown: set[str] = set()
    for count, names in enumerate(alike):
        if shown and len(shown) + len(names) > MOST_BOXES:
            return keep_nodes(graph, shown), f"the first {count} of {len(alike)} that are alike"
        shown |= names
    return graph, ""
