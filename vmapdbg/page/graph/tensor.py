"""The tensor graph: nodes, scopes of vmap, the buffers between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from vmapdbg.model.vocabulary import EdgeKind, Mark
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_bytes
from vmapdbg.page.graph.fold import (
    Folded,
    Look,
    fold_graph,
    label_box,
    label_layers,
    list_members,
    name_far_sources,
    shorten,
)
from vmapdbg.page.graph.groups import LEVELS, Folding, Group, fold_items
from vmapdbg.page.graph.items import BufferMark, DrawnSchedule, Item, Stage, collect_items, colour_ranges, count_work
from vmapdbg.page.graph.labels import (
    count_ops,
    describe_buffer,
    join_ranges,
    label_buffer,
    make_label,
    make_tooltip,
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
)

_GATHERED = 60
_BUFFERS_LEVEL = 3
"""From this level on, a removed BUFFERIZE is not drawn. The next level also gathers the nodes into boxes."""
_LEVEL_NOTES = (
    "",
    "repeated layers",
    "repeated layers and elementwise ops",
    "all but buffers and scope borders",
    "all but buffers and scope borders, and of these what is alike or hangs together",
)
_BORDERS = frozenset({"vmapin", "vmapout"})
_PASSIVE = BUFFERIZES | {"input", "index"}
_FAR_ROWS = 12
_LARGE = 150
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
}


def build_tensor_graph(after: DrawnSchedule, before: DrawnSchedule | None, level: int, title: str) -> Graph:
    """Returns the tensor graph of a schedule folded to `level`; with `before`, both are drawn over each other. The last
    level gathers what is left into boxes."""
    folding = fold_items(collect_items(after, before), level)
    draft = _Draft(folding, after, before, with_removed=level < _BUFFERS_LEVEL)
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
    if level:
        graph = fold_layers(graph, after, before)
    if level == LEVELS[-1]:
        gathered = name_far_sources(_gather(graph, after).graph)
        return _count_folded(gathered, graph, "in boxes with others")
    if len(graph.nodes) >= _LARGE:
        return name_far_sources(graph, _FAR_ROWS)
    return graph


def fold_layers(graph: Graph, after: DrawnSchedule, before: DrawnSchedule | None) -> Graph:
    """Returns the graph with repeated layers drawn once: the layers of a network, and of its gradient."""
    sides = {REMOVED: before or after}

    def look(node: GraphNode) -> Look:
        if node.kind in _PASSIVE:
            return Look(passive=True)
        made = sides.get(node.mark, after).list_nodes(node.members)
        ops = tuple(sorted(Counter(each.op for each in made).items()))
        last = made[-1]
        return Look(copy=(node.kind, ops, last.shape, last.dtype, node.mark, node.scope))

    return _count_folded(fold_graph(graph, look, label_layers).graph, graph, "repeated layers")


def _count_folded(graph: Graph, whole: Graph, why: str) -> Graph:
    """Returns the graph with the number of nodes that it has less than the whole. A BUFFERIZE is not a node."""
    drawn, every = (sum(node.kind not in BUFFERIZES for node in each.nodes) for each in (graph, whole))
    if every == drawn:
        return graph
    return replace(graph, folded={**whole.folded, why: every - drawn})


def _gather(graph: Graph, drawn: DrawnSchedule) -> Folded:
    """Returns the graph with fewer boxes."""

    def look(node: GraphNode) -> Look:
        if node.alert or node.kind in _BORDERS or node.kind == "repeat":
            return Look()
        made = drawn.list_nodes(node.members)
        place = made[-1].line if made else None
        side = node.mark, node.scope
        if node.kind in _PASSIVE or node.kind == "view":
            return Look(None, node.kind, place, side, passive=True)
        return Look(node.id, (node.kind, place, count_work(made)), place, side)

    def describe(nodes: Sequence[GraphNode]) -> list[str]:
        made = drawn.list_nodes(list_members(nodes))
        kept = [drawn.index.find_kept(node.id) for node in made]
        sizes = [buffer.bytes for buffer in kept if buffer is not None]
        held = f"{format_plural(len(sizes), 'buffer')}, {format_bytes(sum(sizes))}" if sizes else ""
        places = dict.fromkeys(node.line for node in made if node.line)
        return [held, *count_ops(node.op for node in made)[:2], shorten(drawn.places.format_all(places))]

    return fold_graph(graph, look, partial(label_box, describe=describe), _GATHERED)


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
        realized = last.node.realized is not None and group.kind != "index"
        members = tuple(item.node.id for item in group.items)
        scope = self.name_scope(last.path)
        label, tooltip = make_label(group, drawn), make_tooltip(group, drawn)
        name, kind = name_node(last), group.kind
        self.nodes.append(GraphNode(name, kind, label, tooltip, members, scope, last.mark, realized=realized))
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
        label = _label_edge(maker, item, reader)
        if (tail, head, label) not in seen:
            seen.add((tail, head, label))
            mark = reader.mark if item.mark == COMMON else item.mark
            ranges = f"{item.node.op} {item.node.id} read with {join_ranges(reader.node.in_ranges)} by "
            tip = f"{ranges}{reader.node.op} {reader.node.id}"
            self.edges.append(GraphEdge(tail, head, shorten(label, 36), tip, kind, mark))

    def _find_tail(self, maker: Group, item: Item) -> tuple[str, EdgeKind]:
        """Readers of a buffer read its BUFFERIZE: if the sides differ, the BUFFERIZE of after."""
        if item.key != maker.key:
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


STAGE = Stage(
    title="tensor graph",
    build=build_tensor_graph,
    last_level=LEVELS[-1],
    legend=_LEGEND,
    sample="op",
    extra_kinds=BUFFERIZES,
    most=160,
    pleasant=80,
    level_notes=_LEVEL_NOTES,
)
