"""A part of a graph that is too large, or of which only something is asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from vmapdbg.page.graph.model import BUFFERIZES, Graph

# A node can be drawn in many groups; these are enough to see what is around it.
_MOST_CENTRES = 4


def find_centre(graph: Graph, around: int | None) -> list[str]:
    """Returns the ids of what stands for a node of the capture, or without one of the outputs."""
    if around is None:
        tails = {edge.tail for edge in graph.edges}
        return [node.id for node in graph.nodes if node.id not in tails]
    shown = [node.id for node in graph.nodes if around in node.members and node.kind not in BUFFERIZES]
    return shown[:_MOST_CENTRES]


def find_near(graph: Graph, centre: Sequence[str], depth: int) -> set[str]:
    """Returns the ids of the nodes at most `depth` edges from `centre`, either way; a BUFFERIZE is no step."""
    near = _find_neighbours(graph)
    free = {node.id for node in graph.nodes if node.kind in BUFFERIZES}
    found: set[str] = set()
    front = set(centre)
    for _ in range(depth + 1):
        front -= found
        found |= front
        steps = {other for name in front for other in near[name]} - found
        buffers = steps & free
        found |= buffers
        front = (steps - free) | ({other for name in buffers for other in near[name]} - found)
    return found


def list_nearest(graph: Graph, centre: Sequence[str], most: int) -> list[str]:
    """Returns the ids of the `most` nodes nearest to `centre`."""
    near = _find_neighbours(graph)
    order = dict.fromkeys(centre[:most])
    queue = list(order)
    for name in queue:
        for other in near[name]:
            if other not in order and len(order) < most:
                order[other] = None
                queue.append(other)
    return list(order)


def _find_neighbours(graph: Graph) -> dict[str, list[str]]:
    near: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        near[edge.tail].append(edge.head)
        near[edge.head].append(edge.tail)
    return near


def keep_nodes(graph: Graph, names: set[str]) -> Graph:
    """Returns the part of a graph that has these nodes."""
    nodes = tuple(node for node in graph.nodes if node.id in names)
    edges = tuple(edge for edge in graph.edges if edge.tail in names and edge.head in names)
    parents = {cluster.id: cluster.parent for cluster in graph.clusters}
    used: set[str] = set()
    for node in nodes:
        scope = node.scope
        while scope is not None and scope not in used:
            used.add(scope)
            scope = parents.get(scope)
    clusters = tuple(cluster for cluster in graph.clusters if cluster.id in used)
    return replace(graph, nodes=nodes, edges=edges, clusters=clusters)
