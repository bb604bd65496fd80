"""Boxes of nodes and buffers, where a tensor graph has more of them than one can look at however they are folded."""

from __future__ import annotations

from dataclasses import replace

from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_bytes, format_ids
from vmapdbg.page.graph.far import name_far
from vmapdbg.page.graph.gather import Box, Look, gather_nodes
from vmapdbg.page.graph.items import DrawnSchedule, count_work
from vmapdbg.page.graph.labels import count_ops, shorten
from vmapdbg.page.graph.model import BUFFERIZES, Graph, GraphNode

_GATHERED = 60
_ALONE = frozenset({"vmapin", "vmapout", "repeat", "reference"})
_PASSIVE = BUFFERIZES | {"input", "index", "view"}


def gather_tensors(graph: Graph, after: DrawnSchedule) -> Graph:
    """Returns the graph with fewer boxes: equal groups beside each other, then those that follow each other. What a box
    reads from far above stands in it, without an arrow."""
    boxes = _TensorBoxes(after)
    return name_far(gather_nodes(graph, _GATHERED, boxes.describe, boxes.label).graph)


class _TensorBoxes:
    """What groups of nodes have in common, and what is written in a box of them."""

    def __init__(self, drawn: DrawnSchedule) -> None:
        self.drawn = drawn

    def describe(self, node: GraphNode) -> Look | None:
        if node.alert or node.kind in _ALONE:
            return None
        made = self.drawn.find_nodes(node.members)
        place = made[-1].line if made else None
        side = node.mark, node.scope
        if node.kind in _PASSIVE:
            return Look(node.kind, place, side, passive=True)
        return Look((node.kind, place, count_work(made)), place, side)

    def label(self, box: Box) -> GraphNode:
        buffers = [node for node in box.nodes if node.kind in BUFFERIZES]
        groups = [node for node in box.nodes if node.kind not in BUFFERIZES]
        members = tuple(sorted({number for node in box.nodes for number in node.members}))
        if len(groups) == 1:
            # a group with its buffers
            sizes = [line for node in buffers for line in node.lines[-1:]]
            lines = (*groups[0].lines, *sizes[:1])
            return replace(groups[0], id=box.key, lines=lines, members=members)
        ids = sorted({number for node in groups or buffers for number in node.members})
        title = f"{ids[0]} and {format_plural(len(ids) - 1, 'node')} more"
        lines = [title, *self._count(box, groups, buffers)]
        nodes = self.drawn.find_nodes(ids)
        lines += count_ops(node.op for node in nodes)[:2]
        places = dict.fromkeys(node.line for node in nodes)
        lines.append(shorten(self.drawn.places.format_all(place for place in places if place)))
        text = tuple(line for line in lines if line)
        tip = f"{title}\nnodes {format_ids(members)}"
        first = box.nodes[0]
        kind = "folded" if groups else first.kind
        return GraphNode(box.key, kind, text, tip, members, first.scope, first.mark)

    def _count(self, box: Box, groups: list[GraphNode], buffers: list[GraphNode]) -> list[str]:
        said: list[str] = []
        if box.times > 1:
            kinds = len(groups or buffers) // box.times
            said.append(f"{box.times} of one kind" if kinds == 1 else f"{box.times} of each of {kinds} kinds")
        kept = [node for node in buffers if node.kind == "kept"]
        if kept:
            found = [self.drawn.index.bufferizes.get(number) for node in kept for number in node.members]
            size = sum(buffer.bytes for buffer in found if buffer is not None)
            said.append(f"{format_plural(len(kept), 'buffer')}, {format_bytes(size)}")
        return [", ".join(said)] if said else []
