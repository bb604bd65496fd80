"""Folds a graph into fewer boxes: the user's functions, as far down the tree of calls as the drawing has room. Layers
that repeat are drawn once, and the optimizer is one box. No step adds a circle that the graph does not have."""

import heapq
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from vmapdbg.model.capture import Node
from vmapdbg.model.wording import cut_end, format_known, format_plural, join_first
from vmapdbg.page.format import format_ids
from vmapdbg.page.functions import Key, path_of
from vmapdbg.page.graph import model
from vmapdbg.page.graph.items import DrawnPair
from vmapdbg.page.graph.model import BUFFER_KINDS, COMMON, SIGNS, Graph, GraphEdge, GraphNode

_LEAST_ALIKE = 3
"""A layer must run this often to be drawn once."""
_MOST_TO_SEARCH = 3000
_FEW = 3
"""With a third of the boxes that a drawing may have, it has room for the nodes of a line. Three boxes are too few."""
_MOST_NAMED = 4
_LONGEST, LONGEST_TIP = 44, 600
_ALONE = frozenset({"vmapin", "vmapout"})
"""The kinds of nodes that are never in a box with others."""
_PASSIVE = BUFFER_KINDS | {"input", "index"}
"""The kinds of nodes that belong to the node that makes them, else to their first reader."""
_PHASE = 2  # the steps of a path down to the phase of a node


@dataclass(frozen=True)
class Subject:
    """What is known of the nodes of a graph: the capture's node of a drawn node, what the same node of two layers
    shares (`look`), and what a box says of its nodes (`describe`)."""

    pair: DrawnPair
    node_of: Callable[[GraphNode], Node | None]
    look: Callable[[GraphNode], Hashable]
    describe: Callable[[Sequence[GraphNode]], Sequence[str]]

    def list_steps(self, node: GraphNode) -> tuple[Hashable, ...]:
        """Returns the path to a node: its side and scope, phase, functions from the outermost on, line, the node."""
        made = self.node_of(node)
        if node.alert or node.kind in _ALONE or made is None:
            return (node.mark, node.scope), made and made.phase, node.id
        calls = path_of(self.pair.side_of(node.mark).capture, made) or (made.line,)
        return (node.mark, node.scope), made.phase, *calls, node.id


@dataclass(eq=False)
class Box:
    """Nodes drawn as one box (ids, without buffers), which share `depth` steps of their paths. For repeated layers,
    `copies` counts them and `layer` has the last. `is_part`: only some of a function's or line's nodes."""

    members: list[str]
    depth: int = 0
    copies: int = 0
    layer: Sequence[str] = ()
    is_part: bool = False


@dataclass(frozen=True)
class Folded:
    """A graph with boxes: `members` has all node ids in a box, `contents` the ids of nodes to draw if it is opened."""

    graph: Graph
    members: dict[str, list[str]]
    contents: dict[str, list[str]]


def fold_graph(graph: Graph, subject: Subject, most: int | None = None) -> Folded:
    """Returns the graph with at most `most` boxes if a level of the tree of functions has that size; a box names what
    it reads from far above, without an edge. If None, folds only layers and the optimizer."""
    tree = _Tree(graph, subject)
    boxes = [(box, tree.list_nodes(box.members)) for box in tree.list_boxes(most)]
    if most is not None:
        folded = tree.draw(boxes)
        return replace(folded, graph=name_far_sources(folded.graph))
    # a node and its buffers are drawn one by one
    singles = [(Box([name]), [name]) for box, names in boxes if len(box.members) == 1 for name in names]
    return tree.draw([*((box, names) for box, names in boxes if len(box.members) > 1), *singles])


