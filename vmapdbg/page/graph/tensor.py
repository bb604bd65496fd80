"""The tensor graph: nodes, scopes of vmap, the buffers between them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from vmapdbg.model.vocabulary import EdgeKind, Mark
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_bytes, format_ids
from vmapdbg.page.graph.fold import Box, Look, find_far_edges, fold_graph, name_far_sources
from vmapdbg.page.graph.groups import BUFFERS_LEVEL, LEVEL_NOTES, LEVELS, Folding, Group, fold_items
from vmapdbg.page.graph.items import BufferMark, DrawnSchedule, Item, Stage, collect_items, colour_ranges, count_work
from vmapdbg.page.graph.labels import (
    count_ops,
    describe_buffer,
    join_ranges,
    label_buffer,
    make_label,
    make_tooltip,
    shorten,
)
from vmapdbg.page.graph.model import (
    BUFFERIZES,
    COMMON,
    PREFIXES,
    REMOVED,
    Graph,
    GraphCluster,
    GraphEdge,
    GraphNode,
    add_legend,
    find_near,
)

_GATHERED = 60
_ALONE = frozenset({"vmapin", "vmapout", "repeat", "reference"})
_PASSIVE = BUFFERIZES | {"input", "index", "view"}
_FAR_ROWS = 12
_LARGE = 150
_EXTRA_KINDS = BUFFERIZES | {"reference"}
_LEGEND = {
    "input": "a buffer that comes in",
    "op": "an op",
    "reduce": "a reduce",
    "view": "movement ops",
    "vmapin": "VMAPIN: a scope begins",
    "vmapout": "VMAPOUT: a scope ends",
    "index": "index arithmetic, folded",
    "repeat": "a repeated layer, folded",
    "folded": "several nodes, folded",
    "kept": "BUFFERIZE kept: a buffer",
    "removed": "BUFFERIZE removed: fused",
    "reference": "from a node far away",
}


def build_tensor_graph(after: DrawnSchedule, before: DrawnSchedule | None, level: int, title: str) -> Graph:
    """Returns the tensor graph of a schedule folded to `level`; with `before`, both are drawn over each other. The last
    level gathers what is left into boxes."""
    items = collect_items(after, before)
    folding = fold_items(items, level)
    draft = _Draft(folding, after, before, with_removed=level < BUFFERS_LEVEL)
    draft.draw()
    graph = Graph(
        stage="tensor",
        title=title,
        nodes=tuple(draft.nodes),
        edges=tuple(draft.edges),
        clusters=tuple(_make_clusters(draft.scopes, after, before)),
        legend=(),
        range_colours=colour_ranges(after, before),
        folded=folding.folded,
    )
    if level == LEVELS[-1]:
        boxes = _TensorBoxes(after)
        gathered = name_far_sources(fold_graph(graph, boxes.look, boxes.label, _GATHERED).graph)
        folded = {**graph.folded, "in boxes with others": _count_nodes(graph) - _count_nodes(gathered)}
        return explain_kinds(replace(gathered, folded=folded))
    return explain_kinds(cut_far_edges(graph))


def _count_nodes(graph: Graph) -> int:
    return sum(node.kind not in _EXTRA_KINDS for node in graph.nodes)


class _Draft:
    """The nodes and edges drawn so far. Without `with_removed`, a BUFFERIZE that both sides removed is not drawn."""

    def __init__(
        self, folding: Folding, after: DrawnSchedule, before: DrawnSchedule | None, with_removed: bool
    ) -> None:
        self.folding, self.after, self.before, self.with_removed = folding, after, before, with_removed
        self.nodes: list[GraphNode] = []
        self.edges: list[GraphEdge] = []
        self.groups = {group.key: group for group in folding.groups}
        self.items = {item.key: item for group in folding.groups for item in group.items}
        self.scopes: dict[tuple[str, ...], str] = {}

    def drawn_of(self, mark: Mark) -> DrawnSchedule:
        if mark == REMOVED and self.before is not None:
            return self.before
        return self.after

    def name_scope(self, path: tuple[str, ...]) -> str | None:
        """Returns the id of a scope's cluster. Makes the cluster and the clusters around it."""
        for depth in range(1, len(path) + 1):
            name = "-".join(["scope", *(re.sub(r"\W", "_", part) for part in path[:depth])])
            if path[:depth] not in self.scopes:
                if name in self.scopes.values():
                    name += f"-{len(self.scopes)}"
                self.scopes[path[:depth]] = name
        return self.scopes.get(path)

    def draw(self) -> None:
        for group in self.folding.groups:
            self._draw_group(group)
        seen: set[tuple[str, str, str]] = set()
        for group in self.folding.groups:
            for item in group.items:
                for source in dict.fromkeys(item.src):
                    self._draw_edge(source, item, group, seen)

    def _draw_group(self, group: Group) -> None:
        last, drawn = group.last, self.drawn_of(group.last.mark)
        realized = last.node.realized is not None and group.kind not in ("repeat", "index")
        members = tuple(item.node.id for item in group.items)
        scope = self.name_scope(last.path)
        label, tooltip = make_label(group, drawn), make_tooltip(group, drawn)
        name, kind = name_node(last), group.kind
        self.nodes.append(GraphNode(name, kind, label, tooltip, members, scope, last.mark, realized=realized))
        if group.kind != "repeat":
            for buffer in self._list_drawn(last):
                self._draw_buffer(buffer, last)

    def _list_drawn(self, item: Item) -> list[BufferMark]:
        return [b for b in item.buffers if self.with_removed or b.kept or b.mark != COMMON or b.lost]

    def _draw_buffer(self, buffer: BufferMark, item: Item) -> None:
        drawn, mark = self.drawn_of(buffer.mark), buffer.mark
        name, kind = name_buffer(buffer), buffer.bufferize.outcome
        label, tooltip = label_buffer(buffer, drawn), describe_buffer(buffer, drawn)
        # the buffer of a VMAPOUT is outside the scope that it ends
        path = item.path
        if item.node.op == "VMAPOUT":
            path = item.ambient
        scope = self.name_scope(path)
        node = GraphNode(name, kind, label, tooltip, (buffer.bufferize.node,), scope, mark, alert=bool(buffer.lost))
        self.nodes.append(node)
        self.edges.append(GraphEdge(name_node(item), name, "", tooltip, kind, mark))

    def _draw_edge(self, source: str, reader: Item, group: Group, seen: set[tuple[str, str, str]]) -> None:
        key = self.folding.of.get(source)
        if key is None or key == group.key:
            return
        maker, item = self.groups[key], self.items[source]
        tail, kind = self._find_tail(maker, item)
        head = name_node(group.last)
        label = ""
        if "repeat" not in (maker.kind, group.kind):
            label = _label_edge(maker, item, reader)
        if (tail, head, label) not in seen:
            seen.add((tail, head, label))
            mark = reader.mark if item.mark == COMMON else item.mark
            ranges = f"{item.node.op} {item.node.id} read with {join_ranges(reader.node.in_ranges)} by "
            tip = f"{ranges}{reader.node.op} {reader.node.id}"
            self.edges.append(GraphEdge(tail, head, shorten(label, 36), tip, kind, mark))

    def _find_tail(self, maker: Group, item: Item) -> tuple[str, EdgeKind]:
        """Readers of a buffer read its BUFFERIZE: if the sides differ, the BUFFERIZE of after."""
        if maker.kind == "repeat" or item.key != maker.key:
            return name_node(maker.last), "data"
        drawn = [buffer for buffer in self._list_drawn(item) if buffer.mark != REMOVED or item.mark == REMOVED]
        if not drawn:
            return name_node(item), "data"
        return name_buffer(drawn[0]), drawn[0].bufferize.outcome


