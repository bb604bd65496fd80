"""Folds a graph into fewer boxes: layers that repeat, boxes that are alike, and boxes that follow each other.

A `Look` says what two nodes have in common. No step adds a circle that the graph does not have.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

from vmapdbg.model.ops import MOVEMENT
from vmapdbg.model.wording import cut_end, format_plural, join_first
from vmapdbg.page.format import format_ids
from vmapdbg.page.graph import model
from vmapdbg.page.graph.items import DrawnSchedule
from vmapdbg.page.graph.model import BUFFER_KINDS, COMMON, SIGNS, Graph, GraphEdge, GraphNode

_LEAST_ALIKE = 3
"""A layer must run this often, and this many alike boxes must be next to each other, to become one box."""
_MOST_COMPARED = 2000
"""With more boxes than this, boxes that are alike are not joined: it takes too long."""
_MOST_TO_SEARCH = 3000
_MOST_NAMED = 6
_LONGEST, _LONGEST_TIP = 44, 600
# these cost nothing: a view, a number, another type
_FREE = MOVEMENT | {"CAST", "CONST"}
_ALONE = frozenset({"vmapin", "vmapout", "repeat", "optimizer"})
"""The kinds of nodes that are never gathered."""
_PASSIVE = BUFFER_KINDS | {"input", "index", "view"}


@dataclass(frozen=True)
class Look:
    """What is known of a node.

    Nodes with equal `copy` are the same node of two layers; a buffer has none. Nodes with equal `likeness` are alike;
    a node without one is never gathered. Nodes of one `place` are joined first, nodes of two `side`s never. A `passive`
    node (a buffer, an input) counts as alike only if the same boxes write and read it.
    """

    copy: Hashable = None
    likeness: Hashable = None
    place: Hashable = None
    side: Hashable = None
    passive: bool = False


@dataclass
class Box:
    """Nodes drawn as one box, by their ids `members`. `times` says how many of each kind are in it, if they are alike.
    `repeats` counts the layers in it, which are copies of the layer above it; `layer` has the members of the last
    copy."""

    key: str
    members: list[str]
    look: Look
    times: int = 1
    repeats: int = 0
    layer: tuple[str, ...] = ()


LookOf = Callable[[GraphNode], Look]
LabelOf = Callable[[Box, Sequence[GraphNode]], GraphNode]
"""Returns the node to draw for a box of several nodes. Its id is the key of the box."""
DescribeNodes = Callable[[Sequence[GraphNode]], Sequence[str]]


class Boxes:
    """The boxes of a graph by key, and which box reads which. At first every node has its own box."""

    def __init__(self, graph: Graph, look: LookOf) -> None:
        self.boxes = {node.id: Box(node.id, [node.id], look(node)) for node in graph.nodes}
        # dicts in the place of sets: their order does not change from run to run
        self.tails, self.heads = model.connect_nodes(graph)
        self.order = {key: number for number, key in enumerate(self.boxes)}

    def _connect(self, tail: str, head: str) -> None:
        if tail != head:
            self.heads[tail][head] = None
            self.tails[head][tail] = None

    def join(self, keys: Collection[str], times: int = 1) -> Box:
        """Makes one box of several, with the key and the place of the last that is not a buffer."""
        members = sorted((member for key in keys for member in self.boxes[key].members), key=self.order.__getitem__)
        first = min(keys, key=self.order.__getitem__)
        last = max(keys, key=lambda key: (self.boxes[key].look.copy is not None, self.order[key]))
        look = self.boxes[first].look
        for other in keys:
            if other != last:
                for head in self.heads.pop(other):
                    self.tails[head].pop(other)
                    self._connect(last, head)
                for tail in self.tails.pop(other):
                    self.heads[tail].pop(other)
                    self._connect(tail, last)
                del self.boxes[other]
        self.boxes[last] = Box(last, members, look, times)
        return self.boxes[last]

    # *** what repeats

    def join_repeats(self) -> None:
        """Keeps the first copy of each repeated run of boxes, such as a layer, and joins the other copies. The longest
        repetition comes first. Buffers are joined with the copies that use them."""
        while True:
            run = [box for box in self.boxes.values() if box.look.copy is not None]
            found = find_repeats([box.look.copy for box in run])
            if found is None:
                return
            start, period, count = found
            copies = [box.key for box in run[start + period : start + period * count]]
            last = copies[-period:]
            layer = (*last, *self._find_used_only_by(last))
            joined = self.join([*self._find_used_only_by(copies), *copies])
            joined.repeats = count - 1
            joined.layer = layer
            joined.look = Look(copy=joined.key)

    def _find_used_only_by(self, keys: Sequence[str]) -> list[str]:
        """The passive boxes that only these boxes touch, or that they both write and read."""
        users = set(keys)
        found: list[str] = []
        for key, box in self.boxes.items():
            if box.look.passive and box.look.copy is None:
                touching = self.heads[key].keys() | self.tails[key]
                both = self.heads[key].keys() & users and self.tails[key].keys() & users
                if both or (touching and touching <= users):
                    found.append(key)
        return found

    # *** what is alike, next to each other

    def gather(self, most: int) -> None:
        """Joins boxes until at most `most` are left, or no two can be joined without a circle."""
        if len(self.boxes) <= _MOST_COMPARED:
            while self._join_alike():
                pass
        for anywhere in (False, True):
            limit = 2
            while limit < 2 * len(self.order) and len(self.boxes) > most:
                self._join_pairs(most, limit, anywhere)
                limit *= 2

    def _join_alike(self) -> bool:
        """Joins boxes that are alike and do not depend on each other, then the steps of equal chains. Returns whether
        it joined any."""
        groups = self._find_alike()
        for alike in groups:
            self.join(alike, len(alike))
        joined = bool(groups)
        # boxes with equally many alike nodes, if one box reads the other
        while True:
            some = (key for key, box in self.boxes.items() if box.times > 1)
            pair = self._find_joinable((tail, head) for tail in some for head in self.heads[tail])
            if pair is None:
                return joined
            self.join(pair, self.boxes[pair[0]].times)
            joined = True

    def _find_alike(self) -> list[list[str]]:
        """The boxes that are alike, in groups of boxes as far above the last box: these do not depend on each other."""
        heights = model.measure_depths(reversed(model.sort_names(self.tails, self.heads)), self.heads)
        alike: dict[Hashable, list[str]] = defaultdict(list)
        for key, box in self.boxes.items():
            if box.look.likeness is None or box.times > 1 or len(box.members) > 1:
                continue
            likeness: tuple[Hashable, ...] = (box.look.likeness, box.look.side, heights[key])
            if box.look.passive:
                likeness += (frozenset(self.heads[key]), frozenset(self.tails[key]))
            alike[likeness].append(key)
        return [group for group in alike.values() if len(group) >= _LEAST_ALIKE]

    # *** what follows each other

    def _join_pairs(self, most: int, limit: int, anywhere: bool) -> None:
        """Joins each box with a reader or a source while that makes no circle: boxes of up to `limit` nodes, and of one
        place unless `anywhere`."""
        for key in model.sort_names(self.tails, self.heads):
            if len(self.boxes) <= most:
                return
            if key in self.boxes:
                pairs = chain(product([key], self.heads[key]), product(self.tails[key], [key]))
                pair = self._find_joinable(pairs, limit, anywhere)
                if pair is not None:
                    self.join(pair)

    def _find_joinable(
        self, pairs: Iterable[tuple[str, str]], limit: int | None = None, anywhere: bool = True
    ) -> tuple[str, str] | None:
        """Returns the first of some pairs (tail, head) that may become one box."""
        for tail, head in pairs:
            first, second = self.boxes[tail], self.boxes[head]
            if first.look.likeness is None or second.look.likeness is None:
                continue
            if first.look.side != second.look.side or first.times != second.times:
                continue
            if limit is not None and len(first.members) + len(second.members) > limit:
                continue
            # then no other way leads from one to the other, which would become a circle
            is_only_way = len(self.heads[tail]) == 1 or len(self.tails[head]) == 1
            if is_only_way and (anywhere or first.look.place == second.look.place):
                return tail, head
        return None


def find_repeats(sequence: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """Returns (start, period, count) of the repetition that saves most entries, None without three copies."""
    numbers: dict[Hashable, int] = {}
    codes = [numbers.setdefault(entry, len(numbers)) for entry in sequence[:_MOST_TO_SEARCH]]
    best: tuple[int, int, int] | None = None
    saved = 0
    for period in range(2, len(codes) // _LEAST_ALIKE + 1):
        start = 0
        for end in range(period, len(codes) + 1):
            if end < len(codes) and codes[end] == codes[end - period]:
                continue
            # the run of equal copies ends here
            count = (end - start) // period
            if count >= _LEAST_ALIKE and (count - 2) * period > saved:
                best, saved = (start, period, count), (count - 2) * period
            start = end - period + 1
    return best


# *** boxes of a drawing


@dataclass(frozen=True)
class Folded:
    """A graph with boxes of several nodes. `contents` has the ids of the nodes to draw if such a box is opened."""

    graph: Graph
    contents: dict[str, tuple[str, ...]]


def fold_graph(
    graph: Graph, look: LookOf, label: LabelOf, why: str, join: Callable[[Boxes], object] = Boxes.join_repeats
) -> Folded:
    """Returns the graph after some of its nodes were joined; by default, with each repeated layer drawn once. The nodes
    that are gone are counted under `why`."""
    boxes = Boxes(graph, look)
    join(boxes)
    nodes = {node.id: node for node in graph.nodes}
    joined = {key: box for key, box in boxes.boxes.items() if len(box.members) > 1}
    box_of = {member: box.key for box in boxes.boxes.values() for member in box.members}
    shown = {key: node for key, node in nodes.items() if key in boxes.boxes}
    for key, box in joined.items():
        shown[key] = label(box, [nodes[member] for member in box.members])
    edges: dict[tuple[str, ...], GraphEdge] = {}
    for edge in graph.edges:
        moved = replace(edge, tail=box_of[edge.tail], head=box_of[edge.head])
        key = (moved.tail, moved.head, edge.kind, edge.mark)
        if moved.tail not in joined and moved.head not in joined:
            key = (*key, edge.label)
        elif key in edges:
            # several edges of a box become one without a label
            moved = replace(moved, label="", tooltip="")
        if moved.tail != moved.head:
            edges[key] = moved
    contents = {key: box.layer or tuple(box.members) for key, box in joined.items()}
    folded = replace(graph, nodes=tuple(shown.values()), edges=tuple(edges.values()))
    gone = graph.count_drawn() - folded.count_drawn()
    if gone:
        folded = replace(folded, folded={**graph.folded, why: gone})
    return Folded(folded, contents)


def gather_boxes(
    graph: Graph, drawn: DrawnSchedule, describe: DescribeNodes, most: int, buffer_kind: str = ""
) -> Folded:
    """Returns the graph with about `most` boxes: nodes that are alike, then nodes that follow each other. `describe`
    returns lines about the nodes of a box. A box of buffers has the `buffer_kind`, by default the kind of its first
    buffer. A box names what it reads from far above; no edge is drawn for that."""

    def look(node: GraphNode) -> Look:
        if node.alert or node.kind in _ALONE:
            return Look()
        made = drawn.list_nodes(node.members)
        place = next((each.line for each in reversed(made)), None)
        side = node.mark, node.scope
        if node.kind in _PASSIVE:
            return Look(None, node.kind, place, side, passive=True)
        # the number of each op, whatever its shapes
        work = frozenset(Counter(each.op for each in made if each.op not in _FREE).items())
        return Look(node.id, (node.kind, place, work), place, side)

    def label(box: Box, nodes: Sequence[GraphNode]) -> GraphNode:
        return _label_box(box, nodes, describe, buffer_kind)

    gathered = fold_graph(graph, look, label, "in boxes with others", lambda boxes: boxes.gather(most))
    return replace(gathered, graph=name_far_sources(gathered.graph))


def fold_optimizer(graph: Graph, is_step: Callable[[GraphNode], bool], describe: DescribeNodes) -> Folded:
    """Returns the graph with the optimizer as one box: its nodes (`is_step`), and the buffers that nothing else reads.
    A node on which others depend stays, so the box closes no circle. What differs between two sides stays, too."""
    nodes = {node.id: node for node in graph.nodes}
    tails, heads = model.connect_nodes(graph)
    steps = {key for key, node in nodes.items() if node.kind not in _PASSIVE and is_step(node)}
    inside: set[str] = set()
    for key in reversed(model.sort_names(tails, heads)):
        read, readers, node = tails[key].keys(), heads[key].keys(), nodes[key]
        belongs = key in steps or (node.kind in _PASSIVE and (readers or (read and read <= steps)))
        if belongs and readers <= inside and node.mark == COMMON and node.scope is None and not node.alert:
            inside.add(key)

    def label(box: Box, made: Sequence[GraphNode]) -> GraphNode:
        shown = [node for node in made if node.id in steps]
        word, members = ("kernel" if shown[0].kind == "kernel" else "node"), list_members(made)
        lines = (f"the optimizer: {format_plural(len(shown), word)}", *filter(None, describe(shown)))
        weight = min(sum(node.weight for node in made), 1.0)
        return GraphNode(box.key, "optimizer", lines, f"nodes {format_ids(members)}", members, weight=weight)

    if len(inside & steps) < 2:
        return Folded(graph, {})
    together = [key for key in nodes if key in inside]
    return fold_graph(graph, lambda node: Look(), label, "of the optimizer", lambda boxes: boxes.join(together))


def label_layers(box: Box, nodes: Sequence[GraphNode]) -> GraphNode:
    """Returns the node of the copies of a layer."""
    kernels = [node for node in nodes if node.kind == "kernel"]
    members = list_members(nodes)
    layers = f"layers 2-{box.repeats + 1}: the same"
    if kernels:
        count = format_plural(len(kernels) // box.repeats, "kernel")
        lines = (f"{layers} {count} as layer 1", f"{kernels[0].lines[0]} to {kernels[-1].lines[0]}")
    else:
        lines = (f"{layers} as layer 1", f"{format_plural(len(members), 'node')}, {members[0]} to {members[-1]}")
    scope, mark = nodes[-1].scope, nodes[-1].mark
    return GraphNode(box.key, "repeat", lines, f"{lines[0]}\nnodes {format_ids(members)}", members, scope, mark)


def _label_box(box: Box, nodes: Sequence[GraphNode], describe: DescribeNodes, buffer_kind: str) -> GraphNode:
    """Returns the node of a box that was gathered."""
    buffers = [node for node in nodes if node.kind in BUFFER_KINDS]
    shown = [node for node in nodes if node.kind not in BUFFER_KINDS]
    members = list_members(nodes)
    if len(shown) == 1:
        held = shorten(f"with {', '.join(node.lines[0] for node in buffers)}")
        return replace(shown[0], id=box.key, lines=(*shown[0].lines, held), members=members)
    kind, word = "folded", "node"
    if not shown:
        kind, word, shown = buffer_kind or buffers[0].kind, "buffer", buffers
    ids = list_members(shown)
    lines = [f"{ids[0]} and {format_plural(len(ids) - 1, f'more {word}')}"]
    if shown[0].kind == "kernel":
        lines = [f"{_name_shortly(shown[0])} and {format_plural(len(shown) - 1, 'more kernel')}"]
    kinds = len(shown) // box.times
    if box.times > 1 and kinds == 1:
        lines.append(f"{box.times} of one kind")
    elif box.times > 1:
        lines.append(f"{box.times} of each of {kinds} kinds")
    lines += filter(None, describe(shown))
    tip = f"{cut_end(', '.join(node.lines[0] for node in shown), _LONGEST_TIP)}\nnodes {format_ids(members)}"
    weight = min(sum(node.weight for node in nodes), 1.0)
    return GraphNode(box.key, kind, tuple(lines), tip, members, nodes[0].scope, nodes[0].mark, weight=weight)


def list_members(nodes: Iterable[GraphNode]) -> tuple[int, ...]:
    """Returns the ids of the capture's nodes that some nodes show."""
    return tuple(sorted({number for node in nodes for number in node.members}))


