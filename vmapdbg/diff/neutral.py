"""A schedule in a form that is the same for all tinygrad releases. Only the comparison uses it, the reports do not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vmapdbg.diff.meaning import HeadView, Meanings
from vmapdbg.diff.pairing import find_ranges
from vmapdbg.model.capture import Bufferize, Kernel, Node, Realized, Schedule
from vmapdbg.model.ops import name_op
from vmapdbg.model.schedule_index import group_equal, index_of
from vmapdbg.reference.graph import reach

# ops whose ranges follow from the ranges of their readers
_MOVES = frozenset({"PARAM", "CONST", "RESHAPE", "PAD", "SHRINK", "FLIP"})
_STORES = frozenset({"STORE", "COPY"})
_ASKED_FOR = _STORES | {"CONTIGUOUS"}


@dataclass(frozen=True)
class Reading:
    """A schedule, the form of it that is compared, and for heads of that form the node that is realized for it."""

    schedule: Schedule
    compared: Schedule
    shown: dict[int, int]

    @property
    def is_neutral(self) -> bool:
        """Whether the compared form is not the schedule itself."""
        return self.compared is not self.schedule

    def node(self, node_id: int) -> Node:
        """Returns the node of the schedule with the id of a compared node."""
        return index_of(self.schedule).nodes[node_id]

    def realized(self, node_id: int) -> Node:
        """Returns the node of the schedule that is realized for a compared node, else the node itself."""
        return self.node(self.shown.get(node_id, node_id))

    def bufferize(self, made: Bufferize | None) -> Bufferize | None:
        """Returns the BUFFERIZE of the schedule for a compared BUFFERIZE."""
        return made and index_of(self.schedule).bufferizes[self.realized(made.node).id]

    @property
    def measured(self) -> Schedule:
        """The schedule whose sizes are compared: without outputs, because some releases have no buffer for them."""
        if not self.is_neutral:
            return self.schedule
        index = index_of(self.compared)
        kept = [made for made in self.compared.bufferizes if not _is_asked_for(index.nodes[made.node])]
        return replace(self.compared, bufferizes=tuple(kept))

    def leave_out(self, other: "Reading", nodes: Mapping[int, int]) -> "Reading":
        """Returns the reading without the outputs that are arguments in `other`; `nodes` maps ids to `other`."""
        index, others = index_of(self.compared), index_of(other.compared)

        def is_argument(made: Bufferize) -> bool:
            twin = others.node(nodes.get(made.node))
            if twin is None or twin.id in others.bufferizes:
                return False
            return _is_asked_for(index.nodes[made.node]) and _is_asked_for(twin)

        kept = [made for made in self.compared.bufferizes if not is_argument(made)]
        return replace(self, compared=replace(self.compared, bufferizes=tuple(kept)))

    @cached_property
    def folded(self) -> tuple[Node, ...]:
        """The nodes that the compared form does not have: they only show the value of another node."""
        if not self.is_neutral:
            return ()
        kept = {node.id for node in self.compared.nodes} | set(self.shown.values())
        return tuple(node for node in self.schedule.nodes if node.id not in kept)


def _is_asked_for(node: Node) -> bool:
    return node.realized is not None and node.realized.reason == "output"


def read_plainly(schedule: Schedule) -> Reading:
    """Returns a schedule as it is: both sides are from the same tinygrad."""
    return Reading(schedule, schedule, {})


def read_neutrally(schedule: Schedule) -> Reading:
    """Returns a schedule and its neutral form. Its node ids are ids of heads, ranges keep their names."""
    return _Neutral(schedule).read()


class _Neutral(Meanings):
    """The heads of a schedule, with the nodes that are realized for them."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.schedule = schedule
        # for each head the node that is realized for it; other realized nodes of a head that have their own buffers
        self.realized: dict[int, Node] = {}
        self.again: list[Node] = []
        realized = [node for node in schedule.nodes if node.realized is not None]
        for nodes in group_equal(realized, lambda node: self.views[node.id].head):
            # nodes that decide something, then removed buffers, then copies
            nodes.sort(key=lambda node: (name_op(node.op) in _STORES, self.index.find_kept(node.id) is None))
            self.realized[self.views[nodes[0].id].head] = nodes[0]
            self.again += [node for node in nodes[1:] if self.index.find_kept(node.id) is not None]

    def read(self) -> Reading:
        nodes = [self._read_node(self.heads[head]) for head in self._find_live()]
        nodes = sorted([*nodes, *map(self._read_again, self.again)], key=lambda node: node.id)
        buffers = [made for item in self.schedule.bufferizes if (made := self._read_bufferize(item)) is not None]
        # the ranges that the compared nodes and buffers name
        texts = [text for item in buffers for text in item.closed_ranges]
        for node in nodes:
            texts += [*(node.in_ranges or ()), *(node.out_ranges or ()), *node.ambient]
        used = set(find_ranges(" ".join(texts)))
        compared = replace(
            self.schedule,
            nodes=tuple(nodes),
            ranges=tuple(item for item in self.schedule.ranges if item.name in used),
            bufferizes=tuple(buffers),
            kernels=tuple(map(self._read_kernel, self.schedule.kernels)),
        )
        return Reading(self.schedule, compared, {head: node.id for head, node in self.realized.items()})

    def _find_live(self) -> Iterable[int]:
        """Returns the heads that are realized or have no readers, and all their sources."""
        ends = {self.views[node.id].head for node in self.schedule.nodes if not self.index.readers[node.id]}
        starts = [*self.realized, *(head for head in ends if self.heads[head].op not in _MOVES)]
        return reach(starts, lambda head: self.heads[head].src)

    def _read_node(self, head: Node) -> Node:
        node, made = self.index.nodes[head.id], self.realized.get(head.id)
        constant = head.id in self.constants
        outs = None
        if not constant and (made is not None or head.op not in _MOVES):
            where = made or node
            outs = self._pick(where.out_ranges, self.views[where.id])
        ins = self._pick(node.in_ranges, self.views[node.src[0]]) if head.op == "REDUCE" and node.src else None
        realized = None if made is None or constant else self._read_realized(made)
        return replace(head, in_ranges=ins, out_ranges=outs, realized=realized)

    def _read_again(self, node: Node) -> Node:
        source, realized = self.views[node.id].head, self._read_realized(node)
        return replace(node, op="AGAIN", src=(source,), in_ranges=None, out_ranges=None, realized=realized)

    def _pick(self, ranges: Sequence[str] | None, view: HeadView) -> tuple[str, ...] | None:
        """Returns the ranges along which a node's value varies, in the order of its head's axes."""
        if ranges is None or len(ranges) != len(view.axes):
            return None
        found = {axis: name for name, axis in zip(ranges, view.axes, strict=True) if axis is not None}
        return tuple(found[axis] for axis in sorted(found))

    def _read_realized(self, node: Node) -> Realized | None:
        view, realized = self.views[node.id], node.realized
        if realized is None:
            return None
        own = sorted(axis for i in realized.axes if i < len(view.axes) and (axis := view.axes[i]) is not None)
        readers = self.index.readers[node.id]
        # the program asks for the value, and no other kernel reads it
        is_end = all(reader.out_ranges is None and reader.realized is None for reader in readers)
        is_output = is_end or name_op(node.op) in _ASKED_FOR
        # only the rule is compared: which reader wants which range depends on how the release broadcasts
        return Realized(tuple(own), "output" if is_output else realized.reason, "")

    def _read_bufferize(self, made: Bufferize) -> Bufferize | None:
        node, view = self.index.nodes[made.node], self.views[made.node]
        is_main, is_again = self.realized.get(view.head) is node, node in self.again
        if not (is_main or is_again):
            return None
        own = made.closed_ranges[len(made.ambient) :]
        picked = self._pick(own, view) or ()
        # then the ranges along which the value does not vary; an axis of one element has no range
        closed = tuple(filter(find_ranges, [*picked, *(name for name in own if name not in picked)]))
        if made.outcome == "removed":
            if view.head in self.constants:
                return None
            # its size would depend on where the release broadcasts the value
            closed, made = picked, replace(made, size=0, bytes=0)
        node_id = node.id if is_again else view.head
        decided = made.decided and replace(made.decided, nodes=(), ranges=(), axis=None)
        return replace(made, node=node_id, closed_ranges=(*made.ambient, *closed), reason="", decided=decided)

    def _read_kernel(self, kernel: Kernel) -> Kernel:
        outputs = tuple(dict.fromkeys(self.views[node].head for node in kernel.outputs))
        # the head of a view is in the kernel that writes the buffer
        own = [node for node in kernel.nodes if self.views[node].head == node]
        # the key of the AST is different in each release
        return replace(kernel, nodes=tuple(dict.fromkeys([*own, *outputs])), outputs=outputs, key="")
