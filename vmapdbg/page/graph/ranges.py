"""The range map as a table: one line for each node, outputs last, folded as the tensor graph is."""

from __future__ import annotations

from collections.abc import Sequence

from vmapdbg.page.format import format_bytes, format_shape
from vmapdbg.page.graph.groups import LEVEL_NOTES, Group, fold_items
from vmapdbg.page.graph.items import DrawnSchedule, Item, Stage, collect_items, colour_ranges
from vmapdbg.page.graph.labels import describe_repeat, join_ranges, make_tooltip, shorten, star_ranges
from vmapdbg.page.graph.model import REMOVED, SIGNS, Graph, GraphNode
from vmapdbg.page.graph.tensor import name_node

HEADS = ("id", "op", "shape", "ranges in -> out", "ambient", "decision and buffer", "kernel", "line")
_WIDEST = (12, 34, 22, 46, 14, 90, 18, 26)


def build_range_graph(after: DrawnSchedule, before: DrawnSchedule | None, level: int, title: str) -> Graph:
    """Returns one row a node: the label's only line is the row, in columns of a fixed width."""
    folding = fold_items(collect_items(after, before), level)
    sides = {REMOVED: before or after}
    table = [_make_row(group, sides.get(group.last.mark, after)) for group in folding.groups]
    columns = zip(HEADS, *table, strict=True)
    widths = [min(most, max(map(len, column))) for most, column in zip(_WIDEST, columns, strict=True)]
    nodes = [GraphNode("head", "row-head", (_join_row(HEADS, widths),), "the columns")]
    for group, row in zip(folding.groups, table, strict=True):
        nodes.append(_draw_row(group, _join_row(row, widths), after))
    return Graph("ranges", title, tuple(nodes), (), (), (), colour_ranges(after, before), folding.folded)


def _draw_row(group: Group, line: str, drawn: DrawnSchedule) -> GraphNode:
    last = group.last
    alert = any(buffer.lost for buffer in last.buffers if buffer.mark != REMOVED or last.mark == REMOVED)
    members = tuple(item.node.id for item in group.items)
    realized = last.node.realized is not None
    tip = make_tooltip(group, drawn)
    return GraphNode(name_node(last), "row", (line,), tip, members, None, last.mark, alert, realized)


def _make_row(group: Group, drawn: DrawnSchedule) -> Sequence[str]:
    node = group.last.node
    ranges = join_ranges(node.out_ranges)
    if group.kind == "repeat":
        times, nodes = describe_repeat(group)
        return (str(node.id), times, "", nodes, "", "", "", "")
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
        ", ".join(f"#{number}" for number, kernel in enumerate(drawn.schedule.kernels) if node.id in kernel.nodes),
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


def find_rows(graph: Graph, centre: Sequence[str], depth: int) -> set[str]:
    """Returns the ids of the rows at most `depth` rows from `centre`, and of the head."""
    rows = {node.id: row for row, node in enumerate(graph.nodes)}
    near = {name for name, row in rows.items() if any(abs(row - rows[middle]) <= depth for middle in centre)}
    return near | {"head"}


STAGE = Stage(
    title="range map",
    build=build_range_graph,
    # from level 2 on, nodes with different ranges would be joined
    last_level=1,
    find_near=find_rows,
    # the columns have heads
    add_legend=lambda graph: graph,
    extra_kinds=frozenset({"row-head"}),
    # a reader looks at a part of a table
    most=600,
    pleasant=600,
    level_notes=LEVEL_NOTES,
)