class _Tree:
    """The nodes of a graph by path. The `owner` of a buffer is its last writer; of an input, its first reader."""

    def __init__(self, graph: Graph, subject: Subject) -> None:
        self.graph, self.subject = graph, subject
        self.nodes = {node.id: node for node in graph.nodes}
        tails, heads = model.connect_nodes(self.nodes, graph.pairs)
        order = model.sort_names(tails, heads)
        place = {name: number for number, name in enumerate(order)}
        self.owner: dict[str, str] = {}
        self.held: dict[str, list[str]] = defaultdict(list)
        for name in order:
            node, near = self.nodes[name], sorted(tails[name] or heads[name], key=place.__getitem__)
            owner = self.nodes[near[-1 if tails[name] else 0]] if near else node
            is_held = node.kind in _PASSIVE and not node.alert
            if is_held and owner.mark == node.mark and owner.kind not in _PASSIVE:
                self.owner[name] = owner.id
                self.held[owner.id].append(name)
            else:
                self.owner[name] = name
        self.order = [name for name in order if self.owner[name] == name]
        self.paths = {name: subject.list_steps(self.nodes[name]) for name in self.order}
        self.tails: dict[str, dict[str, None]] = {name: {} for name in self.order}
        for edge in graph.edges:
            tail, head = self.owner[edge.tail], self.owner[edge.head]
            # a buffer that comes in makes no reader wait for another one
            if tail != head and (edge.tail == tail or tails[edge.tail]):
                self.tails[head][tail] = None

    def list_nodes(self, members: Iterable[str]) -> list[str]:
        """Returns some nodes and their buffers."""
        return [each for name in members for each in (name, *self.held.get(name, ()))]

    def list_boxes(self, most: int | None) -> list[Box]:
        """Returns boxes; none reads a later one. Opens the heaviest until there are `most`, lines only among few."""
        boxes, refused = [Box(self.order)], list[Box]()
        waiting, numbers = list[tuple[float, int, Box]](), itertools.count()

        def wait_for(some: Iterable[Box]) -> None:
            for box in some:
                if len(box.members) > 1 and not box.copies and not self._is_optimizer(box):
                    weight = sum(self.nodes[name].weight + 1 / len(self.order) for name in box.members)
                    heapq.heappush(waiting, (-weight, next(numbers), box))

        wait_for(boxes)
        while waiting:
            box = heapq.heappop(waiting)[-1]
            below, at = self._open(box), boxes.index(box)
            is_line = all(each.copies or each.depth == len(self.paths[each.members[0]]) for each in below)
            if most is not None and len(boxes) + len(below) - 1 > (most // _FEW if is_line else most):
                refused.append(box)
                continue
            boxes[at : at + 1] = below
            wait_for(below)
        if most is not None and refused and len(boxes) <= min(_FEW, most // 2):
            at = boxes.index(refused[0])
            boxes[at : at + 1] = self._join_parts(refused[0], most - len(boxes))
        return boxes if self.order else []

    def _open(self, box: Box) -> list[Box]:
        """Returns the boxes of the next level on which a box of several nodes has several."""
        groups, depth = [box.members], box.depth
        while len(groups) == 1:
            groups = self._split(box.members, depth)
            depth += 1
        return self._join_layers([Box(group, depth) for group in groups], box.depth)

    def _join_parts(self, box: Box, most: int) -> list[Box]:
        """Returns `most` parts of a box that is too large to be opened: what follows each other in it is one part."""
        below, parts, room = self._open(box), list[Box](), 0
        for each in below:
            is_alone = self.nodes[each.members[0]].alert or self.nodes[each.members[0]].kind in _ALONE
            if room and not is_alone:
                parts[-1].members += each.members
                room -= 1
            else:
                parts.append(Box([*each.members], box.depth, is_part=True))
                room = 0 if is_alone else math.ceil(len(below) / most) - 1
        return parts

    def _split(self, members: Iterable[str], depth: int) -> list[list[str]]:
        """Groups nodes by their step at `depth`: as few groups as possible without a circle; none reads a later one."""
        groups, of = list[list[str]](), dict[str, int]()
        # the groups above each group as a bit set, and the groups of each step
        above, alike = list[int](), defaultdict[Hashable, list[int]](list)
        for name in members:
            sources = {of[tail] for tail in self.tails[name] if tail in of}
            reads = 0
            for source in sources:
                reads |= above[source] | 1 << source
            known = alike[self.paths[name][depth]]
            # another group between would read this one and be read by it
            fits = (one for one in reversed(known) if not any(above[s] >> one & 1 for s in sources if s != one))
            of[name] = number = next(fits, len(groups))
            if number == len(groups):
                groups.append([name])  # no group reads it yet
                above.append(reads)
                known.append(number)
                continue
            groups[number].append(name)
            added = above[number] | reads & ~(1 << number)
            if added != above[number]:
                for other, bits in enumerate(above):
                    if other == number or bits >> number & 1:
                        above[other] |= added
        firsts = {name: groups[number][0] for name, number in of.items()}
        pairs = ((firsts[tail], firsts[name]) for name in of for tail in self.tails[name] if tail in of)
        links = model.connect_nodes([group[0] for group in groups], pairs)
        return [groups[of[name]] for name in model.sort_names(*links)]

    def _join_layers(self, boxes: list[Box], depth: int) -> list[Box]:
        """Keeps the first copy of each repeated run of boxes (a layer) and joins the others, longest run first."""
        looks: list[Hashable] = [frozenset(self._count_looks(box.members).items()) for box in boxes]
        while found := find_repeats(looks):
            start, period, count = found
            end, last = start + period * count, start + period * (count - 1)
            rest = [name for box in boxes[start + period : end] for name in box.members]
            layer = [name for box in boxes[last:end] for name in box.members]
            joined = Box(rest, depth, count - 1, layer)
            boxes[start + period : end], looks[start + period : end] = [joined], [id(joined)]
        return boxes

    def _count_looks(self, members: Iterable[str]) -> Counter[Hashable]:
        return Counter(self.subject.look(self.nodes[name]) for name in members)

    def _is_optimizer(self, box: Box) -> bool:
        return box.depth == _PHASE and self.paths[box.members[0]][1] == "optimizer"

    def draw(self, boxes: Sequence[tuple[Box, list[str]]]) -> Folded:
        """Returns the graph with a node for each box; its id is the id of the box's last member."""
        members = {box.members[-1]: names for box, names in boxes}
        box_of = {name: key for key, names in members.items() for name in names}
        shown = {box.members[-1]: self._label(box, [self.nodes[name] for name in names]) for box, names in boxes}
        edges: dict[tuple[str, ...], GraphEdge] = {}
        for edge in self.graph.edges:
            tail, head = box_of[edge.tail], box_of[edge.head]
            key = (tail, head, edge.kind, edge.mark)
            moved = replace(edge, tail=tail, head=head)
            if len(members[tail]) == len(members[head]) == 1:
                key = (*key, edge.label)
            elif key in edges:
                moved = replace(moved, label="", tooltip="")  # several edges of a box become one without a label
            # a buffer that comes in and is in the box of its first reader is not from there
            if tail != head and (self.owner[edge.tail] in self.tails[self.owner[edge.head]] or edge.tail == tail):
                edges[key] = moved
        nodes = tuple(shown[node.id] for node in self.graph.nodes if node.id in shown)
        folded = replace(self.graph, nodes=nodes, edges=tuple(edges.values()))
        if gone := self.graph.count_drawn() - folded.count_drawn():
            folded = replace(folded, folded={**self.graph.folded, "in boxes of functions or layers": gone})
        several = {box.members[-1]: box for box, _ in boxes if len(box.members) > 1}
        contents = {key: self.list_nodes(box.layer or box.members) for key, box in several.items()}
        return Folded(folded, {key: members[key] for key in several}, contents)

    def _label(self, box: Box, every: Sequence[GraphNode]) -> GraphNode:
        nodes, members = [self.nodes[name] for name in box.members], list_members(every)
        last = nodes[-1]
        if len(nodes) == 1:
            return replace(last, members=members)
        is_kernel = self.graph.stage == "kernels"
        count, noun = (len(nodes), "kernel") if is_kernel else (len(list_members(nodes)), "node")
        title, phase = self._name(box)
        if box.copies:
            kind, same = "repeat", format_plural(count // box.copies, noun)
            lines = [f"{title} layers 2-{box.copies + 1}".strip(), f"the same {same} as layer 1"]
        elif self._is_optimizer(box):
            kind, lines = "optimizer", ["the optimizer", format_plural(count, noun)]
        else:
            repeats = math.gcd(*self._count_looks(box.members).values())
            kind = "folded"
            lines = [title + f" (x{repeats})" * (repeats > 1), format_plural(count, noun) + format_known(", {}", phase)]
        lines += self.subject.describe(nodes)
        names = cut_end(", ".join(node.lines[0] for node in nodes), LONGEST_TIP)
        weight = min(sum(node.weight for node in every), 1.0)
        tip = f"{lines[0]}\n{names}\nnodes {format_ids(members)}"
        shown = tuple(map(shorten, filter(None, lines)))
        alert = any(node.alert for node in nodes)
        return GraphNode(last.id, kind, shown, tip, members, last.scope, last.mark, alert, weight=weight)

    def _name(self, box: Box) -> tuple[str, str | None]:
        """Returns the innermost function or line that all nodes of a box have, and their phase."""
        nodes = [self.nodes[name] for name in box.members]
        drawn = self.subject.pair.side_of(nodes[0].mark)
        made = [node for node in map(self.subject.node_of, nodes) if node is not None]
        phases = {node.phase for node in made}
        ways: Iterable[tuple[Key, ...]] = zip(*(path_of(drawn.capture, node) for node in made), strict=False)
        shared: list[Key] = [keys[0] for keys in ways if len(set(keys)) == 1]
        names = [drawn.capture.functions[function].name for function, line in shared if line is None][-1:]
        lines = dict.fromkeys(node.line for node in made if node.line)
        places = drawn.places.format_all(lines) if box.is_part or len(lines) == 1 else ""
        phase = phases.pop() if len(phases) == 1 else None
        return " ".join(filter(None, [places, *names])) or phase or "", phase


def find_repeats(sequence: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """Returns (start, period, count) of the repetition that saves most entries, None without three copies."""
    numbers: dict[Hashable, int] = {}
    codes = [numbers.setdefault(entry, len(numbers)) for entry in sequence[:_MOST_TO_SEARCH]]
    best, saved = None, 0
    for period in range(2, len(codes) // _LEAST_ALIKE + 1):
        if len(codes) - 2 * period <= saved:
            break  # no longer period saves more
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


# *** what a box says


def list_members(nodes: Iterable[GraphNode]) -> tuple[int, ...]:
    """Returns the ids of the capture's nodes that some nodes show."""
    return tuple(sorted({number for node in nodes for number in node.members}))


def shorten(text: str, longest: int = _LONGEST) -> str:
    """Returns `text` on one line; if it is too long, `...` replaces its end."""
    return cut_end(" ".join(text.split()), longest)


def name_far_sources(graph: Graph, rows: int = 6) -> Graph:
    """Replaces edges over many rows by `also reads #3, #5` in the box that reads: edges from forward nodes to
    gradients would make the drawing of a training step three times as wide."""
    ranks = model.measure_ranks(graph)
    known = {node.id: node for node in graph.nodes}
    names, edges = defaultdict[str, list[str]](list), list[GraphEdge]()
    for edge in graph.edges:
        if edge.mark == COMMON and ranks[edge.head] - ranks[edge.tail] >= rows:
            node = known[edge.tail]
            name = node.lines[0].removeprefix(SIGNS[node.mark])
            # `#12` for a kernel, the number of a node, else the name of a box
            is_box = node.kind in ("folded", "repeat", "optimizer")
            names[edge.head].append(name if is_box else name.split()[0].rstrip(","))
        else:
            edges.append(edge)
    for name, read in names.items():
        node, line = known[name], f"also reads {join_first([*dict.fromkeys(read)], _MOST_NAMED)}"
        known[name] = replace(node, lines=(*node.lines, shorten(line)))
    return replace(graph, nodes=tuple(known.values()), edges=tuple(edges))
