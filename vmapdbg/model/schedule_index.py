"""Looks up nodes, ranges, buffers and kernels of a schedule, sums up kernels, and finds what the user asks about."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from vmapdbg.model.capture import Bufferize, Capture, Kernel, Measured, Node, Range, Schedule
from vmapdbg.model.failure import Failure
from vmapdbg.model.ops import REDUCES, WRITES, name_op

_T = TypeVar("_T")


def index_of(schedule: Schedule) -> "ScheduleIndex":
    """Returns the index of a schedule. It is created once and kept with the schedule."""
    # not a field: it is neither compared nor written
    kept = vars(schedule)
    if "_index" not in kept:
        kept["_index"] = ScheduleIndex(schedule)
    return kept["_index"]


def name_decision(node: Node, made: Bufferize | None) -> str:
    """Returns `realized` if a node is written to a buffer, `asked for` if a rule asks for a buffer that the node does
    not have in the end, or else `not asked for`. `made` is the BUFFERIZE of the node."""
    if node.realized is None:
        return "not asked for"
    # an output or a write may be in memory already
    is_written = node.op in WRITES or node.realized.reason == "output" if made is None else made.outcome == "kept"
    return "realized" if is_written else "asked for"


class ScheduleIndex:
    """An index over a schedule. Each table is built when it is first used."""

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
        """The readers of each node, by its id: each once, in the order of the graph."""
        found: dict[int, list[Node]] = {node.id: [] for node in self.schedule.nodes}
        for node in self.schedule.nodes:
            for source in dict.fromkeys(node.src):
                found.setdefault(source, []).append(node)
        return {node_id: tuple(nodes) for node_id, nodes in found.items()}

    def node(self, node_id: int | None) -> Node | None:
        """Returns the node with an id, None if the graph has none."""
        return None if node_id is None else self.nodes.get(node_id)

    def find_under(self, node_id: int, ops: Container[str]) -> Node:
        """Returns the node under some ops, along their first sources."""
        node = self.nodes[node_id]
        while node.op in ops and node.src:
            node = self.nodes[node.src[0]]
        return node

    def op(self, node_id: int | None) -> str:
        """Returns the op of a node, `?` for an unknown id."""
        node = self.node(node_id)
        return "?" if node is None else node.op

    def label(self, node_id: int) -> str:
        """Returns `ADD 48`, or `node 48` if the graph does not have the node."""
        return f"{self.nodes[node_id].op if node_id in self.nodes else 'node'} {node_id}"

    def size_of(self, name: str) -> int | str | None:
        """Returns the size of a range, None for an unknown name."""
        known = self.ranges.get(name)
        return known and known.size

    def count_reduced(self, node: Node) -> int:
        """Returns how many elements a reduce reads; 0 for other nodes and for symbolic shapes."""
        return count_elements(self.nodes[node.src[0]].shape) if name_op(node.op) == "REDUCE" and node.src else 0

    def find_sources(self, node_ids: Sequence[int]) -> frozenset[int]:
        """Returns the ids of all direct and indirect sources of some nodes."""
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
        """Names of the ranges that a vmap created."""
        ambient = {name for node in self.schedule.nodes for name in node.ambient}
        return frozenset(ambient | {item.name for item in self.schedule.ranges if item.vmap})

    @cached_property
    def bufferizes(self) -> dict[int, Bufferize]:
        """BUFFERIZEs by the id of their node."""
        return {item.node: item for item in self.schedule.bufferizes}

    def find_kept(self, node_id: int) -> Bufferize | None:
        """Returns the BUFFERIZE of a node if its buffer was kept, else None."""
        made = self.bufferizes.get(node_id)
        return made if made is not None and made.outcome == "kept" else None

    def name_decision(self, node: Node) -> str:
        return name_decision(node, self.bufferizes.get(node.id))

    @cached_property
    def _ambient(self) -> dict[int, dict[str, None]]:
        found = {node.id: dict.fromkeys(node.ambient) for node in self.schedule.nodes}
        for entry in self.schedule.vmap_map:
            found.setdefault(entry.node, {}).update(dict.fromkeys(entry.ranges))
        for made in self.bufferizes.values():
            found.setdefault(made.node, {}).update(dict.fromkeys(made.ambient))
        return found

    def ambient_of(self, node_id: int) -> tuple[str, ...]:
        """Returns the ambient ranges of a node: from the node, `vmap_map` and its BUFFERIZE."""
        return tuple(self._ambient.get(node_id, ()))

    def find_lost(self, made: Bufferize | None) -> tuple[str, ...]:
        """Returns the ambient ranges that a kept GLOBAL buffer does not close: their iterations overwrite each other.

        This holds for LOOP and OUTER ranges, because the kernel that reads the buffer starts after all iterations. In a
        LOCAL buffer, which lives inside one iteration, an ambient range may stay open."""
        if made is None or not made.holds_memory:
            return ()
        return tuple(name for name in self.ambient_of(made.node) if name not in made.closed_ranges)

    # *** kernels

    @cached_property
    def writers(self) -> dict[int, tuple[int, Kernel]]:
        """By the id of a node, the kernel that writes its buffer and the kernel's number in the schedule."""
        return {node_id: (i, kernel) for i, kernel in enumerate(self.schedule.kernels) for node_id in kernel.outputs}

    def find_read(self, kernel: Kernel) -> list[int]:
        """Returns the ids of the nodes whose buffers a kernel reads: sources that other kernels write."""
        computed = set(kernel.nodes)
        sources = {source for node_id in computed for source in self.nodes[node_id].src}
        return sorted(node_id for node_id in self.writers if node_id in sources - computed)

    def kernel(self, number: int | None) -> Kernel | None:
        """Returns the kernel with a number, None if the schedule has none."""
        if number is None or not 0 <= number < len(self.schedule.kernels):
            return None
        return self.schedule.kernels[number]

    def name_kernel(self, number: int | None) -> str:
        """Returns `E_4 #0` for the number of a kernel, or `a copy`."""
        kernel = self.kernel(number)
        return "a copy" if kernel is None else f"{kernel.name} #{number}"

    @cached_property
    def computing(self) -> defaultdict[int, dict[int, Kernel]]:
        """The kernels that compute a node, by their numbers, by the node's id."""
        found: defaultdict[int, dict[int, Kernel]] = defaultdict(dict)
        for number, kernel in enumerate(self.schedule.kernels):
            for node_id in kernel.nodes:
                found[node_id][number] = kernel
        return found

    def find_reading(self, node_id: int) -> list[tuple[int, Kernel]]:
        """Returns the kernels, with numbers, that read a node's buffer: they compute a reader but not the node."""
        if node_id not in self.writers or node_id not in self.nodes:
            return []
        found = {number: k for reader in self.readers[node_id] for number, k in self.computing[reader.id].items()}
        return [(number, found[number]) for number in sorted(found.keys() - self.computing[node_id].keys())]


