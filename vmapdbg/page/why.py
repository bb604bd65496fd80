"""Why things are as they are: every decision about a node, a kernel or a boundary, in order, as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vmapdbg.model.capture import Capture, Kernel, Node, Schedule
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import ScheduleIndex, choose_numbered, find_distinct, find_named, index_of
from vmapdbg.model.wording import format_known, format_plural, inflect, join_counted, join_first
from vmapdbg.page.format import format_ids, format_shape, star_ambient

_MOST_READERS = 8
_MOST_KERNELS = 4


class UnknownSubject(Failure):
    """The subject of the question is not in the capture."""


class Topic(NamedTuple):
    """The sentences on one topic. `alerts` are sentences about a fault."""

    topic: str
    sentences: Sequence[str]
    alerts: Sequence[str] = ()


@dataclass(frozen=True)
class Explanation:
    """All decisions about one subject of a schedule: the node with an id, the kernel with a number, or, if both are
    None, all boundaries between kernels. `again` are later schedules with the same kernels."""

    schedule: int
    node: int | None
    kernel: int | None
    title: str
    steps: tuple[Topic, ...]
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
        # a schedule that is asked for is explained, even if it repeats an earlier one
        shown = [s for s in schedules if s.nodes and (s.index in again or schedule is not None)]
        return [explain_boundaries(s, again.get(s.index, ()) if schedule is None else ()) for s in shown]
    found: list[Explanation] = []
    for named in find_named(schedules, subject):
        item = named.schedule
        found += [explain_kernel(item, number, item.kernels[number]) for number in named.kernels]
        found += [explain_node(item, index_of(item).nodes[node_id]) for node_id in named.nodes]
    if not found and subject.isdecimal():
        chosen = choose_numbered(schedules)
        raise UnknownSubject(f"there is no node {subject}: schedule {chosen.index} has {len(chosen.nodes)} nodes")
    if not found:
        raise UnknownSubject(f"no kernel and no line of {capture.snippet} is called {subject!r}")
    return found


# *** a node


def explain_node(schedule: Schedule, node: Node) -> Explanation:
    """Returns every decision about a node."""
    index = index_of(schedule)
    made = index.bufferizes.get(node.id)
    realized = ["no: it is computed where it is read"]
    if node.realized is not None:
        realized = [f"{node.realized.reason}: {node.realized.detail}"]
    buffer, lost = list[str](), list[str]()
    if made is not None:
        closed = star_ambient(made.closed_ranges, made.ambient) or "no range"
        buffer.append(f"closes {closed}: {made.size} elements, {made.bytes} bytes, {made.addrspace}")
        buffer.append(f"{made.outcome}: {made.reason}")
        same = f"each step of it writes the same {made.size} elements, the last wins"
        lost += [f"ambient {name} is NOT closed: {same}" for name in index.find_lost(made)]
    steps = (
        Topic("read by", list(_say_readers(index, node))),
        Topic("ranges", [_say_ranges(index, node)]),
        Topic("realized", realized),
        Topic("split", [] if node.unsplit is None else [f"no: {node.unsplit.detail}"]),
        Topic("ambient ranges", list(_say_ambient(index, node))),
        Topic(schedule.buffer_op, buffer, lost),
        Topic("kernel", list(_say_kernels(index, node))),
    )
    words = ["node", str(node.id), node.op, node.arg, format_shape(node.shape), node.dtype]
    title = f"{' '.join(filter(None, words))}{format_known('  {}', node.line)}, schedule {schedule.index}"
    return Explanation(schedule.index, node.id, None, title, tuple(step for step in steps if step.sentences))


def _say_readers(index: ScheduleIndex, node: Node) -> Iterator[str]:
    readers = index.readers[node.id]
    if not readers:
        yield "nothing: it is an output"
    for reader in readers[:_MOST_READERS]:
        yield f"{reader.op} {reader.id} asks for {_format_ranges(reader.in_ranges)}"
    if len(readers) > _MOST_READERS:
        yield f"and {len(readers) - _MOST_READERS} more"


def _say_ranges(index: ScheduleIndex, node: Node) -> str:
    out, asked = node.out_ranges, node.in_ranges
    if out is None or asked is None:
        return "none: nothing that has ranges reads it"
    origin = "the reader's" if len(index.readers[node.id]) == 1 else "its readers agree on them"
    if node.realized is not None:
        origin = format_known("new on axis {}", ", ".join(map(str, node.realized.axes))) or "it has no axes"
    sources = "the same" if asked == out else _format_ranges(asked)
    return f"{_format_ranges(out)} ({origin}); its sources are asked for {sources}"


def _format_ranges(ranges: tuple[str, ...] | None) -> str:
    return "no ranges" if ranges is None else f"[{', '.join(ranges)}]"


def _say_ambient(index: ScheduleIndex, node: Node) -> Iterator[str]:
    """Yields each ambient range with the nodes where it enters the scope."""
    sources = sorted(index.find_sources([node.id]) | {node.id})
    entries = [entry for entry in map(index.nodes.get, sources) if entry is not None and entry.op == "VMAPIN"]
    for name in node.ambient:
        brings = [one for one in entries if name in (one.in_ranges or ()) and name not in (one.out_ranges or ())]
        places = [f"{one.op} {one.id}{format_known(' ({})', one.line)}" for one in brings[:3]]
        known = index.ranges.get(name)
        about = name if known is None else f"{name} ({known.size}, {known.axis_type})"
        yield f"{about} from {', '.join(places) or 'its own varg'}"


def _say_kernels(index: ScheduleIndex, node: Node) -> Iterator[str]:
    kernels = index.schedule.kernels
    if node.id in index.writers:
        yield f"{_name(kernels, index.writers[node.id][0])} computes it and writes its buffer"
    fused = [_name(kernels, i) for i, kernel in index.find_computing(node.id) if node.id not in kernel.outputs]
    if fused:
        yield f"computed inside {join_first(fused, _MOST_KERNELS)}"
    reading = [_name(kernels, i) for i, _ in index.find_reading(node.id)]
    if reading:
        yield f"its buffer is read by {', '.join(reading[:_MOST_KERNELS])}"


def _name(kernels: Sequence[Kernel], number: int) -> str:
    return f"{kernels[number].name} #{number}"


# *** a kernel


def explain_kernel(schedule: Schedule, number: int, kernel: Kernel) -> Explanation:
    """Returns what a kernel writes, computes and reads, and why it is not one with those it reads from."""
    index, kernels = index_of(schedule), schedule.kernels
    written = [index.nodes[node_id] for node_id in kernel.outputs if node_id in index.nodes]
    fused = [index.bufferizes[n] for n in kernel.nodes if n in index.bufferizes and n not in kernel.outputs]
    counts = Counter(map(index.op, kernel.nodes))
    computes = [f"{len(kernel.nodes)} nodes: {join_counted(counts.items())}"] if kernel.nodes else []
    reads = [
        f"{_label(index, n)} of {_name(kernels, index.writers[n][0])}: not fused, {_say_why_not_fused(index, n)}"
        for n in index.find_read(kernel)
    ]
    steps = (
        Topic("writes", [f"{node.op} {node.id}: {_say_why(node)}" for node in written]),
        Topic("computes", computes),
        Topic("fused into it", [f"{_label(index, made.node)}: {made.outcome}, {made.reason}" for made in fused]),
        Topic("reads", reads),
        Topic("work", [_say_work(kernel)]),
    )
    lines = format_known("  {}", ", ".join(kernel.lines[:3]))
    title = f"kernel {_name(kernels, number)}{lines}, schedule {schedule.index}"
    return Explanation(schedule.index, None, number, title, tuple(step for step in steps if step.sentences))


def _label(index: ScheduleIndex, node_id: int) -> str:
    return f"{index.op(node_id)} {node_id}"


def _say_work(kernel: Kernel) -> str:
    words = [f"{kernel.executed_ops:,} ops executed"]
    if kernel.redundancy is not None:
        words.append(f"{kernel.redundancy:.1f} times the ops the graph asks for")
    words += [f"{kernel.bytes:,} bytes moved", format_plural(kernel.threads, "thread")]
    if kernel.local_bytes:
        words.append(f"{kernel.local_bytes} bytes of LOCAL")
    if kernel.launches > 1:
        words.append(f"launched {kernel.launches} times")
    return ", ".join(words)


def _say_why(node: Node) -> str:
    if node.realized is None:
        return "not realized"
    return f"{node.realized.reason} ({node.realized.detail})"


def _say_why_not_fused(index: ScheduleIndex, node_id: int) -> str:
    node, made = index.nodes[node_id], index.bufferizes.get(node_id)
    decided = _say_why(node)
    # an output is kept because it is an output: one sentence is enough
    detail = "" if node.realized is None else node.realized.detail
    if made is None or made.reason in ("", detail):
        return decided
    return f"{decided}; {made.reason}"


# *** every boundary


def explain_boundaries(schedule: Schedule, again: Sequence[int] = ()) -> Explanation:
    """Returns a sentence for each buffer between kernels: its writer, its readers, and why they are not one kernel.

    `again` are the schedules that have the same kernels.
    """
    index, kernels = index_of(schedule), schedule.kernels
    sentences: list[str] = []
    for node_id, (writer, _) in index.writers.items():
        readers = [_name(kernels, i) for i, _ in index.find_reading(node_id)]
        if not readers:
            continue
        names = ", ".join(readers[:3])
        if len(readers) > 3:
            names += " ..."
        place = format_known("  [{}]", index.nodes[node_id].line)
        why = f"{_label(index, node_id)}: {_say_why_not_fused(index, node_id)}"
        sentences.append(f"{_name(kernels, writer)} not fused with {names}: {why}{place}")
    count = format_plural(len(kernels), "kernel")
    same = format_known(f"; the same again: {inflect(len(again), 'schedule')} {{}}", format_ids(again))
    title = f"schedule {schedule.index}{format_known('  {}', schedule.line)}, {count}{same}"
    return Explanation(schedule.index, None, None, title, (Topic("boundaries", sentences),), tuple(again))
