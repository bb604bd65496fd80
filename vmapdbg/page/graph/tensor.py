"""The tensor graph: nodes, scopes of vmap, the buffers between them. Other stages use its labels, too."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from vmapdbg.model.capture import Node
from vmapdbg.model.vocabulary import EdgeKind
from vmapdbg.model.wording import cut_end, format_plural, join_counted
from vmapdbg.page.format import format_bytes, format_ids, format_shape, star_ambient
from vmapdbg.page.graph import fold, items, model
from vmapdbg.page.why import explain_node

_MOST_FOLDED = 60
_BUFFERS_LEVEL = 3
"""From this level on, a removed BUFFERIZE is not drawn. At the next level, the boxes are functions."""
_FAR_ROWS = 12
_LARGE = 150


def build_tensor_graph(pair: items.DrawnPair, level: int, title: str) -> model.Graph:
    """Returns the tensor graphs of a pair folded to `level`. At the last level, the boxes are functions of the user."""
    folding = items.Folding(items.collect_items(pair), level)
    draft = _Draft(folding, pair, with_removed=level < _BUFFERS_LEVEL)
    clusters, colours = tuple(draft.list_clusters()), pair.range_colours
    graph = model.Graph("tensor", title, tuple(draft.nodes), tuple(draft.edges), clusters, (), colours, folding.folded)
    if level:
        graph = fold_nodes(graph, pair, _MOST_FOLDED if level == items.LEVELS[-1] else None)
    is_large = level < items.LEVELS[-1] and len(graph.nodes) >= _LARGE
    return fold.name_far_sources(graph, _FAR_ROWS) if is_large else graph


def fold_nodes(graph: model.Graph, pair: items.DrawnPair, most: int | None = None) -> model.Graph:
    """Returns the graph with functions as boxes, at most `most`; None: folds only repeated layers and the optimizer."""

    def node_of(node: model.GraphNode) -> Node | None:
        return pair.side_of(node.mark).index.node(next(reversed(node.members), None))

    def look(node: model.GraphNode) -> Hashable:
        made = pair.side_of(node.mark).list_nodes(node.members)
        ops = tuple(sorted(Counter(each.op for each in made).items()))
        return node.kind, ops, made[-1].shape, made[-1].dtype, node.mark, node.scope

    def describe(nodes: Sequence[model.GraphNode]) -> list[str]:
        drawn = pair.side_of(nodes[0].mark)
        made = drawn.list_nodes(fold.list_members(nodes))
        sizes = [kept.bytes for node in made if (kept := drawn.index.find_kept(node.id)) is not None]
        held = f"{format_plural(len(sizes), 'buffer')}, {format_bytes(sum(sizes))}" * bool(sizes)
        return [held, _count_ops(node.op for node in made)]

    return fold.fold_graph(graph, fold.Subject(pair, node_of, look, describe), most).graph


class _Draft:
    """The nodes and edges drawn so far. Without `with_removed`, a BUFFERIZE that both sides removed is not drawn."""

    def __init__(self, folding: items.Folding, pair: items.DrawnPair, with_removed: bool) -> None:
        self.folding, self.pair, self.with_removed = folding, pair, with_removed
        self.nodes: list[model.GraphNode] = []
        self.edges: list[model.GraphEdge] = []
        self.groups = {group.key: group for group in folding.groups}
        self.items = {item.key: item for group in folding.groups for item in group.items}
        self.scopes: dict[tuple[str, ...], str] = {}
        self.seen: set[tuple[str, str, str]] = set()  # tail, head and label of the edges between nodes
        for group in folding.groups:
            last, drawn = group.last, pair.side_of(group.last.mark)
            realized = last.is_realized and group.kind != "index"
            scope = self.name_scope(last.path)
            label, tooltip, members = make_label(group, drawn), make_tooltip(group, drawn), list_ids(group)
            name, kind = name_node(last), group.kind
            self.nodes.append(model.GraphNode(name, kind, label, tooltip, members, scope, last.mark, realized=realized))
            for buffer in self._list_drawn(last):
                self._draw_buffer(buffer, last)
        for group in folding.groups:
            for item in group.items:
                for source in dict.fromkeys(item.src):
                    self._draw_edge(source, item, group)

    def name_scope(self, path: tuple[str, ...]) -> str | None:
        """Returns the id of a scope's cluster. Makes the cluster and the clusters around it."""
        for depth in range(1, len(path) + 1):
            self.scopes.setdefault(path[:depth], f"scope-{len(self.scopes)}")
        return self.scopes.get(path)

    def _list_drawn(self, item: items.Item) -> list[items.BufferMark]:
        return [b for b in item.buffers if self.with_removed or b.kept or b.mark != model.COMMON or b.lost]

    def _draw_buffer(self, buffer: items.BufferMark, item: items.Item) -> None:
        drawn, mark, bufferize = self.pair.side_of(buffer.mark), buffer.mark, buffer.bufferize
        label, tooltip = _label_buffer(buffer, drawn), f"{bufferize.outcome}: {bufferize.reason}"
        # the buffer of a VMAPOUT is outside the scope that it ends
        path = item.ambient if item.node.op == "VMAPOUT" else item.path
        name, kind, scope = _name_buffer(buffer), bufferize.outcome, self.name_scope(path)
        lost = bool(buffer.lost)
        self.nodes.append(model.GraphNode(name, kind, label, tooltip, (bufferize.node,), scope, mark, alert=lost))
        self.edges.append(model.GraphEdge(name_node(item), name, "", tooltip, kind, mark))

    def _draw_edge(self, source: str, reader: items.Item, group: items.Group) -> None:
        key = self.folding.of.get(source)
        if key is None or key == group.key:
            return
        maker, item = self.groups[key], self.items[source]
        tail, kind = self._find_tail(maker, item)
        head = name_node(group.last)
        # the ranges of a read, if they differ from the ranges of the value
        asked, has_ranges = reader.node.in_ranges, maker.kind not in ("input", "index")
        differs = not has_ranges or asked != maker.items[0].node.in_ranges or item.buffers
        label = ", ".join(asked or ()) if differs else ""
        if (tail, head, label) not in self.seen:
            self.seen.add((tail, head, label))
            mark = reader.mark if item.mark == model.COMMON else item.mark
            tip = f"{item.node.op} {item.node.id} read with {join_ranges(asked)} by {reader.node.op} {reader.node.id}"
            self.edges.append(model.GraphEdge(tail, head, fold.shorten(label, 36), tip, kind, mark))

    def _find_tail(self, maker: items.Group, item: items.Item) -> tuple[str, EdgeKind]:
        """Readers of a buffer read its BUFFERIZE: if the sides differ, the BUFFERIZE of after."""
        if item.key != maker.key:
            return name_node(maker.last), "data"
        for buffer in self._list_drawn(item):
            if buffer.mark != model.REMOVED or item.mark == model.REMOVED:
                return _name_buffer(buffer), buffer.bufferize.outcome
        return name_node(item), "data"

    def list_clusters(self) -> Iterable[model.GraphCluster]:
        """Yields the frames of the scopes that have nodes."""
        ranges = self.pair.before.index.ranges | self.pair.after.index.ranges
        for path, name in self.scopes.items():
            known = ranges.get(path[-1])
            size = f" = {known.size}, {known.axis_type}" if known else ""
            yield model.GraphCluster(name, self.scopes.get(path[:-1]), f"vmap {path[-1]}{size}", path[-1])


