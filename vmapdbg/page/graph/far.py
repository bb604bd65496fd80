"""Arrows over many rows, said in the box that they lead to instead of drawn.

Those from the forward part of a training step to its gradients would make a drawing three times as wide.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from vmapdbg.page.graph.model import COMMON, SIGNS, Graph, GraphEdge, GraphNode, measure_ranks

_FAR_ROWS = 6
_MOST_NAMED = 6


def name_shortly(node: GraphNode) -> str:
    """Returns what a node is called where another one names it: `#12` of a kernel, else its number."""
    first = node.lines[0].removeprefix(SIGNS[node.mark]).split()[0].rstrip(",")
    if first[0] == "#" or first[0].isdigit():
        return first
    return re.sub(r"\D", "", node.id)


def name_far(graph: Graph) -> Graph:
    """Returns the graph without arrows over many rows: the box that one leads to says what it reads."""
    ranks = measure_ranks(graph)
    known = {node.id: node for node in graph.nodes}
    read: dict[str, list[str]] = defaultdict(list)
    edges: list[GraphEdge] = []
    for edge in graph.edges:
        if ranks[edge.head] - ranks[edge.tail] < _FAR_ROWS or edge.mark != COMMON:
            edges.append(edge)
        else:
            read[edge.head].append(name_shortly(known[edge.tail]))
    nodes = tuple(_say_read(node, read[node.id]) if node.id in read else node for node in graph.nodes)
    return replace(graph, nodes=nodes, edges=tuple(edges))


def _say_read(node: GraphNode, names: list[str]) -> GraphNode:
    said = f"also reads {', '.join(names[:_MOST_NAMED])}"
    if len(names) > _MOST_NAMED:
        said += f" and {len(names) - _MOST_NAMED} more"
    return replace(node, lines=(*node.lines, said), tooltip=f"{node.tooltip}\nalso reads {', '.join(names)}")