def name_node(item: Item) -> str:
    """Returns the id in the SVG: `node7`, or `before7` if only the baseline has the node."""
    if item.mark == REMOVED:
        return f"before{item.node.id}"
    return f"node{item.node.id}"


def name_buffer(buffer: BufferMark) -> str:
    """Returns the id in the SVG of a BUFFERIZE."""
    return f"{PREFIXES[buffer.mark]}bufferize{buffer.bufferize.node}"


def _label_edge(maker: Group, item: Item, reader: Item) -> str:
    """Names the ranges of a read if they differ from the ranges of the value."""
    asked = reader.node.in_ranges
    has_ranges = maker.kind not in ("input", "index")
    if has_ranges and asked == maker.items[0].node.in_ranges and not item.buffers:
        return ""
    return ", ".join(asked or ())


def _make_clusters(
    scopes: dict[tuple[str, ...], str], after: DrawnSchedule, before: DrawnSchedule | None
) -> Iterable[GraphCluster]:
    ranges = after.index.ranges
    if before is not None:
        ranges = before.index.ranges | ranges
    for path, name in scopes.items():
        title = f"vmap {path[-1]}"
        if path[-1] in ranges:
            known = ranges[path[-1]]
            title += f" = {known.size}, {known.axis_type}"
        yield GraphCluster(name, scopes.get(path[:-1]), title, path[-1])


