"""The one index over a schedule: nodes, ranges, buffers and kernels, looked up by id and by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from vmapdbg.model.capture import Bufferize, Capture, Kernel, Node, Range, Schedule


def index_of(schedule: Schedule) -> ScheduleIndex:
    """Returns the index of a schedule. It is made once, and kept with the schedule."""
    # beside the fields, not one of them: it is neither compared nor written, and ends with its schedule
    kept = vars(schedule)
    if "_index" not in kept:
        kept["_index"] = ScheduleIndex(schedule)
    return kept["_index"]


def count_kernels(schedules: Iterable[Schedule]) -> int:
    """Returns how many compute kernels some schedules have."""
    return sum(len(schedule.kernels) for schedule in schedules)


class ScheduleIndex:
    """What is looked up in a schedule. Each look-up is made when it is first asked for."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    # *** nodes and ranges

    @cached_property
    def nodes(self) -> dict[int, Node]:
        """Nodes by id."""
        return {node.id: node for node in self.schedule.nodes}

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """Ranges by their rendered name."""
        return {item.name: item for item in self.schedule.ranges}

    @cached_property
    def readers(self) -> dict[int, tuple[Node, ...]]:
        """For the id of each node the nodes that have it as a source, each once, in the order of the graph."""
        found: dict[int, list[Node]] = {node.id: [] for node in self.schedule.nodes}
        for node in self.schedule.nodes:
            for source in dict.fromkeys(node.src):
                found.setdefault(source, []).append(node)
        return {node_id: tuple(nodes) for node_id, nodes in found.items()}

    def node(self, node_id: int | None) -> Node | None:
        """Returns the node with an id, None where the graph has none."""
        return None if node_id is None else self.nodes.get(node_id)

    def op(self, node_id: int | None) -> str:
        """Returns the op of a node, `?` for an id that the graph does not have."""
        node = self.node(node_id)
        if node is None:
            return "?"
        return node.op

    def size_of(self, name: str) -> int | str | None:
        """Returns the size of a range, None where the schedule does not know it."""
        known = self.ranges.get(name)
        return known and known.size

    def find_sources(self, node_ids: Sequence[int]) -> frozenset[int]:
        """Returns the ids of all that some nodes are computed from, without the nodes themselves where nothing of
        them reads another one."""
        found: set[int] = set()
        waiting = [source for node_id in node_ids for source in self.nodes[node_id].src]
        while waiting:
            node_id = waiting.pop()
            if node_id not in found and node_id in self.nodes:
                found.add(node_id)
                waiting += self.nodes[node_id].src
        return frozenset(found)

    # *** ambient ranges and buffers

    @cached_property
    def vmap_names(self) -> frozenset[str]:
        """Names of the ranges that a vmap brought."""
        ambient = {name for node in self.schedule.nodes for name in node.ambient}
        return frozenset(ambient | {item.name for item in self.schedule.ranges if item.vmap})

    @cached_property
    def bufferizes(self) -> dict[int, Bufferize]:
        """The BUFFERIZE of each node that has one, by the id of the node."""
        return {item.node: item for item in self.schedule.bufferizes}

    def find_kept(self, node_id: int) -> Bufferize | None:
        """Returns the BUFFERIZE of a node whose buffer was kept, None where it has none."""
        made = self.bufferizes.get(node_id)
        if made is None or made.outcome != "kept":
            return None
        return made

    @cached_property
    def _mapped(self) -> dict[int, tuple[str, ...]]:
        return {entry.node: entry.ranges for entry in self.schedule.vmap_map}

    def ambient_of(self, node_id: int) -> tuple[str, ...]:
        """Returns the ambient ranges of a node, from wherever the capture has them."""
        node = self.node(node_id)
        made = self.bufferizes.get(node_id)
        own = () if node is None else node.ambient
        closed = () if made is None else made.ambient
        return tuple(dict.fromkeys([*own, *self._mapped.get(node_id, ()), *closed]))

    def find_lost(self, made: Bufferize | None) -> tuple[str, ...]:
        """Returns the ambient ranges whose iterations overwrite each other: a kept GLOBAL buffer does not close them.

        LOOP and OUTER alike: the kernel that reads the buffer starts when all iterations have written it. A LOCAL
        buffer lives inside one iteration, and a removed BUFFERIZE has no buffer: there an ambient range may stay open.
        """
        if made is None or made.outcome != "kept" or made.addrspace != "GLOBAL":
            return ()
        return tuple(name for name in self.ambient_of(made.node) if name not in made.closed_ranges)

    # *** kernels

    @cached_property
    def writers(self) -> dict[int, tuple[int, Kernel]]:
        """For the id of a node the kernel that writes its buffer, and the kernel's number in the schedule."""
        return {node_id: (i, kernel) for i, kernel in enumerate(self.schedule.kernels) for node_id in kernel.outputs}

    def find_read(self, kernel: Kernel) -> list[int]:
        """Returns the ids of the nodes whose buffers a kernel reads: sources of what it computes, written by others."""
        computed = set(kernel.nodes)
        sources = {source for node_id in computed for source in self.nodes[node_id].src}
        return sorted(node_id for node_id in self.writers if node_id in sources - computed)

    def kernel(self, number: int | None) -> Kernel | None:
        """Returns the kernel with a number, None where the schedule has none."""
        if number is None or not 0 <= number < len(self.schedule.kernels):
            return None
        return self.schedule.kernels[number]

    def find_computing(self, node_id: int) -> list[tuple[int, Kernel]]:
        """Returns the kernels that compute a node, whether or not they write it."""
        return [(i, kernel) for i, kernel in enumerate(self.schedule.kernels) if node_id in kernel.nodes]

    def find_reading(self, node_id: int) -> list[tuple[int, Kernel]]:
        """Returns the kernels that read the buffer of a node: they compute a reader of it, and not the node itself."""
        if node_id not in self.writers:
            return []
        readers = {reader.id for reader in self.readers[node_id]}
        every = enumerate(self.schedule.kernels)
        return [(i, k) for i, k in every if node_id not in k.nodes and readers.intersection(k.nodes)]


def kernel_identity(kernel: Kernel) -> str:
    """Returns what two kernels share when they are the same program: the key, without one the source."""
    return kernel.key or kernel.source


def find_distinct(capture: Capture) -> dict[int, list[int]]:
    """Returns the index of each schedule whose kernels none before it has, with the indices of the later ones that have
    the same."""
    first: dict[tuple[str, ...], int] = {}
    found: dict[int, list[int]] = {}
    for schedule in capture.schedules:
        kernels = tuple(map(kernel_identity, schedule.kernels))
        if kernels in first:
            found[first[kernels]].append(schedule.index)
        else:
            first[kernels] = schedule.index
            found[schedule.index] = []
    return found