def shorten(text: str, longest: int = _LONGEST) -> str:
    """Returns `text` on one line; if it is too long, `...` replaces its end."""
    return cut_end(" ".join(text.split()), longest)


def _name_shortly(node: GraphNode) -> str:
    """`#12` for a kernel, else the number of the node."""
    first = node.lines[0].removeprefix(SIGNS[node.mark]).split()[0].rstrip(",")
    if first[0] == "#" or first[0].isdigit():
        return first
    return re.sub(r"\D", "", node.id)


def name_far_sources(graph: Graph, rows: int = 6) -> Graph:
    """Replaces edges over many rows by a line in the box that reads: `also reads #3, #5`. The edges from the forward
    part of a training step to its gradients would make a drawing three times as wide."""
    ranks = model.measure_ranks(graph)
    known = {node.id: node for node in graph.nodes}
    names, edges = defaultdict[str, list[str]](list), list[GraphEdge]()
    for edge in graph.edges:
        if edge.mark == COMMON and ranks[edge.head] - ranks[edge.tail] >= rows:
            names[edge.head].append(_name_shortly(known[edge.tail]))
        else:
            edges.append(edge)
    for name, read in names.items():
        node, line = known[name], f"also reads {join_first(read, _MOST_NAMED)}"
        known[name] = replace(node, lines=(*node.lines, line))
    return replace(graph, nodes=tuple(known.values()), edges=tuple(edges))
