"""Why things are as they are: every decision about a node or a kernel, in order, from a Capture.

What comes out is data, rules with their operands. `render/text/why.py` makes the sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from vmapdbg.model.capture import Capture, Kernel, Node, Schedule
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import ScheduleIndex, choose_numbered, find_distinct, find_named, index_of

Topic = Literal[
    # about a node
    "read by",
    "ranges",
    "realized",
    "split",
    "ambient ranges",
    "BUFFERIZE",
    "kernel",
    "to fuse it",
    # about a kernel
    "writes",
    "computes",
    "fused into it",
    "reads",
    "work",
    # about a schedule
    "boundaries",
]

FactRule = Literal[
    "readers",  # nodes
    "no-reader",
    "no-ranges",
    "new-ranges",  # the node has ranges of its own on the axes on which it is realized
    "ranges-of-reader",
    "ranges-of-readers",  # they agree
    "not-realized",
    "realized",
    "not-split",
    "ambient",  # ranges: one; nodes: where it enters the scope
    "closes",
    "outcome",
    "not-closed",  # ranges: one ambient range that the buffer should have and has not
    "written-by",  # kernels: one
    "computed-in",  # kernels
    "read-by-kernels",  # kernels
    # what would have to change for a buffer to go away
    "is-fused",
    "is-asked-for",
    "op-is-never-fused",
    "reads-many-buffers",
    "readers-disagree",
    "is-read-many-times",
    # about a kernel
    "writes",  # nodes: one
    "computes",  # nodes
    "fuses",  # nodes: one
    "reads",  # nodes: one; kernels: the one that writes it
    "works",
    "boundary",  # nodes: the one whose buffer it is; kernels: the one that writes it, then those that read it
]


class UnknownSubject(Failure):
    """What was asked about is not in the capture."""


@dataclass(frozen=True)
class Fact:
    """A rule with its operands: ids of nodes, names of ranges, numbers of kernels."""

    rule: FactRule
    nodes: tuple[int, ...] = ()
    ranges: tuple[str, ...] = ()
    kernels: tuple[int, ...] = ()


@dataclass(frozen=True)
class Step:
    """What there is to say on one topic."""

    topic: Topic
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Explanation:
    """All decisions about one subject of the schedule with the index `schedule`: the node with an id, the kernel with a
    number, or, where both are None, all boundaries between kernels. `again` are the later schedules of which the same
    holds."""

    schedule: int
    node: int | None
    kernel: int | None
    steps: tuple[Step, ...]
    again: tuple[int, ...] = ()


def explain(capture: Capture, subject: str | None, schedule: int | None) -> list[Explanation]:
    """Returns what was decided about `subject`: a node id, a kernel's name, a `file:line`, or None for every boundary.

    Without a schedule number, a node id is looked up in the last schedule with kernels, a name or a line in all.
    Raises UnknownSubject.
    """
    schedules = [s for s in capture.schedules if schedule is None or s.index == schedule]
    if not schedules:
        raise UnknownSubject(f"there is no schedule {schedule}: {capture.snippet} made {len(capture.schedules)}")
    if subject is None:
        again = find_distinct(capture)
        # one that is asked for is told of, though it may be an earlier one again
        told = [s for s in schedules if s.nodes and (s.index in again or schedule is not None)]
        return [explain_boundaries(s, again.get(s.index, ()) if schedule is None else ()) for s in told]
    if subject.isdecimal():
        chosen = choose_numbered(schedules)
        return [explain_node(chosen, find_node(chosen, int(subject)))]
    found = [explanation for s in schedules for explanation in explain_named(s, subject)]
    if not found:
        raise UnknownSubject(f"no kernel and no line of {capture.snippet} is called {subject!r}")
    return found


# *** whom it is about


def find_node(schedule: Schedule, node_id: int) -> Node:
    """Returns the node with an id. Raises UnknownSubject."""
    node = index_of(schedule).node(node_id)
    if node is None:
        raise UnknownSubject(f"there is no node {node_id}: schedule {schedule.index} has {len(schedule.nodes)} nodes")
    return node


def explain_named(schedule: Schedule, name: str) -> Iterable[Explanation]:
    """Yields what there is about the kernels with a name, and about the nodes of a line of the user's code."""
    named = find_named(schedule, name)
    for number in named.kernels:
        yield explain_kernel(schedule, number, schedule.kernels[number])
    for node_id in named.nodes:
        yield explain_node(schedule, find_node(schedule, node_id))


# *** a node