class _TensorBoxes:
    """What groups of nodes have in common, and the label of a box of them."""

    def __init__(self, drawn: DrawnSchedule) -> None:
        self.drawn = drawn

    def look(self, node: GraphNode) -> Look | None:
        if node.alert or node.kind in _ALONE:
            return None
        made = self.drawn.list_nodes(node.members)
        place = made[-1].line if made else None
        side = node.mark, node.scope
        if node.kind in _PASSIVE:
            return Look(node.kind, place, side, passive=True)
        return Look((node.kind, place, count_work(made)), place, side)

    def label(self, box: Box[GraphNode]) -> GraphNode:
        buffers = [node for node in box.things if node.kind in BUFFERIZES]
        groups = [node for node in box.things if node.kind not in BUFFERIZES]
        members = tuple(sorted({number for node in box.things for number in node.members}))
        if len(groups) == 1:
            # a group with its buffers
            sizes = [line for node in buffers for line in node.lines[-1:]]
            lines = (*groups[0].lines, *sizes[:1])
            return replace(groups[0], id=box.key, lines=lines, members=members)
        ids = sorted({number for node in groups or buffers for number in node.members})
        title = f"{ids[0]} and {format_plural(len(ids) - 1, 'node')} more"
        nodes = self.drawn.list_nodes(ids)
        places = dict.fromkeys(node.line for node in nodes if node.line)
        lines = [title, self._count(box, groups, buffers), *count_ops(node.op for node in nodes)[:2]]
        lines.append(shorten(self.drawn.places.format_all(places)))
        first = box.things[0]
        kind = "folded" if groups else first.kind
        tip = f"{title}\nnodes {format_ids(members)}"
        return GraphNode(box.key, kind, tuple(filter(None, lines)), tip, members, first.scope, first.mark)

    def _count(self, box: Box[GraphNode], groups: list[GraphNode], buffers: list[GraphNode]) -> str:
        words: list[str] = []
        if box.times > 1:
            kinds = len(groups or buffers) // box.times
            words.append(f"{box.times} of one kind" if kinds == 1 else f"{box.times} of each of {kinds} kinds")
        kept = [node for node in buffers if node.kind == "kept"]
        if kept:
            found = [self.drawn.index.bufferizes.get(number) for node in kept for number in node.members]
            size = sum(buffer.bytes for buffer in found if buffer is not None)
            words.append(f"{format_plural(len(kept), 'buffer')}, {format_bytes(size)}")
        return ", ".join(words)


def cut_far_edges(graph: Graph) -> Graph:
    """In a large graph, replaces an edge over many rows by a small node that names the source, above its reader."""
    if len(graph.nodes) < _LARGE:
        return graph
    far = find_far_edges(graph, _FAR_ROWS)
    nodes = {node.id: node for node in graph.nodes}
    edges: list[GraphEdge] = []
    for edge in graph.edges:
        if edge not in far:
            edges.append(edge)
            continue
        name = f"{edge.tail}-for-{edge.head}"
        if name not in nodes:
            title, scope = nodes[edge.tail].lines[0], nodes[edge.head].scope
            tip = f"reads {title}\n{edge.tooltip}"
            nodes[name] = GraphNode(name, "reference", (f"from {title}",), tip, (), scope, edge.mark)
        edges.append(GraphEdge(name, edge.head, edge.label, edge.tooltip, "reference", edge.mark))
    return replace(graph, nodes=tuple(nodes.values()), edges=tuple(edges))


def explain_kinds(graph: Graph) -> Graph:
    """Returns the graph with a legend of the kinds that it has."""
    marks = {part.mark for part in (*graph.nodes, *graph.edges)}
    return add_legend(graph, _LEGEND, "op", marks)


STAGE = Stage(
    title="tensor graph",
    build=build_tensor_graph,
    last_level=LEVELS[-1],
    find_near=find_near,
    add_legend=explain_kinds,
    extra_kinds=_EXTRA_KINDS,
    most=160,
    pleasant=80,
    level_notes=LEVEL_NOTES,
)
