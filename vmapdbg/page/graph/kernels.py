"""Kernels and the buffers between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vmapdbg.model.capture import Kernel, Node
from vmapdbg.model.vocabulary import Mark
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_bytes, format_count, format_ids, format_shape, format_share
from vmapdbg.page.graph.fold import Box, Folded, Look, fold_graph, name_far_sources, name_shortly
from vmapdbg.page.graph.items import DrawnSchedule, Stage, count_work, pair_drawn
from vmapdbg.page.graph.labels import shorten
from vmapdbg.page.graph.model import (
    ADDED,
    BUFFERS,
    COMMON,
    PREFIXES,
    REMOVED,
    SIGNS,
    Graph,
    GraphEdge,
    GraphError,
    GraphNode,
    add_legend,
    find_near,
)

MOST_BOXES = 60
"""A drawing with more boxes is gathered, to `_GATHERED` boxes if possible."""
_GATHERED = 45
_DTYPE_BYTES = {
    **dict.fromkeys(("bool", "char", "signed char", "unsigned char", "uchar"), 1),
    **dict.fromkeys(("half", "__bf16", "short", "unsigned short", "ushort"), 2),
    **dict.fromkeys(("int", "unsigned int", "uint", "float"), 4),
    **dict.fromkeys(("long", "unsigned long", "ulong", "double"), 8),
}
_MOST_LINES = 3
_LEGEND = {
    "kernel": "a kernel; shaded by its share of the ops",
    "buffer": "a buffer that comes in",
    "kept": "a buffer that a kernel writes",
    "repeat": "a repeated layer, folded",
    "folded": "several kernels, folded",
}
_INPUTS = frozenset({"BUFFER", "COPY", "PARAM", "DEFINE_GLOBAL", "BUFFER_VIEW", "MSTACK"})


def build_kernel_graph(after: DrawnSchedule, before: DrawnSchedule | None, level: int, title: str) -> Graph:
    """Returns the kernels of a schedule and their buffers; with `before`, both are drawn over each other.

    From `level` 1 on, repeated layers are drawn once. At level 2, kernels that are alike or follow each other are one
    box. Raises GraphError if the schedule has no kernels.
    """
    if not after.schedule.kernels and not (before and before.schedule.kernels):
        raise GraphError(f"schedule {after.schedule.index} has no kernels, only copies or nothing")
    if before is None:
        nodes, edges = _Part(after, COMMON).draw()
    else:
        nodes, edges = _draw_both(_Part(before, REMOVED), _Part(after, ADDED))
    graph = Graph("kernels", title, tuple(nodes), tuple(edges), (), (), {}, {})
    if level:
        graph = fold_layers(graph).graph
    if level > 1:
        gathered = gather_kernels(graph, after)
        graph = replace(gathered.graph, folded={**graph.folded, "in boxes with others": gathered.count})
    return explain_kinds(graph)


def _draw_both(old: _Part, new: _Part) -> tuple[list[GraphNode], list[GraphEdge]]:
    _match_parts(old, new)
    nodes, edges = new.draw()
    gone_nodes, gone_edges = old.draw()
    known = {node.id for node in nodes}
    nodes += [node for node in gone_nodes if node.id not in known]
    return nodes, _merge_edges(edges, gone_edges)


class _Part:
    """The kernels of one side. Matching changes the names and marks of what both sides have."""

    def __init__(self, drawn: DrawnSchedule, mark: Mark) -> None:
        self.drawn = drawn
        self.mark: Mark = mark
        self.kernels = drawn.schedule.kernels
        prefix = PREFIXES[mark]
        self.names = {number: f"{prefix}kernel{number}" for number in range(len(self.kernels))}
        self.writers = drawn.index.writers
        self.reads = [sorted(self._find_reads(kernel)) for kernel in self.kernels]
        self.buffers = sorted(set(self.writers) | {node for reads in self.reads for node in reads})
        self.buffer_names = {node: f"{prefix}buffer{node}" for node in self.buffers}
        self.marks: dict[str, Mark] = dict.fromkeys([*self.names.values(), *self.buffer_names.values()], mark)
        self.most = max((kernel.executed_ops for kernel in self.kernels), default=0)
        self.total = sum(kernel.executed_ops for kernel in self.kernels)

    def _find_reads(self, kernel: Kernel) -> set[int]:
        """The buffers a kernel reads: from its nodes up, through nodes it does not compute, to the first buffers."""
        inside, own = set(kernel.nodes), set(kernel.outputs)
        found: set[int] = set()
        seen: set[int] = set()
        nodes = self.drawn.index.nodes
        waiting = [source for number in kernel.nodes if number in nodes for source in nodes[number].src]
        while waiting:
            number = waiting.pop()
            if number in seen or number not in nodes:
                continue
            seen.add(number)
            if (number in self.writers and number not in own) or (nodes[number].op in _INPUTS and number not in inside):
                found.add(number)
            elif number not in inside:
                waiting += nodes[number].src
        return found

    def share(self, other: _Part, name: str) -> str:
        """Returns the name of what both parts have. It gets no mark."""
        self.marks[name] = other.marks[name] = COMMON
        return name

    def draw(self) -> tuple[list[GraphNode], list[GraphEdge]]:
        """Returns what is drawn of this side."""
        nodes = [self._draw_buffer(number) for number in self.buffers]
        edges: list[GraphEdge] = []
        for number, kernel in enumerate(self.kernels):
            nodes.append(self._draw_kernel(number, kernel))
            pairs = [(self.buffer_names[node], self.names[number]) for node in self.reads[number]]
            pairs += [(self.names[number], self.buffer_names[node]) for node in kernel.outputs]
            for tail, head in pairs:
                is_common = self.marks[tail] == self.marks[head] == COMMON
                edges.append(GraphEdge(tail, head, mark=COMMON if is_common else self.mark))
        return nodes, edges

    def _draw_kernel(self, number: int, kernel: Kernel) -> GraphNode:
        name = self.names[number]
        mark = self.marks[name]
        share = kernel.executed_ops / max(self.most, 1)
        found = self.drawn.findings.find_for_kernel(kernel, self.drawn.schedule.index, number)
        lines = [
            f"{SIGNS[mark]}#{number} {shorten(kernel.name)}",
            *self._label_work(kernel),
            *(shorten(f"{item.code} {item.message}", 60) for item in found),
            shorten(_join_some(self.drawn.places.format_all(kernel.lines).split("; "))),
        ]
        tip = f"kernel {number} {kernel.name}, target {kernel.target}\n  nodes {format_ids(kernel.nodes)}\n"
        tip += f"  writes nodes {format_ids(kernel.outputs)}\n  lines {', '.join(kernel.lines)}"
        shown = tuple(line for line in lines if line)
        return GraphNode(name, "kernel", shown, tip, kernel.nodes, mark=mark, alert=bool(found), weight=share)

    def _label_work(self, kernel: Kernel) -> list[str]:
        part = kernel.executed_ops / max(self.total, 1)
        ops = [f"{format_count(kernel.executed_ops)} ops executed"]
        if part >= 0.01 and len(self.kernels) > 1:
            ops.append(f"{part:.0%} of all")
        if kernel.redundancy:
            ops.append(f"redundancy {kernel.redundancy:.1f}x")
        launch = [format_plural(kernel.threads, "thread")]
        if kernel.local_bytes:
            launch.append(f"{format_bytes(kernel.local_bytes)} LOCAL")
        if kernel.launches != 1:
            launch.append(format_plural(kernel.launches, "launch", "launches"))
        launch.append(f"moves {format_bytes(kernel.bytes)}")
        return [", ".join(ops), ", ".join(launch)]

    def _draw_buffer(self, number: int) -> GraphNode:
        name = self.buffer_names[number]
        index, mark = self.drawn.index, self.marks[name]
        node, closed = index.node(number), index.find_kept(number)
        lost, op = index.find_lost(closed), index.op(number)
        size, tip = "", f"buffer of node {number}: {op}"
        if node is not None:
            size = _size_input(node)
            tip += f" {format_shape(node.shape)}"
        if closed is not None:
            dtype = "elements" if node is None else node.dtype
            size = f"{closed.size:,} {dtype}, {format_bytes(closed.bytes)}"
            tip += f"\n  closes {', '.join(closed.closed_ranges)}"
        if node is not None and node.line:
            tip += f"\n  {node.line}"
        lines = [f"{SIGNS[mark]}{number} {op}", *(f"{item} NOT closed" for item in lost), size]
        kind = "kept" if number in self.writers else "buffer"
        return GraphNode(name, kind, tuple(line for line in lines if line), tip, (number,), None, mark, bool(lost))


def _join_some(parts: list[str]) -> str:
    more = len(parts) - _MOST_LINES
    if more > 0:
        parts = [*parts[:_MOST_LINES], f"{more} more"]
    return "; ".join(parts)


def _size_input(node: Node) -> str:
    sizes = [size for size in node.shape or () if isinstance(size, int)]
    if node.shape is None or len(sizes) != len(node.shape):
        return f"{format_shape(node.shape)} {node.dtype}"
    count = math.prod(sizes)
    size = f"{count:,} {node.dtype}"
    if node.dtype in _DTYPE_BYTES:
        size += f", {format_bytes(count * _DTYPE_BYTES[node.dtype])}"
    return size


def _match_parts(old: _Part, new: _Part) -> None:
    """Gives one name and no mark to what both sides have: kernels with equal keys and outputs, buffers with equal nodes
    and sizes."""
    pairs = pair_drawn(old.drawn, new.drawn)
    matched = pairs.nodes
    for number in old.buffers:
        other = matched.get(number)
        if other in new.buffer_names and _measure(old, number) == _measure(new, other):
            old.buffer_names[number] = old.share(new, new.buffer_names[other])
    if pairs.kernels is not None:
        for number, other in pairs.kernels.items():
            old.names[number] = old.share(new, new.names[other])
        return
    free: dict[object, list[int]] = {}
    for number, kernel in enumerate(new.kernels):
        free.setdefault((kernel.key or kernel.source, kernel.outputs), []).append(number)
    for number, kernel in enumerate(old.kernels):
        outputs = tuple(matched.get(node, -1) for node in kernel.outputs)
        waiting = free.get((kernel.key or kernel.source, outputs))
        if waiting:
            old.names[number] = old.share(new, new.names[waiting.pop(0)])


def _measure(part: _Part, number: int) -> object:
    """The size of a buffer and the ranges it loses: two buffers of one node may differ in these."""
    index = part.drawn.index
    kept = index.find_kept(number)
    return kept and (kept.size, kept.bytes, index.find_lost(kept))


def _merge_edges(new: Iterable[GraphEdge], old: Iterable[GraphEdge]) -> list[GraphEdge]:
    """The edges of both sides. An edge that both have is common, even if its ends are not."""
    ends = {(edge.tail, edge.head): edge for edge in new}
    for edge in old:
        known = ends.get((edge.tail, edge.head))
        ends[edge.tail, edge.head] = edge if known is None else replace(known, mark=COMMON)
    return list(ends.values())


# *** fewer boxes


def fold_layers(graph: Graph) -> Folded:
    """Returns the graph with repeated runs of kernels, and the buffers between them, drawn once."""

    def look(node: GraphNode) -> Look:
        words = (*node.lines[0].split(" ")[1:], *node.lines[1:-1], node.mark)
        return Look(words, passive=node.kind in BUFFERS)

    folded = fold_graph(graph, look, _label_layers)
    if not folded.count:
        return folded
    return replace(folded, graph=replace(folded.graph, folded={"repeated kernels and buffers": folded.count}))


def _label_layers(box: Box[GraphNode]) -> GraphNode:
    kernels = [node for node in box.things if node.kind == "kernel"]
    first, last = kernels[0], kernels[-1]
    period = format_plural(len(kernels) // box.repeats, "kernel")
    title = f"the {period} before, {format_plural(box.repeats, 'more time', 'more times')}"
    members = tuple(sorted({number for node in box.things for number in node.members}))
    lines = (title, f"{first.lines[0]} to {last.lines[0]}")
    return GraphNode(box.key, "repeat", lines, f"{title}\nnodes {format_ids(members)}", members, None, last.mark)


def gather_kernels(graph: Graph, drawn: DrawnSchedule) -> Folded:
    """Returns the graph with fewer boxes: kernels that are alike, then kernels that follow each other.

    A box says what it reads from far above; no edge is drawn for it.
    """
    boxes = _KernelBoxes(drawn)
    gathered = fold_graph(graph, boxes.look, boxes.label, _GATHERED)
    return replace(gathered, graph=name_far_sources(gathered.graph))


class _KernelBoxes:
    """What kernels and buffers have in common, and the label of a box of them."""

    def __init__(self, drawn: DrawnSchedule) -> None:
        self.drawn = drawn
        self.kernels = {f"kernel{number}": kernel for number, kernel in enumerate(drawn.schedule.kernels)}
        self.total = sum(kernel.executed_ops for kernel in drawn.schedule.kernels)

    def look(self, node: GraphNode) -> Look | None:
        if node.alert or node.kind not in {"kernel", *BUFFERS}:
            return None
        kernel = self.kernels.get(node.id)
        written = kernel.outputs if kernel is not None and kernel.outputs else node.members
        last = self.drawn.index.node(written[-1]) if written else None
        place = last and last.line
        if node.kind in BUFFERS:
            return Look(node.kind, place, node.mark, passive=True)
        return Look((place, count_work(self.drawn.list_nodes(node.members))), place, node.mark)

    def label(self, box: Box[GraphNode]) -> GraphNode:
        kernels = [node for node in box.things if node.kind == "kernel"]
        members = tuple(sorted({number for node in box.things for number in node.members}))
        if len(kernels) == 1:
            buffers = [node.lines[0] for node in box.things if node.kind in BUFFERS]
            lines = (*kernels[0].lines, shorten(f"with {', '.join(buffers)}"))
            return replace(kernels[0], id=box.key, lines=lines, members=members)
        shown = kernels or box.things
        title = f"{name_shortly(shown[0])} and {format_plural(len(shown) - 1, 'kernel' if kernels else 'buffer')} more"
        known = [self.kernels[node.id] for node in kernels if node.id in self.kernels]
        places = shorten(self.drawn.places.format_all(line for kernel in known for line in kernel.lines))
        text = tuple(line for line in (title, self._count(box, kernels, known), places) if line)
        tip = f"{', '.join(node.lines[0] for node in shown)}\nnodes {format_ids(members)}"
        weight = min(sum(node.weight for node in box.things), 1.0)
        return GraphNode(box.key, "folded", text, tip, members, mark=box.things[0].mark, weight=weight)

    def _count(self, box: Box[GraphNode], drawn: Sequence[GraphNode], kernels: Sequence[Kernel]) -> str:
        words: list[str] = []
        if box.times > 1:
            kinds = len(drawn or box.things) // box.times
            words.append("of one kind" if kinds == 1 else f"{box.times} of each kind")
        ops = sum(kernel.executed_ops for kernel in kernels)
        if ops:
            words.append(f"{format_share(ops, self.total)} of all ops")
        return ", ".join(words)


def explain_kinds(graph: Graph) -> Graph:
    """Returns the graph with a legend of the kinds that it has."""
    return add_legend(graph, _LEGEND, "kernel", {node.mark for node in graph.nodes})


STAGE = Stage(
    title="kernels",
    build=build_kernel_graph,
    last_level=2,
    find_near=find_near,
    add_legend=explain_kinds,
    extra_kinds=frozenset(),
    most=160,
    pleasant=MOST_BOXES,
    level_notes=("", "repeated layers", "repeated layers, then kernels that are alike and that follow each other"),
)
