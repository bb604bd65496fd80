"""Kernels and the buffers between them."""

from collections.abc import Hashable, Iterable, Sequence

from vmapdbg.model.capture import Kernel, Node
from vmapdbg.model.schedule_index import work_identity
from vmapdbg.model.vocabulary import Mark
from vmapdbg.page.format import format_bytes, format_seconds, format_shape, format_share, round_count
from vmapdbg.page.graph import fold, model
from vmapdbg.page.graph.fold import shorten
from vmapdbg.page.graph.items import DrawnPair, DrawnSchedule, Stage
from vmapdbg.page.overview import Cost, count_programs
from vmapdbg.page.why import describe_work, explain_kernel, explain_node
from vmapdbg.reference.graph import reach

MOST_BOXES = 60
"""A drawing with more boxes is folded, to `MOST_FOLDED` boxes if possible."""
MOST_FOLDED = 45
_MOST_LINES = 3
_INPUTS = frozenset({"BUFFER", "COPY", "PARAM", "DEFINE_GLOBAL", "BUFFER_VIEW", "MSTACK"})


def build_kernel_graph(pair: DrawnPair, level: int, title: str) -> model.Graph:
    """Returns the kernels and buffers of a pair of schedules. From `level` 1 on, the optimizer is one box and repeated
    layers are drawn once; at level 2, boxes are functions. Raises GraphError if there are no kernels."""
    if not pair.after.schedule.kernels and not pair.before.schedule.kernels:
        raise model.GraphError(f"schedule {pair.after.schedule.index} has no kernels, only copies or nothing")
    new, old = _Part(pair.after, model.ADDED), _Part(pair.before, model.REMOVED)
    old.share_names(new, pair)
    nodes: dict[str, model.GraphNode] = {}
    edges: dict[tuple[str, str], model.GraphEdge] = {}
    for part in (new, old):
        for node in (*map(part.draw_buffer, part.buffers), *map(part.draw_kernel, range(len(part.kernels)))):
            nodes.setdefault(node.id, node)
        # an edge that both sides have is common, even if its ends are not
        for tail, head in part.list_edges():
            is_common = (tail, head) in edges or part.marks[tail] == part.marks[head] == model.COMMON
            edges[tail, head] = model.GraphEdge(tail, head, mark=model.COMMON if is_common else part.mark)
    graph = model.Graph("kernels", title, tuple(nodes.values()), tuple(edges.values()), (), (), {}, {})
    return fold_kernels(graph, pair, MOST_FOLDED if level > 1 else None).graph if level else graph


