"""A drawing as data: nodes, edges, clusters and a legend. It does not know Graphviz or what the drawing shows."""

import heapq
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.failure import Failure
from vmapdbg.model.vocabulary import EdgeKind, Mark, StageName

COMMON: Mark = "common"
REMOVED: Mark = "removed"
ADDED: Mark = "added"
SIGNS = {COMMON: "", REMOVED: "- ", ADDED: "+ "}
PREFIXES = {COMMON: "", REMOVED: "before", ADDED: ""}  # prefixes of ids in the SVG: the two sides share numbers

BUFFERIZES = frozenset({"kept", "removed"})
"""The kinds of nodes that are a BUFFERIZE in the tensor graph, next to the node that it belongs to."""
BUFFER_KINDS = BUFFERIZES | {"buffer"}
"""The kinds of nodes that are buffers."""
_NOT_COUNTED: dict[StageName, frozenset[str]] = {"tensor": BUFFERIZES, "ranges": frozenset({"row-head"})}
"""The kinds of nodes of a stage that show nothing that another node does not show."""

# Okabe and Ito's colours that can be read as text on white. No colour says anything that the text does not say.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#8C6D00", "#3B7FB0", "#6B4C9A", "#555555")


class GraphError(Failure):
    """A graph cannot be drawn or written."""


@dataclass(frozen=True)
class GraphNode:
    """A node of the drawing.

    `id` is the id in the SVG: `node7` is node 7 of the capture, `bufferize7` its BUFFERIZE, `kernel0` a kernel.
    `kind` chooses the shape. `lines` are the label, title first. `members` are the ids of the capture's nodes that it
    shows. `scope` is the id of its cluster. `alert` draws it in red. `realized` fills it. `weight` from 0 to 1 shades
    it by its share of the work."""

    id: str
    kind: str
    lines: tuple[str, ...]
    tooltip: str = ""
    members: tuple[int, ...] = ()
    scope: str | None = None
    mark: Mark = COMMON
    alert: bool = False
    realized: bool = False
    weight: float = 0.0


@dataclass(frozen=True)
class GraphEdge:
    """An arrow. `kind` is `data`, `kept` (out of a buffer), `removed` (of a removed BUFFERIZE) or `reference`."""

    tail: str
    head: str
    label: str = ""
    tooltip: str = ""
    kind: EdgeKind = "data"
    mark: Mark = COMMON


@dataclass(frozen=True)
class GraphCluster:
    """A frame around nodes, inside the frame `parent`; `range` gives its colour."""

    id: str
    parent: str | None
    title: str
    range: str


@dataclass(frozen=True)
class LegendEntry:
    """A sample in the legend, drawn like a node of that kind and mark."""

    kind: str
    text: str
    mark: Mark = COMMON
    alert: bool = False
    realized: bool = False


@dataclass(frozen=True)
class Graph:
    """A drawing. `range_colours` has the colour of each vmap range; `folded` counts the nodes not drawn, by reason.
    `notes` are for the user, one line each."""

    schema: Literal[1] = field(default=SCHEMA, kw_only=True)
    kind: Literal["graph"] = field(default="graph", kw_only=True)
    stage: StageName
    title: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    clusters: tuple[GraphCluster, ...]
    legend: tuple[LegendEntry, ...]
    range_colours: dict[str, str]
    folded: dict[str, int]
    notes: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether its nodes are the rows of a table."""
        return bool(self.nodes) and all(node.kind in ("row", "row-head") for node in self.nodes)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The ends of each edge: tail and head."""
        return [(edge.tail, edge.head) for edge in self.edges]

    def count_drawn(self) -> int:
        """Returns how many nodes show nodes of the capture (or kernels and buffers)."""
        not_counted = _NOT_COUNTED.get(self.stage, frozenset())
        return sum(node.kind not in not_counted for node in self.nodes)


# *** rows


Links = dict[str, dict[str, None]]


def connect_nodes(names: Collection[str], pairs: Iterable[tuple[str, str]]) -> tuple[Links, Links]:
    """Returns what each node reads, and what reads each: `tails` and `heads`, in the order of the (tail, head)."""
    tails, heads = ({name: dict[str, None]() for name in names} for _ in range(2))
    for tail, head in pairs:
        if tail != head:
            tails[head][tail] = None
            heads[tail][head] = None
    return tails, heads


def measure_ranks(graph: Graph) -> dict[str, int]:
    """Returns the row of each node: every edge points down, and a node is as far down as its readers allow."""
    tails, heads = connect_nodes([node.id for node in graph.nodes], graph.pairs)
    order = sort_names(tails, heads)
    highest, lowest = dict[str, int](), dict[str, int]()
    for name in order:
        highest[name] = max((highest.get(tail, 0) + 1 for tail in tails[name]), default=0)
    for name in reversed(order):
        lowest[name] = min((lowest.get(head, highest[name] + 1) - 1 for head in heads[name]), default=highest[name])
    return lowest


def sort_names(tails: Mapping[str, Collection[str]], heads: Mapping[str, Collection[str]]) -> list[str]:
    """Returns the names of nodes, sources first, else in their order: `tails` are what each reads."""
    names = list(tails)
    place = {name: number for number, name in enumerate(names)}
    waiting = {name: len(sources) for name, sources in tails.items()}
    ready = [place[name] for name, count in waiting.items() if count == 0]
    order: list[str] = []
    while ready:
        order.append(names[heapq.heappop(ready)])
        for head in heads[order[-1]]:
            waiting[head] -= 1
            if waiting[head] == 0:
                heapq.heappush(ready, place[head])
    # kernels of two sides drawn over each other can make a circle
    return list(dict.fromkeys([*order, *waiting]))


# *** parts of a graph


def measure_steps(graph: Graph, centre: Iterable[str]) -> dict[str, int]:
    """Returns how many edges each connected node is from `centre`, either way, near nodes first. A step to a BUFFERIZE
    does not count. In a table, the next row is one step away."""
    near: dict[str, list[str]] = defaultdict(list)
    for tail, head in pairwise(node.id for node in graph.nodes[1:]) if graph.is_table else graph.pairs:
        near[tail].append(head)
        near[head].append(tail)
    free = {node.id for node in graph.nodes if node.kind in BUFFERIZES}
    steps = dict.fromkeys(centre, 0)
    queue = deque(steps)
    while queue:
        name = queue.popleft()
        for other in near[name]:
            if other not in steps and other in free:
                steps[other] = steps[name]
                queue.appendleft(other)
            elif other not in steps:
                steps[other] = steps[name] + 1
                queue.append(other)
    return steps


def list_components(graph: Graph) -> list[set[str]]:
    """Returns the connected parts of a graph as sets of ids, in the order of the graph."""
    found: list[set[str]] = []
    seen: set[str] = set()
    for node in graph.nodes:
        if node.id not in seen:
            found.append(set(measure_steps(graph, [node.id])))
            seen |= found[-1]
    return found


def keep_nodes(graph: Graph, names: Collection[str]) -> Graph:
    """Returns the part of a graph that has these nodes."""
    names = set(names)
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
