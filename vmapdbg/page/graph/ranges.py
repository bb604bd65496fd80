"""The range map as a table: one line for each node, outputs last, folded as the tensor graph is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vmapdbg.page.format import format_bytes, format_shape
from vmapdbg.page.graph.fold import shorten
from vmapdbg.page.graph.groups import Group, fold_items
from vmapdbg.page.graph.items import DrawnSchedule, Item, Stage, collect_items, colour_ranges
from vmapdbg.page.graph.labels import join_ranges, make_tooltip, star_ranges
from vmapdbg.page.graph.model import REMOVED, SIGNS, Graph, GraphEdge, GraphNode
from vmapdbg.page.graph.tensor import fold_layers, name_node

HEADS = ("id", "op", "shape", "ranges in -> out", "ambient", "decision and buffer", "kernel", "line")
_WIDEST = (12, 34, 22, 46, 14, 90, 18, 26)


def build_range_graph(after: DrawnSchedule, before: DrawnSchedule | None, level: int, title: str) -> Graph:
    """Returns one row a node: the label's only line is the row, in columns of a fixed width."""
    folding = fold_items(collect_items(after, before), level)
    sides = {REMOVED: before or after}
    names = {group.key: name_node(group.last) for group in folding.groups}
    nodes: list[GraphNode] = []
    edges: list[GraphEdge] = []
    for group in folding.groups:
        nodes.append(_draw_row(group, sides.get(group.last.mark, after)))
        makers = (folding.of.get(source) for item in group.items for source in item.src)
        edges += [GraphEdge(names[maker], nodes[-1].id) for maker in makers if maker is not None]
    colours = colour_ranges(after, before)
    graph = Graph("ranges", title, tuple(nodes), tuple(edges), (), (), colours, folding.folded)
    if level:
        graph = fold_layers(graph, after, before)
    return _lay_out(graph)


def _lay_out(graph: Graph) -> Graph:
    """Makes one line of the cells of each row."""
    table: list[Sequence[str]] = [HEADS]
    for node in graph.nodes:
        if node.kind == "repeat":
            layers, nodes = node.lines
            table.append((str(node.members[-1]), layers, "", nodes, "", "", "", ""))
        else:
            table.append(node.lines)
    columns = zip(*table, strict=True)
    widths = [min(most, max(map(len, column))) for most, column in zip(_WIDEST, columns, strict=True)]
    head, *lines = [_join_row(row, widths) for row in table]
    rows = [replace(node, kind="row", lines=(line,)) for node, line in zip(graph.nodes, lines, strict=True)]
    return replace(graph, nodes=(GraphNode("head", "row-head", (head,), "the columns"), *rows), edges=())


def _draw_row(group: Group, drawn: DrawnSchedule) -> GraphNode:
    last = group.last
    alert = any(buffer.lost for buffer in last.buffers if buffer.mark != REMOVED or last.mark == REMOVED)
    members = tuple(item.node.id for item in group.items)
    realized = last.node.realized is not None
    cells, tip = _list_cells(group, drawn), make_tooltip(group, drawn)
    return GraphNode(name_node(last), group.kind, cells, tip, members, None, last.mark, alert, realized)


def _list_cells(group: Group, drawn: DrawnSchedule) -> tuple[str, ...]:
    node = group.last.node
    ranges = join_ranges(node.out_ranges)
    if group.kind == "index":
        ops = "index arithmetic"
    else:
        ops = " > ".join(item.node.op for item in group.items)
        came = group.items[0].node.in_ranges
        if came is not None and came != node.out_ranges:
            ranges = f"{join_ranges(came)} -> {ranges}"
    if group.constants:
        ops += f" ({', '.join(group.constants)})"
    return (
        f"{SIGNS[group.last.mark]}{node.id}",
        ops,
        format_shape(node.shape),
        ranges,
        star_ranges(group.last.ambient),
        _describe_decision(group.last),
        ", ".join(f"#{number}" for number, _ in drawn.index.find_computing(node.id)),
        drawn.places.format(node.line, brief=True),
    )


def _describe_decision(item: Item) -> str:
    parts: list[str] = []
    if item.node.realized is not None:
        parts.append(item.node.realized.reason)
    for buffer in item.buffers:
        made = buffer.bufferize
        lost = "".join(f" {name} NOT closed" for name in buffer.lost)
        closes = f"{SIGNS[buffer.mark]}({', '.join(made.closed_ranges)}) {format_bytes(made.bytes)} {made.outcome}"
        parts.append(closes + lost)
    return "; ".join(parts)


def _join_row(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(shorten(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


STAGE = Stage(
    title="range map",
    build=build_range_graph,
    # from level 2 on, nodes with different ranges would be joined
    last_level=1,
    # the columns have heads
    legend={},
    sample="row",
    extra_kinds=frozenset({"row-head"}),
    # a reader looks at a part of a table
    most=600,
    pleasant=200,
    level_notes=("", "repeated layers"),
)
