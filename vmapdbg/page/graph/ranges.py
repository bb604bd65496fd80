"""The range map as a table: one line for each node, outputs last, folded as the tensor graph is."""

from collections.abc import Sequence
from dataclasses import replace

from vmapdbg.page.format import format_bytes, format_shape
from vmapdbg.page.graph.fold import shorten
from vmapdbg.page.graph.items import DrawnPair, DrawnSchedule, Folding, Group, Item, Stage, collect_items
from vmapdbg.page.graph.model import REMOVED, SIGNS, Graph, GraphEdge, GraphNode
from vmapdbg.page.graph.tensor import fold_nodes, join_ranges, list_ids, make_tooltip, name_node, star_ranges

HEADS = ("id", "op", "shape", "ranges in -> out", "ambient", "decision and buffer", "kernel", "line")
_WIDEST = (12, 34, 22, 46, 14, 90, 18, 26)


def build_range_graph(pair: DrawnPair, level: int, title: str) -> Graph:
    """Returns one row a node: the label's only line is the row, in columns of a fixed width."""
    folding = Folding(collect_items(pair), level)
    names = {group.key: name_node(group.last) for group in folding.groups}
    nodes: list[GraphNode] = []
    edges: list[GraphEdge] = []
    for group in folding.groups:
        last, drawn = group.last, pair.side_of(group.last.mark)
        alert = any(buffer.lost for buffer in last.buffers if buffer.mark != REMOVED or last.mark == REMOVED)
        cells, tip, realized = _list_cells(group, drawn), make_tooltip(group, drawn), last.is_realized
        look = last.mark, alert, realized
        nodes.append(GraphNode(names[group.key], group.kind, cells, tip, list_ids(group), None, *look))
        makers = (folding.of.get(source) for item in group.items for source in item.src)
        edges += [GraphEdge(names[maker], nodes[-1].id) for maker in makers if maker is not None]
    graph = Graph("ranges", title, tuple(nodes), tuple(edges), (), (), pair.range_colours, folding.folded)
    return _lay_out(fold_nodes(graph, pair) if level else graph)


def _lay_out(graph: Graph) -> Graph:
    table: list[Sequence[str]] = [HEADS]
    for node in graph.nodes:
        is_box = node.kind in ("repeat", "optimizer")
        table.append((str(node.members[-1]), node.lines[0], "", node.lines[1], *[""] * 4) if is_box else node.lines)
    columns = zip(*table, strict=True)
    widths = [min(most, max(map(len, column))) for most, column in zip(_WIDEST, columns, strict=True)]
    rows = ((shorten(*cell).ljust(cell[1]) for cell in zip(row, widths, strict=True)) for row in table)
    lines = ["  ".join(row).rstrip() for row in rows]
    head = GraphNode("head", "row-head", (lines[0],), "the columns")
    nodes = (replace(node, kind="row", lines=(line,)) for node, line in zip(graph.nodes, lines[1:], strict=True))
    return replace(graph, nodes=(head, *nodes), edges=())


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
        ", ".join(f"#{number}" for number in drawn.index.computing[node.id]),
        drawn.places.format(node.line, brief=True),
    )


def _describe_decision(item: Item) -> str:
    parts = [] if item.node.realized is None else [item.node.realized.reason]
    for buffer in item.buffers:
        made = buffer.bufferize
        lost = "".join(f" {name} NOT closed" for name in buffer.lost)
        closes = f"{SIGNS[buffer.mark]}({', '.join(made.closed_ranges)}) {format_bytes(made.bytes)} {made.outcome}"
        parts.append(closes + lost)
    return "; ".join(parts)


STAGE = Stage(
    title="range map",
    build=build_range_graph,
    legend={},  # the columns have heads
    sample="row",
    most=600,  # a reader looks at a part of a table
    pleasant=200,
    levels=2,  # from level 2 on, nodes with different ranges would be joined
)