class _Part:
    def __init__(self, drawn: DrawnSchedule, mark: Mark) -> None:
        self.drawn = drawn
        self.mark: Mark = mark
        self.kernels, prefix = drawn.schedule.kernels, model.PREFIXES[mark]
        self.names = {number: f"{prefix}kernel{number}" for number in range(len(self.kernels))}
        self.writers = drawn.index.writers
        self.reads = [sorted(self._find_reads(kernel)) for kernel in self.kernels]
        self.buffers = sorted(set(self.writers).union(*self.reads))
        self.buffer_names = {node: f"{prefix}buffer{node}" for node in self.buffers}
        self.marks: dict[str, Mark] = dict.fromkeys([*self.names.values(), *self.buffer_names.values()], mark)
        self.most = max((kernel.executed_ops for kernel in self.kernels), default=0)

    def _find_reads(self, kernel: Kernel) -> set[int]:
        """The buffers a kernel reads: from its nodes up, through nodes it does not compute, to the first buffers."""
        computed, written = set(kernel.nodes), set(kernel.outputs)
        nodes = self.drawn.index.nodes

        def is_read(number: int) -> bool:
            is_input = nodes[number].op in _INPUTS and number not in computed
            return is_input or (number in self.writers and number not in written)

        starts = [source for number in kernel.nodes for source in nodes[number].src]
        reached = reach(starts, lambda number: () if number in computed or is_read(number) else nodes[number].src)
        return set(filter(is_read, reached))

    def share_names(self, after: "_Part", pair: DrawnPair) -> None:
        """Gives equal kernels, and buffers with equal nodes, sizes and lost ranges, the name after and no mark."""
        for number in self.buffers:
            other = pair.nodes.get(number)
            if other in after.buffer_names and self._measure(number) == after._measure(other):
                self.buffer_names[number] = after.buffer_names[other]
        for number, other in pair.kernels.items():
            self.names[number] = after.names[other]
        for name in (*self.names.values(), *self.buffer_names.values()):
            if name in after.marks:
                self.marks[name] = after.marks[name] = model.COMMON

    def _measure(self, number: int) -> object:
        kept = self.drawn.index.find_kept(number)
        return kept and (kept.size, kept.bytes, self.drawn.index.find_lost(kept))

    def list_edges(self) -> Iterable[tuple[str, str]]:
        """Yields the tail and the head of each edge."""
        for number, kernel in enumerate(self.kernels):
            for node in self.reads[number]:
                yield self.buffer_names[node], self.names[number]
            for node in kernel.outputs:
                yield self.names[number], self.buffer_names[node]

    def draw_kernel(self, number: int) -> model.GraphNode:
        name, kernel = self.names[number], self.kernels[number]
        mark, share = self.marks[name], kernel.executed_ops / max(self.most, 1)
        found = self.drawn.findings.about_kernel(self.drawn.schedule.index, [number])
        lines = [
            f"{model.SIGNS[mark]}#{number} {shorten(kernel.name)}",
            shorten(kernel.title),
            *map(", ".join, describe_work(kernel)),
            *(shorten(f"{item.code} {item.message}", 60) for item in found),
            shorten(self.drawn.places.format_first(kernel.lines, _MOST_LINES)),
        ]
        tip, shown = explain_kernel(self.drawn.schedule, number, kernel).text, tuple(filter(None, lines))
        return model.GraphNode(name, "kernel", shown, tip, kernel.nodes, mark=mark, alert=bool(found), weight=share)

    def draw_buffer(self, number: int) -> model.GraphNode:
        name = self.buffer_names[number]
        index, mark = self.drawn.index, self.marks[name]
        node, closed = index.node(number), index.find_kept(number)
        lost, op = index.find_lost(closed), index.op(number)
        size = tip = ""
        if node is not None:
            size, tip = f"{format_shape(node.shape)} {node.dtype}", explain_node(self.drawn.schedule, node).text
        if closed is not None:
            size = f"{closed.size:,} elements, {format_bytes(closed.bytes)}"
        lines = [f"{model.SIGNS[mark]}{number} {op}", *(f"{item} NOT closed" for item in lost), size]
        kind = "kept" if number in self.writers else "buffer"
        return model.GraphNode(name, kind, tuple(filter(None, lines)), tip, (number,), None, mark, bool(lost))


def fold_kernels(graph: model.Graph, pair: DrawnPair, most: int | None = None) -> fold.Folded:
    """Returns the graph with functions as boxes, at most `most`; None: folds only repeated layers and the optimizer."""
    sides = (model.PREFIXES[model.REMOVED], pair.before), ("", pair.after)
    kernels = {f"{side}kernel{n}": k for side, drawn in sides for n, k in enumerate(drawn.schedule.kernels)}

    def node_of(node: model.GraphNode) -> Node | None:
        main = kernels[node.id].main if node.id in kernels else None
        return pair.side_of(node.mark).index.node(next(reversed(node.members), None) if main is None else main)

    def look(node: model.GraphNode) -> Hashable:
        return (work_identity(kernels[node.id]), node.mark) if node.id in kernels else node.id

    def describe(nodes: Sequence[model.GraphNode]) -> list[str]:
        drawn, known = pair.side_of(nodes[0].mark), [kernels[node.id] for node in nodes if node.id in kernels]
        cost, whole = (_sum_up(drawn, some) for some in (known, drawn.schedule.kernels))
        return [
            f"{format_seconds(cost.seconds)}, {format_share(cost.seconds, whole.seconds)} of the time"
            * (cost.seconds > 0),
            f"{round_count(cost.ops)} ops, {format_share(cost.ops, whole.ops)} of all" * bool(cost.ops),
        ]

    return fold.fold_graph(graph, fold.Subject(pair, node_of, look, describe), most)


def _sum_up(drawn: DrawnSchedule, kernels: Iterable[Kernel]) -> Cost:
    programs, cost = count_programs(drawn.capture), Cost()
    for kernel in kernels:
        cost.add(kernel, programs[kernel.source])
    return cost


STAGE = Stage(
    title="kernels",
    build=build_kernel_graph,
    legend={
        "kernel": "a kernel; shaded by its share of the ops",
        "buffer": "a buffer that comes in",
        "kept": "a buffer that a kernel writes",
        "repeat": "a repeated layer, folded",
        "folded": "a function or a line, with its kernels",
        "optimizer": "the optimizer, folded",
    },
    sample="kernel",
    most=160,
    pleasant=MOST_BOXES,
    levels=3,
)