def name_node(item: items.Item) -> str:
    """Returns the id in the SVG: `node7`, or `before7` if only the baseline has the node."""
    return f"{'before' if item.mark == model.REMOVED else 'node'}{item.node.id}"


def _name_buffer(buffer: items.BufferMark) -> str:
    return f"{model.PREFIXES[buffer.mark]}bufferize{buffer.bufferize.node}"


def list_ids(group: items.Group) -> tuple[int, ...]:
    """Returns the ids of a group's nodes."""
    return tuple(item.node.id for item in group.items)


# *** labels and tooltips


def make_label(group: items.Group, drawn: items.DrawnSchedule) -> tuple[str, ...]:
    """Returns the lines of a group's node: id and op, shape and place, ambient ranges, the decision."""
    node, sign = group.last.node, model.SIGNS[group.last.mark]
    if group.kind == "index":
        value = f"{format_shape(node.shape)} {node.dtype}, {format_plural(len(group.items), 'node')} from constants"
        return (f"{sign}{node.id} index arithmetic", fold.shorten(value))
    ops = [item.node.op for item in group.items]
    has_arg = node.op in ("REDUCE_AXIS", "REDUCE", "VMAPIN", "VMAPOUT", "COPY") and node.arg
    title = [f"{sign}{node.id} {node.op}" + (f" {fold.shorten(node.arg, 24)}" if has_arg else "")]
    title += [_count_ops(ops[:-1])] * (len(ops) > 1)
    then, now = group.last.decisions
    decisions = [now] * (node.realized is not None) if now == then else [f"- {then}", f"+ {now}"]
    place = fold.shorten(drawn.places.format(node.line, brief=True), 30)
    value = f"{fold.shorten(f'{format_shape(node.shape)} {node.dtype}')}  {place}".strip()
    constants = fold.shorten("const " + ", ".join(group.constants)) if group.constants else ""
    return (*title, *filter(None, [value, constants, star_ranges(group.last.ambient)]), *decisions)


