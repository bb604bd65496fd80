"""Boxes of kernels and buffers, where a schedule has more of them than one can look at."""

from __future__ import annotations

from dataclasses import replace

from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_ids, format_share
from vmapdbg.page.graph.far import name_far, name_shortly
from vmapdbg.page.graph.gather import Box, Gathered, Look, gather_nodes
from vmapdbg.page.graph.items import DrawnSchedule, count_work
from vmapdbg.page.graph.labels import shorten
from vmapdbg.page.graph.model import BUFFERS, Graph, GraphNode

MOST_BOXES = 60
"""A drawing of more is gathered, to `_GATHERED` where that can be had."""
_GATHERED = 45


def gather_kernels(graph: Graph, drawn: DrawnSchedule) -> Gathered:
    """Returns the graph with fewer boxes: kernels of one kind beside each other, then those that follow each other.

    What a box reads from far above stands in it, without an arrow.
    """
    boxes = _KernelBoxes(drawn)
    gathered = gather_nodes(graph, _GATHERED, boxes.describe, boxes.label)
    return replace(gathered, graph=name_far(gathered.graph))


class _KernelBoxes:
    """What kernels and buffers have in common, and what is written in a box of them."""

    def __init__(self, drawn: DrawnSchedule) -> None:
        self.drawn = drawn
        self.kernels = {f"kernel{number}": kernel for number, kernel in enumerate(drawn.schedule.kernels)}
        self.total = sum(kernel.executed_ops for kernel in drawn.schedule.kernels)

    def describe(self, node: GraphNode) -> Look | None:
        if node.alert or node.kind not in {"kernel", *BUFFERS}:
            return None
        kernel = self.kernels.get(node.id)
        written = kernel.outputs if kernel is not None and kernel.outputs else node.members
        last = self.drawn.index.node(written[-1]) if written else None
        place = last and last.line
        if node.kind in BUFFERS:
            return Look(node.kind, place, node.mark, passive=True)
        return Look((place, count_work(self.drawn.find_nodes(node.members))), place, node.mark)

    def label(self, box: Box) -> GraphNode:
        kernels = [node for node in box.nodes if node.kind == "kernel"]
        members = tuple(sorted({number for node in box.nodes for number in node.members}))
        weight = min(sum(node.weight for node in box.nodes), 1.0)
        if len(kernels) == 1:
            buffers = [node.lines[0] for node in box.nodes if node.kind in BUFFERS]
            lines = (*kernels[0].lines, shorten(f"with {', '.join(buffers)}"))
            return replace(kernels[0], id=box.key, lines=lines, members=members)
        shown = kernels or box.nodes
        title = f"{name_shortly(shown[0])} and {format_plural(len(shown) - 1, 'kernel' if kernels else 'buffer')} more"
        lines = [title, self._count(box, kernels), self._list_places(kernels)]
        named = ", ".join(node.lines[0] for node in shown)
        tip = f"{named}\nnodes {format_ids(members)}"
        text = tuple(line for line in lines if line)
        return GraphNode(box.key, "folded", text, tip, members, mark=box.nodes[0].mark, weight=weight)

    def _count(self, box: Box, kernels: list[GraphNode]) -> str:
        said: list[str] = []
        if box.times > 1:
            kinds = len(kernels or box.nodes) // box.times
            said.append("of one kind" if kinds == 1 else f"{box.times} of each kind")
        ops = sum(self.kernels[node.id].executed_ops for node in kernels if node.id in self.kernels)
        if kernels and ops:
            said.append(f"{format_share(ops, self.total)} of all ops")
        return ", ".join(said)

    def _list_places(self, kernels: list[GraphNode]) -> str:
        known = [self.kernels[node.id] for node in kernels if node.id in self.kernels]
        return shorten(self.drawn.places.format_all(line for kernel in known for line in kernel.lines))
