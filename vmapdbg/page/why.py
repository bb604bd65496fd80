"""Why things are as they are: every decision about a node, a kernel or a boundary, in order, as sentences."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vmapdbg.model import schedule_index
from vmapdbg.model.capture import Capture, Kernel, Node, Schedule
from vmapdbg.model.failure import Failure
from vmapdbg.model.ops import COMPUTES_NOTHING
from vmapdbg.model.schedule_index import ScheduleIndex, count_elements, group_equal, index_of, kernel_identity
from vmapdbg.model.wording import format_known, format_plural, join_counted, join_first
from vmapdbg.page.format import format_bytes, format_count, format_shape, star_ambient

_MOST_READERS, _MOST_KERNELS, _MOST_NAMES = 8, 4, 3


class UnknownSubject(Failure):
    """The subject of the question is not in the capture."""


class Topic(NamedTuple):
    """The sentences on one topic. `alerts` are sentences about a fault."""

    topic: str
    sentences: Sequence[str]
    alerts: Sequence[str] = ()


@dataclass(frozen=True)
class Explanation:
    """All decisions about a node, a kernel, or the buffer between two kernels (a boundary, which has both numbers).
    `name` is the subject's name alone. Equal subjects, such as those of layers, share a `kind`. `cost`: ops, bytes."""

    schedule: int
    node: int | None
    kernel: int | None
    name: str
    title: str
    steps: tuple[Topic, ...]
    kind: Hashable = None
    cost: tuple[int, int] = (0, 0)

    @property
    def text(self) -> str:
        """The title, and a line for each sentence."""
        said = (f"  {step.topic}: {one}" for step in self.steps for one in (*step.sentences, *step.alerts))
        return "\n".join([self.title, *said])


def explain(capture: Capture, subject: str | None, schedule: int | None) -> list[Explanation]:
    """Returns what was decided about a node id, `SCHEDULE/NODE`, kernel name, `file:line`, or every boundary (None);
    the most costly first. Without `schedule`, an id is of the last schedule with kernels. Raises UnknownSubject."""
    schedules = [s for s in capture.schedules if schedule is None or s.index == schedule]
    if not schedules:
        raise UnknownSubject(schedule_index.refuse_schedule(schedule, capture))
    found: list[Explanation] = []
    if subject is None:
        return _rank(boundary for one in schedules for boundary in explain_boundaries(one))
    for named in schedule_index.find_named(schedules, subject):
        item = named.schedule
        found += [explain_kernel(item, number, item.kernels[number]) for number in named.kernels]
        found += [explain_node(item, index_of(item).nodes[node_id]) for node_id in named.nodes]
    if not found and subject.isdecimal():
        chosen = schedule_index.choose_numbered(schedules)
        raise UnknownSubject(f"there is no node {subject}: schedule {chosen.index} has {len(chosen.nodes)} nodes")
    if not found:
        raise UnknownSubject(f"no kernel and no line of {capture.snippet} is called {subject!r}")
    return _rank(found)


def _rank(explanations: Iterable[Explanation]) -> list[Explanation]:
    return sorted(explanations, key=lambda one: one.cost, reverse=True)


def explain_node(schedule: Schedule, node: Node) -> Explanation:
    """Returns every decision about a node."""
    index = index_of(schedule)
    made = index.bufferizes.get(node.id)
    decided = node.realized
    why = f"{decided.reason}: {decided.detail}" if decided else "it is computed where it is read"
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
        Topic("decision", [f"{index.name_decision(node)}, {why}"]),
        Topic("split", [] if node.unsplit is None else [f"no: {node.unsplit.detail}"]),
        Topic("ambient ranges", list(_say_ambient(index, node))),
        Topic(schedule.buffer_op, buffer, lost),
        Topic("kernel", list(_say_kernels(index, node))),
    )
    name = schedule_index.name_node(schedule.index, node.id)
    words = ["node", name, node.op, node.arg, format_shape(node.shape), node.dtype]
    title = f"{' '.join(filter(None, words))}{format_known('  {}', node.line)}"
    outcome = made and (made.outcome, made.decided and made.decided.rule)
    kind = node.op, node.arg, node.shape, node.dtype, node.line, decided and decided.reason, outcome
    cost = _count_asked(index, node), 0 if (kept := index.find_kept(node.id)) is None else kept.bytes
    said = tuple(step for step in steps if step.sentences)
    return Explanation(schedule.index, node.id, None, name, title, said, kind, cost)


def _count_asked(index: ScheduleIndex, node: Node) -> int:
    """Returns how many elements a node computes, or a reduce takes in."""
    if node.op in COMPUTES_NOTHING:
        return 0
    return max(
        count_elements(node.shape), *(count_elements(index.nodes[n].shape) for n in node.src if n in index.nodes), 0
    )


def _say_readers(index: ScheduleIndex, node: Node) -> Iterator[str]:
    if not (readers := index.readers[node.id]):
        yield "nothing: it is an output"
    for reader in readers[:_MOST_READERS]:
        yield f"{index.label(reader.id)} asks for {_format_ranges(reader.in_ranges)}"
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
    if not node.ambient:
        return
    sources = sorted(index.find_sources([node.id]) | {node.id})
    entries = [entry for entry in map(index.nodes.get, sources) if entry is not None and entry.op == "VMAPIN"]
    for name in node.ambient:
        brings = [one for one in entries if name in (one.in_ranges or ()) and name not in (one.out_ranges or ())]
        places = [f"{one.op} {one.id}{format_known(' ({})', one.line)}" for one in brings[:3]]
        known = index.ranges.get(name)
        about = name if known is None else f"{name} ({known.size}, {known.axis_type})"
        yield f"{about} from {', '.join(places) or 'its own varg'}"