def explain_node(schedule: Schedule, node: Node) -> Explanation:
    """Returns every decision about a node."""
    index = index_of(schedule)
    readers = tuple(reader.id for reader in index.readers[node.id])
    steps = (
        Step("read by", (Fact("readers", readers) if readers else Fact("no-reader"),)),
        Step("ranges", (Fact(_find_origin(node, readers)),)),
        Step("realized", (Fact("not-realized" if node.realized is None else "realized"),)),
        Step("split", () if node.unsplit is None else (Fact("not-split"),)),
        Step("ambient ranges", tuple(_find_entries(index, node))),
        Step("BUFFERIZE", tuple(_find_buffer_facts(index, node))),
        Step("kernel", tuple(_find_kernel_facts(index, node))),
        Step("to fuse it", tuple(_advise(index, node))),
    )
    return Explanation(schedule.index, node.id, None, tuple(step for step in steps if step.facts))


def _find_origin(node: Node, readers: tuple[int, ...]) -> FactRule:
    if node.out_ranges is None or node.in_ranges is None:
        return "no-ranges"
    if node.realized is not None:
        return "new-ranges"
    return "ranges-of-reader" if len(readers) == 1 else "ranges-of-readers"


def _find_entries(index: ScheduleIndex, node: Node) -> Iterable[Fact]:
    """Each ambient range, with the nodes where it enters the scope."""
    sources = sorted(index.find_sources([node.id]) | {node.id})
    for name in node.ambient:
        entries = (index.nodes[source] for source in sources)
        yield Fact("ambient", tuple(n.id for n in entries if _brings(n, name)), (name,))


def _brings(node: Node, name: str) -> bool:
    return node.op == "VMAPIN" and name in (node.in_ranges or ()) and name not in (node.out_ranges or ())


def _find_buffer_facts(index: ScheduleIndex, node: Node) -> Iterable[Fact]:
    made = index.bufferizes.get(node.id)
    if made is None:
        return
    yield Fact("closes")
    yield Fact("outcome")
    for name in index.find_lost(made):
        yield Fact("not-closed", ranges=(name,))


def _find_kernel_facts(index: ScheduleIndex, node: Node) -> Iterable[Fact]:
    if node.id in index.writers:
        yield Fact("written-by", kernels=(index.writers[node.id][0],))
    inside = tuple(i for i, kernel in index.find_computing(node.id) if node.id not in kernel.outputs)
    if inside:
        yield Fact("computed-in", kernels=inside)
    reading = tuple(i for i, _ in index.find_reading(node.id))
    if reading:
        yield Fact("read-by-kernels", kernels=reading)


def _advise(index: ScheduleIndex, node: Node) -> Iterable[Fact]:
    """What would have to change for a buffer to go away."""
    made = index.bufferizes.get(node.id)
    if made is None or node.realized is None:
        return
    rule = None if made.decided is None else made.decided.rule
    if made.outcome == "removed":
        yield Fact("is-fused")
    elif node.realized.reason == "output":
        yield Fact("is-asked-for")
    elif node.op in {"CONTIGUOUS", "COPY", "ASSIGN"}:
        yield Fact("op-is-never-fused")
    elif rule == "many-buffers":
        yield Fact("reads-many-buffers")
    elif rule == "reduce-reads-buffer":
        disagree = node.realized.reason == "consumers-disagree"
        yield Fact("readers-disagree" if disagree else "is-read-many-times")


# *** a kernel


def explain_kernel(schedule: Schedule, number: int, kernel: Kernel) -> Explanation:
    """Returns what a kernel writes, computes and reads, and why it is not one with those it reads from."""
    index = index_of(schedule)
    fused = [n for n in kernel.nodes if n in index.bufferizes and n not in kernel.outputs]
    steps = (
        Step("writes", tuple(Fact("writes", (n,)) for n in kernel.outputs if n in index.nodes)),
        Step("computes", (Fact("computes", kernel.nodes),) if kernel.nodes else ()),
        Step("fused into it", tuple(Fact("fuses", (n,)) for n in fused)),
        Step("reads", tuple(Fact("reads", (n,), kernels=(index.writers[n][0],)) for n in index.find_read(kernel))),
        Step("work", (Fact("works"),)),
    )
    return Explanation(schedule.index, None, number, tuple(step for step in steps if step.facts))


# *** every boundary


def explain_boundaries(schedule: Schedule, again: Sequence[int] = ()) -> Explanation:
    """Returns one fact for each buffer between kernels: who writes it, and who reads it. `again` are the schedules that
    have the same kernels."""
    index = index_of(schedule)
    facts: list[Fact] = []
    for node_id, (writer, _) in index.writers.items():
        readers = tuple(i for i, _ in index.find_reading(node_id))
        if readers:
            facts.append(Fact("boundary", (node_id,), kernels=(writer, *readers)))
    return Explanation(schedule.index, None, None, (Step("boundaries", tuple(facts)),), tuple(again))
