"""Repeated runs of kernels, as the layers of a network have them, drawn once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_ids
from vmapdbg.page.graph.fold import find_repeats
from vmapdbg.page.graph.gather import Gathered
from vmapdbg.page.graph.model import BUFFERS, Graph, GraphNode

_REPEATED = "repeated kernels and buffers"


def fold_kernels(graph: Graph) -> Gathered:
    """Returns the graph with the repeated runs of kernels, and the buffers between them, drawn once.

    The box of the others has the last of them inside, which is like each.
    """
    inside: dict[str, tuple[str, ...]] = {}
    while (repeated := _fold_longest_run(graph)) is not None:
        graph = repeated.graph
        inside |= repeated.inside
    return Gathered(graph, inside)


def _fold_longest_run(graph: Graph) -> Gathered | None:
    """Returns the graph with the longest repeated run drawn once, None where no run is repeated."""
    kernels = [node for node in graph.nodes if node.kind in ("kernel", "repeat")]
    found = find_repeats([_describe(node) for node in kernels])
    if found is None:
        return None
    start, period, count = found
    copies = kernels[start + period : start + period * count]
    inside = {node.id for node in copies}
    inside |= _find_inner_buffers(graph, inside)
    newest = {node.id for node in copies[-period:]}
    newest |= _find_inner_buffers(graph, newest)
    known = {node.id: node for node in graph.nodes}
    last = copies[-1]
    times = format_plural(count - 1, "more time", "more times")
    lines = (f"the {format_plural(period, 'kernel')} before, {times}", f"{copies[0].lines[0]} to {last.lines[0]}")
    members = tuple(sorted({number for name in inside for number in known[name].members}))
    merged = GraphNode(last.id, "repeat", lines, f"{lines[0]}\nnodes {format_ids(members)}", members, None, last.mark)
    inside.discard(last.id)
    nodes = tuple(merged if node.id == last.id else node for node in graph.nodes if node.id not in inside)
    names = {name: name for name in known} | dict.fromkeys(inside, last.id)
    moved = [replace(edge, tail=names[edge.tail], head=names[edge.head]) for edge in graph.edges]
    edges = tuple(dict.fromkeys(edge for edge in moved if edge.tail != edge.head))
    folded = graph.folded.get(_REPEATED, 0) + len(inside)
    return Gathered(replace(graph, nodes=nodes, edges=edges, folded={_REPEATED: folded}), {last.id: tuple(newest)})


def _describe(node: GraphNode) -> tuple[object, ...]:
    """What two kernels have in common that are the same one of two layers."""
    if node.kind == "repeat":
        return (node.id,)
    return (*node.lines[0].split(" ")[1:], *node.lines[1:-1], node.mark)


def _find_inner_buffers(graph: Graph, inside: set[str]) -> set[str]:
    """The buffers that only these kernels touch, or that they both write and read."""
    writing: dict[str, set[str]] = defaultdict(set)
    reading: dict[str, set[str]] = defaultdict(set)
    for edge in graph.edges:
        writing[edge.head].add(edge.tail)
        reading[edge.tail].add(edge.head)
    found: set[str] = set()
    for node in graph.nodes:
        if node.kind in BUFFERS:
            touching = writing[node.id] | reading[node.id]
            both = writing[node.id] & inside and reading[node.id] & inside
            if both or (touching and touching <= inside):
                found.add(node.id)
    return found