def _say_kernels(index: ScheduleIndex, node: Node) -> Iterator[str]:
    if node.id in index.writers:
        yield f"{index.name_kernel(index.writers[node.id][0])} computes it and writes its buffer"
    fused = [index.name_kernel(i) for i, kernel in index.computing[node.id].items() if node.id not in kernel.outputs]
    if fused:
        yield f"computed inside {join_first(fused, _MOST_KERNELS)}"
    if reading := [index.name_kernel(i) for i, _ in index.find_reading(node.id)]:
        yield f"its buffer is read by {', '.join(reading[:_MOST_KERNELS])}"


def explain_kernel(schedule: Schedule, number: int, kernel: Kernel) -> Explanation:
    """Returns what a kernel writes, computes and reads, and why it is not one with those it reads from."""
    index = index_of(schedule)
    written = [index.nodes[node_id] for node_id in kernel.outputs if node_id in index.nodes]
    counts = Counter(map(index.op, kernel.nodes))
    computes = [f"{len(kernel.nodes)} nodes: {join_counted(counts.items())}"] if kernel.nodes else []
    reads = [
        f"{index.label(n)} of {index.name_kernel(index.writers[n][0])}: not fused, {_say_why_not_fused(index, n)}"
        for n in index.find_read(kernel)
    ]
    steps = (
        Topic("writes", [f"{node.op} {node.id}: {_say_rule(node)}" for node in written]),
        Topic("computes", computes),
        Topic("fused into it", list(_say_fused(index, kernel))),
        Topic("reads", reads),
        Topic("work", list(map(", ".join, describe_work(kernel)))),
    )
    lines = format_known("  {}", ", ".join(kernel.lines[:3]))
    name = f"#{number} of schedule {schedule.index}"
    title = f"kernel {index.name_kernel(number)}{lines}, schedule {schedule.index}"
    kind, cost = (kernel_identity(kernel), kernel.name), (kernel.executed_ops, kernel.bytes)
    said = tuple(step for step in steps if step.sentences)
    return Explanation(schedule.index, None, number, name, title, said, kind, cost)


def _say_fused(index: ScheduleIndex, kernel: Kernel) -> Iterator[str]:
    """Yields the nodes that a kernel computes without their buffers, by the reason; most nodes first."""
    inside = [index.bufferizes[n] for n in kernel.nodes if n in index.bufferizes and n not in kernel.outputs]
    for same in sorted(group_equal(inside, lambda made: (made.outcome, made.reason)), key=len, reverse=True):
        names = join_first([index.label(made.node) for made in same], _MOST_NAMES)
        yield f"{names}: {same[0].outcome}, {same[0].reason}"


def describe_work(kernel: Kernel) -> tuple[list[str], list[str]]:
    """Returns what a kernel executes, and how it is launched."""
    ops = [f"{format_count(kernel.executed_ops)} ops executed"]
    if kernel.redundancy:
        ops.append(f"redundancy {kernel.redundancy:.1f}x")
    launch = [format_plural(kernel.threads, "thread")]
    launch += [f"{format_bytes(kernel.local_bytes)} LOCAL"] * (kernel.local_bytes > 0)
    launch += [format_plural(kernel.launches, "launch", "launches")] * (kernel.launches != 1)
    return ops, [*launch, f"moves {format_bytes(kernel.bytes)}"]


def _say_rule(node: Node) -> str:
    if node.realized is None:
        return "no rule asked for its buffer"
    return f"{node.realized.reason} ({node.realized.detail})"


def _say_why_not_fused(index: ScheduleIndex, node_id: int) -> str:
    node, made = index.nodes[node_id], index.bufferizes.get(node_id)
    # an output is kept because it is an output: one sentence is enough
    detail = "" if node.realized is None else node.realized.detail
    return _say_rule(node) if made is None or made.reason in ("", detail) else f"{_say_rule(node)}; {made.reason}"


def explain_boundaries(schedule: Schedule) -> Iterator[Explanation]:
    """Yields each buffer between kernels, with the reason. It costs the bytes that are written and read again."""
    index = index_of(schedule)
    for node_id, (writer, kernel) in index.writers.items():
        reading = index.find_reading(node_id)
        if not reading:
            continue
        node, made = index.nodes[node_id], index.find_kept(node_id)
        size, name = 0 if made is None else made.bytes, schedule_index.name_node(schedule.index, node_id)
        names = join_first([index.name_kernel(number) for number, _ in reading], _MOST_KERNELS)
        rule = node.realized and node.realized.reason
        title = "  ".join(filter(None, (format_bytes(size), f"{node.op} {name}", node.line, rule)))
        apart = Topic("kernels", [f"{index.name_kernel(writer)} not fused with {names}"])
        why = Topic("why", [_say_why_not_fused(index, node_id)])
        kind = kernel_identity(kernel), *(kernel_identity(reader) for _, reader in reading), node.line, rule
        cost = size * (1 + len(reading)), kernel.executed_ops
        yield Explanation(schedule.index, node_id, writer, name, title, (apart, why), kind, cost)