def count_elements(shape: Iterable[int | str] | None) -> int:
    """Returns the elements of a shape; 0 for a symbolic or an unknown shape."""
    return 0 if shape is None else math.prod(size if isinstance(size, int) else 0 for size in shape)


def kernel_identity(kernel: Kernel) -> str:
    """Returns the key of a kernel, or its source if it has none: equal for equal programs."""
    return kernel.key or kernel.source


def work_identity(kernel: Kernel) -> Hashable:
    """Returns what the same kernels of two layers, or of two steps of a loop, share: they may read other elements."""
    if not kernel.title:
        return kernel_identity(kernel)
    return kernel.title, kernel.phase, kernel.executed_ops, kernel.bytes


def group_equal(items: Iterable[_T], identity: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Returns the items in groups with the same `identity`. Groups and members keep their first order."""
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(identity(item), []).append(item)
    return list(groups.values())


def find_distinct(capture: Capture) -> dict[int, list[int]]:
    """Maps the index of each schedule with new kernels to the indices of later schedules with the same kernels."""
    groups = group_equal(capture.schedules, lambda schedule: tuple(map(kernel_identity, schedule.kernels)))
    return {first.index: [schedule.index for schedule in later] for first, *later in groups}


# *** times


def digest_source(source: str) -> str:
    """Returns a short name for the source of a kernel, the same in every process."""
    # it takes time to import
    import hashlib

    return hashlib.sha256(source.strip("\n").encode()).hexdigest()[:12]


_MOST_TIME = 0.9


def list_longest(kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """Returns the keys of the kernels that take most of the time of some kernels."""
    keys: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for kernel in kernels:
        keys[kernel.source][kernel.key] = None
    times = {source: sum_times(one) for source, one in find_times(kernels).items()}
    found: list[str] = []
    left = sum(times.values()) * _MOST_TIME
    for source in sorted(times, key=lambda source: -times[source]):
        if left <= 0:
            break
        left -= times[source]
        found += keys[source]
    return tuple(found)


def change_kernels(capture: Capture, change: Callable[[Kernel], Kernel]) -> Capture:
    """Returns the capture with each kernel changed."""
    schedules = (replace(one, kernels=tuple(map(change, one.kernels))) for one in capture.schedules)
    return replace(capture, schedules=tuple(schedules))


def add_beam_times(capture: Capture, again: Capture, searched: Container[str]) -> Capture:
    """Returns the capture with the times of kernels in another run of the program, in which BEAM optimized those with
    the keys `searched`: launches are paired in their order. Raises Failure if the runs launch different kernels."""
    first, other = (one.timing.launches if one.timing is not None else () for one in (capture, again))
    if again.error is not None:
        raise Failure(f"the run with BEAM failed: {again.error.message}")
    if len(first) != len(other):
        raise Failure(f"the run with BEAM has {len(other):,} launches instead of {len(first):,}")
    found: dict[str, list[float]] = defaultdict(list)
    for one, with_beam in zip(first, other, strict=True):
        found[one.kernel].append(with_beam.seconds)

    def fill(kernel: Kernel) -> Kernel:
        times = kernel.key in searched and found.get(digest_source(kernel.source))
        return replace(kernel, beam=sorted(times)[len(times) // 2]) if times else kernel

    return change_kernels(capture, fill)


def add_optimizations(capture: Capture, again: Capture) -> Capture:
    """Returns the capture with the times of kernels with other optimizations, which another run has measured."""
    found = {kernel.key: kernel.optimizations for kernel in again.kernels}
    return change_kernels(capture, lambda kernel: replace(kernel, optimizations=found.get(kernel.key, ())))


def sum_times(measured: Measured | None) -> float:
    """Returns the seconds of all launches of a kernel, each counted as the median; 0 if it was not timed."""
    return 0 if measured is None else measured.launches * measured.median


def find_times(kernels: Iterable[Kernel]) -> dict[str, Measured]:
    """Maps kernel sources to their times. Kernels with the same source were timed together: each has all launches."""
    return {kernel.source: kernel.measured for kernel in kernels if kernel.measured is not None}


def sum_programs(kernels: Iterable[Kernel]) -> float | None:
    """Returns the seconds of all launches of all kernels of a run, None if none was timed."""
    times = find_times(kernels)
    return None if not times else sum(map(sum_times, times.values()))


# *** what the user asks about


def refuse_schedule(asked: int | None, *captures: Capture) -> str:
    """Returns the message about a schedule that no capture has."""
    count = max(len(one.schedules) for one in captures)
    return f"there is no schedule {asked}: {f'the last is {count - 1}' if count else 'none was made'}"


_NODE_NAME = re.compile(r"\d+/\d+")
_IMPORTANT = REDUCES | {"VMAPIN", "VMAPOUT"}


@dataclass(frozen=True)
class Named:
    """The kernels (by number) and nodes (by id) of a schedule that a name means."""

    schedule: Schedule
    kernels: tuple[int, ...]
    nodes: tuple[int, ...]


def is_line(line: str, asked: str) -> bool:
    """Returns whether `asked` names a line. `x.py:12` is also named by `samples/x.py:12`, or a longer path."""
    return line == asked or line.endswith("/" + asked) or asked.endswith("/" + line)


def choose_numbered(schedules: Sequence[Schedule]) -> Schedule:
    """Returns the schedule in which node numbers are looked up: the last with kernels."""
    return next((s for s in reversed(schedules) if s.kernels), schedules[-1])


def name_node(schedule: int, node: int) -> str:
    """Returns `55/36`: the number of a node after the number of its schedule."""
    return f"{schedule}/{node}"


def find_named(schedules: Sequence[Schedule], name: str) -> list[Named]:
    """Returns what a name means in each of some schedules: the kernels with that name, and the most important nodes of
    that line (nodes with buffers, reduces and scopes, else the last node). A number, alone or after the number of its
    schedule (`55/36`), means a node of one schedule."""
    if name.isdecimal() and schedules:
        name = name_node(choose_numbered(schedules).index, int(name))
    if _NODE_NAME.fullmatch(name):
        number, node_id = map(int, name.split("/"))
        return [Named(one, (), (node_id,)) for one in schedules if one.index == number and index_of(one).node(node_id)]
    found: list[Named] = []
    for schedule in schedules:
        kernels = tuple(number for number, kernel in enumerate(schedule.kernels) if kernel.name == name)
        at_line = [n for n in schedule.nodes if n.line is not None and is_line(n.line, name)]
        buffered = index_of(schedule).bufferizes
        important = [n for n in at_line if n.id in buffered or n.op in _IMPORTANT]
        nodes = tuple(node.id for node in important or at_line[-1:])
        if kernels or nodes:
            found.append(Named(schedule, kernels, nodes))
    return found
