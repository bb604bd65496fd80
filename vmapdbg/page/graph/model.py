"""A drawing as data: nodes, edges, clusters and a legend. It knows no Graphviz and nothing of what it shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.failure import Failure
from vmapdbg.model.vocabulary import EdgeKind, Mark, StageName

COMMON: Mark = "common"
REMOVED: Mark = "removed"
ADDED: Mark = "added"
SIGNS = {COMMON: "", REMOVED: "- ", ADDED: "+ "}
# what the ids in the SVG begin with: a node that only the baseline has may have the number of another one
PREFIXES = {COMMON: "", REMOVED: "before", ADDED: ""}

BUFFERS = frozenset({"buffer", "kept"})
"""The kinds of nodes that are buffers which kernels write and read."""
BUFFERIZES = frozenset({"kept", "removed"})
"""Those that are a BUFFERIZE in a drawing of the tensor graph, beside the node that it is of."""

# Okabe and Ito's colours, those that can be read as text on white; text repeats what each of them says.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#8C6D00", "#3B7FB0", "#6B4C9A", "#555555")


class GraphError(Failure):
    """A graph cannot be drawn or written."""


@dataclass(frozen=True)
class GraphNode:
    """One thing drawn.

    `id` is the id in the SVG: `node7` is node 7 of the capture, `bufferize7` its BUFFERIZE, `kernel0` a kernel.
    `kind` chooses the shape. `lines` are the label, the first one is the title. `members` are
    the capture's node ids that it stands for. `scope` is the id of its cluster. `alert` draws it loudly.
    `realized` fills it. `weight` from 0 to 1 shades it by its share of the work.
    """

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
    """One sample of the legend, drawn as a node of that kind (and mark) would be."""

    kind: str
    text: str
    mark: Mark = COMMON
    alert: bool = False
    realized: bool = False


@dataclass(frozen=True)
class Graph:
    """A drawing. `range_colours` has the colour of each vmap range; `folded` counts the nodes not drawn, by why.
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
        """Whether its nodes are the rows of a table, and not laid out as a graph."""
        return bool(self.nodes) and all(node.kind in ("row", "row-head") for node in self.nodes)


def add_legend(graph: Graph, kinds: Mapping[str, str], sample: str, marks: Collection[str]) -> Graph:
    """Returns the graph with a legend: of `kinds` (kind -> what it is) those that it has, then what colours say.

    `marks` are the marks that are seen; `sample` is the kind of node that shows them.
    """
    seen = {node.kind for node in graph.nodes}
    entries = [LegendEntry(kind, text) for kind, text in kinds.items() if kind in seen]
    if any(node.realized for node in graph.nodes):
        entries.append(LegendEntry(sample, "realized, with the reason", realized=True))
    if any(node.alert for node in graph.nodes if node.kind == "kept"):
        entries.append(LegendEntry("kept", "loses a batch range", alert=True))
    if REMOVED in marks:
        entries.append(LegendEntry(sample, "- only before", REMOVED))
    if ADDED in marks:
        entries.append(LegendEntry(sample, "+ only after", ADDED))
    return replace(graph, legend=tuple(entries))


def choose_colours(names: list[str]) -> dict[str, str]:
    """Returns a colour for each vmap range, the same for the same names; they repeat after eight."""
    return {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(names)}


def measure_ranks(graph: Graph) -> dict[str, int]:
    """Returns the row of each node: every edge points down, and a node stands as far down as its readers let it."""
    tails: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    heads: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        tails[edge.head].append(edge.tail)
        heads[edge.tail].append(edge.head)
    order = sort_names(tails, heads)
    early: dict[str, int] = {}
    for name in order:
        early[name] = max((early.get(tail, 0) + 1 for tail in tails[name]), default=0)
    late: dict[str, int] = {}
    for name in reversed(order):
        late[name] = min((late.get(head, early[name] + 1) - 1 for head in heads[name]), default=early[name])
    return late


def sort_names(tails: Mapping[str, Collection[str]], heads: Mapping[str, Collection[str]]) -> list[str]:
    """Returns the names of nodes, sources first; `tails` are what each reads, `heads` what reads it."""
    waiting = {name: len(sources) for name, sources in tails.items()}
    order = [name for name, count in waiting.items() if count == 0]
    for name in order:
        for head in heads[name]:
            waiting[head] -= 1
            if waiting[head] == 0:
                order.append(head)
    # where kernels of two sides are laid over each other there can be a circle
    return list(dict.fromkeys([*order, *waiting]))