def _count_ops(ops: Iterable[str]) -> str:
    """Returns `with 2 MUL, ADD`: which ops there are and how many of each, the most frequent first."""
    return fold.shorten(f"with {join_counted(Counter(ops).most_common())}")


def star_ranges(names: Iterable[str]) -> str:
    """Returns ambient ranges as `rm1* rm2*`."""
    return " ".join(f"{name}*" for name in names)


def make_tooltip(group: items.Group, drawn: items.DrawnSchedule) -> str:
    """Returns what `why` says of the last node of a group, and the ids of all its nodes."""
    lines = explain_node(drawn.schedule, group.last.node).text.splitlines()
    if len(group.items) > 1:
        lines.append(f"  with nodes {format_ids(list_ids(group))}")
    return "\n".join(cut_end(line, fold.LONGEST_TIP) for line in lines)


def join_ranges(names: Sequence[str] | None) -> str:
    """Returns the ranges of a value's axes, `-` if it has none."""
    return ", ".join(names or ()) or "-"


def _label_buffer(buffer: items.BufferMark, drawn: items.DrawnSchedule) -> tuple[str, ...]:
    bufferize, sign = buffer.bufferize, model.SIGNS[buffer.mark]
    ambient = drawn.index.ambient_of(bufferize.node)
    closed = star_ambient(bufferize.closed_ranges, ambient)
    lost = [f"{name} NOT closed" for name in buffer.lost]
    space = "" if bufferize.addrspace == "GLOBAL" else f" {bufferize.addrspace}"
    size = f"{bufferize.size:,} elements, {format_bytes(bufferize.bytes)}{space}, {bufferize.outcome}"
    return (*lost, fold.shorten(f"{sign}{drawn.schedule.buffer_op} ({closed})"), size)


STAGE = items.Stage(
    title="tensor graph",
    build=build_tensor_graph,
    legend={
        "input": "a buffer that comes in",
        "op": "an op",
        "reduce": "a reduce",
        "view": "movement ops",
        "vmapin": "VMAPIN: a scope begins",
        "vmapout": "VMAPOUT: a scope ends",
        "index": "index arithmetic, folded",
        "repeat": "a repeated layer, folded",
        "optimizer": "the optimizer, folded",
        "folded": "a function or a line, with its nodes",
        "kept": "BUFFERIZE kept: a buffer",
        "removed": "BUFFERIZE removed: fused",
    },
    sample="op",
    most=160,
    pleasant=80,
    levels=len(items.LEVELS),
)
