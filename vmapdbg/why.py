"""Why things are as they are: every decision about a node or a kernel, in order, from a Capture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vmapdbg.model import Capture, Kernel, Node, Schedule
from vmapdbg.schedule_index import index_of


class UnknownSubject(ValueError):
    """What was asked about is not in the capture; the message is one line for the user."""


@dataclass(frozen=True)
class Step:
    """One decision: a heading and its sentences."""

    heading: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """All decisions about one subject of one schedule."""

    title: str
    schedule: int
    steps: tuple[Step, ...]


def explain(capture: Capture, subject: str | None, schedule: int | None) -> list[Explanation]:
    """Returns what was decided about `subject`: a node id, a kernel's name, a `file:line`, or None for every boundary.

    Without a schedule number, a node id is looked up in the last schedule with kernels, a name or a line in all.
    Raises UnknownSubject.
    """
    views = [ScheduleGraph(s) for s in capture.schedules if schedule is None or s.index == schedule]
    if not views:
        raise UnknownSubject(f"there is no schedule {schedule}: {capture.snippet} made {len(capture.schedules)}")
    if subject is None:
        return [view.explain_boundaries() for view in views if view.schedule.nodes]
    if subject.isdecimal():
        view = next((v for v in reversed(views) if v.schedule.kernels), views[-1])
        return [view.explain_node(view.find_node(int(subject)))]
    found = [e for view in views for e in view.explain_named(subject)]
    if not found:
        raise UnknownSubject(f"no kernel and no line of {capture.snippet} is called {subject!r}")
    return found


class ScheduleGraph:
    """One schedule with the look-ups that the explanations need."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.nodes = {node.id: node for node in schedule.nodes}
        self.readers: dict[int, list[Node]] = {node.id: [] for node in schedule.nodes}
        for node in schedule.nodes:
            for source in dict.fromkeys(node.src):
                self.readers[source].append(node)
        self.bufferizes = {b.node: b for b in schedule.bufferizes}
        self.writer = {n: (i, k) for i, k in enumerate(schedule.kernels) for n in k.outputs}
        self.sizes = {r.name: f"{r.name} ({r.size}, {r.axis_type})" for r in schedule.ranges}

    # *** whom it is about

    def find_node(self, number: int) -> Node:
        if number not in self.nodes:
            raise UnknownSubject(
                f"there is no node {number}: schedule {self.schedule.index} has {len(self.nodes)} nodes"
            )
        return self.nodes[number]

    def explain_named(self, name: str) -> Iterable[Explanation]:
        for number, kernel in enumerate(self.schedule.kernels):
            if kernel.name == name:
                yield self.explain_kernel(number, kernel)
        at_line = [n for n in self.schedule.nodes if n.line is not None and _same_place(n.line, name)]
        shown = [n for n in at_line if n.id in self.bufferizes or n.op in {"VMAPIN", "VMAPOUT", "REDUCE_AXIS"}]
        yield from map(self.explain_node, shown or at_line[-1:])

    # *** a node

    def explain_node(self, node: Node) -> Explanation:
        steps = [
            Step("read by", tuple(self.describe_readers(node))),
            Step("ranges", (self.describe_ranges(node),)),
            Step("realized", tuple(self.describe_realized(node))),
            Step("ambient ranges", tuple(self.describe_ambient(node))),
            Step("BUFFERIZE", tuple(self.describe_bufferize(node))),
            Step("kernel", tuple(self.describe_kernels(node))),
            Step("to fuse it", tuple(self.advise(node))),
        ]
        shape = "" if node.shape is None else f" {_describe_shape(node.shape)}"
        place = f"  {node.line}" if node.line is not None else ""
        arg = f" {node.arg}" if node.arg else ""
        title = f"node {node.id} {node.op}{arg}{shape} {node.dtype}{place}, schedule {self.schedule.index}"
        return Explanation(title, self.schedule.index, tuple(step for step in steps if step.sentences))

    def describe_readers(self, node: Node) -> Iterable[str]:
        readers = self.readers[node.id]
        for reader in readers[:8]:
            asked = "no ranges" if reader.in_ranges is None else _describe_ranges(reader.in_ranges)
            yield f"{_label(reader)} asks for {asked}"
        if len(readers) > 8:
            yield f"and {len(readers) - 8} more"
        if not readers:
            yield "nothing: it is an output"

    def describe_ranges(self, node: Node) -> str:
        if node.out_ranges is None or node.in_ranges is None:
            return "none: nothing that has ranges reads it"
        out = _describe_ranges(node.out_ranges)
        if node.realized is not None:
            origin = (
                "new on axis " + ", ".join(map(str, node.realized.axes)) if node.realized.axes else "it has no axes"
            )
        else:
            origin = "the reader's" if len(self.readers[node.id]) == 1 else "its readers agree on them"
        if node.in_ranges == node.out_ranges:
            return f"{out} ({origin}); its sources are asked for the same"
        return f"{out} ({origin}); its sources are asked for {_describe_ranges(node.in_ranges)}"

    def describe_realized(self, node: Node) -> Iterable[str]:
        if node.realized is None:
            yield "no: it is computed where it is read"
            return
        yield f"{node.realized.reason}: {node.realized.detail}"
        if node.realized.reason in _RULES:
            yield _RULES[node.realized.reason]

    def describe_ambient(self, node: Node) -> Iterable[str]:
        for name in node.ambient:
            entries = [n for n in self.find_sources(node) if _enters(n, name)]
            places = ", ".join(f"{_label(n)}{f' ({n.line})' if n.line else ''}" for n in entries[:3])
            yield f"{self.sizes.get(name, name)} from {places or 'its own varg'}"

    def describe_bufferize(self, node: Node) -> Iterable[str]:
        made = self.bufferizes.get(node.id)
        if made is None:
            return
        ambient = set(made.ambient)
        closed = ", ".join(f"{r}*" if r in ambient else r for r in made.closed_ranges) or "no range"
        yield f"closes {closed}: {made.size} elements, {made.bytes} bytes, {made.addrspace}"
        yield f"{made.outcome}: {made.reason}"
        for name in index_of(self.schedule).find_lost(made):
            yield f"ambient {name} is NOT closed: each step of it writes the same {made.size} elements, the last wins"

    def describe_kernels(self, node: Node) -> Iterable[str]:
        if node.id in self.writer:
            number, kernel = self.writer[node.id]
            yield f"{kernel.name} #{number} computes it and writes its buffer"
        inside = [
            f"{k.name} #{i}"
            for i, k in enumerate(self.schedule.kernels)
            if node.id in k.nodes and node.id not in k.outputs
        ]
        if inside:
            yield f"computed inside {', '.join(inside[:4])}{f' and {len(inside) - 4} more' if len(inside) > 4 else ''}"
        reading = [f"{k.name} #{i}" for i, k in self.find_readers(node)]
        if reading:
            yield f"its buffer is read by {', '.join(reading[:4])}"

    def find_readers(self, node: Node) -> list[tuple[int, Kernel]]:
        """The kernels that read the buffer of a node: they compute a reader of it, and not the node itself."""
        if node.id not in self.writer:
            return []
        readers = {reader.id for reader in self.readers[node.id]}
        return [
            (i, k)
            for i, k in enumerate(self.schedule.kernels)
            if node.id not in k.nodes and readers.intersection(k.nodes)
        ]

    def advise(self, node: Node) -> Iterable[str]:
        """What would have to change for a buffer to go away."""
        made = self.bufferizes.get(node.id)
        if made is None or node.realized is None:
            return
        if made.outcome == "removed":
            yield "nothing: it is fused, its buffer was removed"
        elif node.realized.reason == "output":
            yield "it is asked for: realize only what reads it"
        elif node.op in {"CONTIGUOUS", "COPY", "ASSIGN"}:
            yield f"{node.op} is never fused: drop it{f' at {node.line}' if node.line else ''}"
        elif "buffers, more than 3" in made.reason:
            yield "let it read at most 3 buffers, so that the cost test lets its readers compute it"
        elif "a reduce" in made.reason or "reduces in" in made.reason:
            yield self.advise_reduce(node)

    def advise_reduce(self, node: Node) -> str:
        if node.realized is not None and node.realized.reason == "consumers-disagree":
            return "let its readers ask for the same ranges (the same index, no flip or shift between them)"
        return "let each element be read once: no EXPAND between its reduce and its readers"

    def find_sources(self, node: Node) -> list[Node]:
        found: dict[int, None] = {}
        stack = [node.id]
        while stack:
            number = stack.pop()
            if number not in found:
                found[number] = None
                stack += self.nodes[number].src
        return [self.nodes[number] for number in sorted(found)]

    # *** a kernel

    def explain_kernel(self, number: int, kernel: Kernel) -> Explanation:
        written = [self.nodes[n] for n in kernel.outputs if n in self.nodes]
        steps = [
            Step("writes", tuple(f"{_label(n)}: {_why_realized(n)}" for n in written)),
            Step("computes", tuple(self.describe_computed(kernel))),
            Step("fused into it", tuple(self.describe_fused(kernel))),
            Step("reads", tuple(self.describe_read(kernel))),
            Step("work", (_describe_work(kernel),)),
        ]
        lines = f"  {', '.join(kernel.lines[:3])}" if kernel.lines else ""
        title = f"kernel {kernel.name} #{number}{lines}, schedule {self.schedule.index}"
        return Explanation(title, self.schedule.index, tuple(step for step in steps if step.sentences))

    def describe_computed(self, kernel: Kernel) -> Iterable[str]:
        counts: dict[str, int] = {}
        for number in kernel.nodes:
            counts[self.nodes[number].op] = counts.get(self.nodes[number].op, 0) + 1
        if counts:
            ops = ", ".join(f"{count} {op}" if count > 1 else op for op, count in counts.items())
            yield f"{len(kernel.nodes)} nodes: {ops}"

    def describe_fused(self, kernel: Kernel) -> Iterable[str]:
        for number in kernel.nodes:
            made = self.bufferizes.get(number)
            if made is not None and number not in kernel.outputs:
                yield f"{_label(self.nodes[number])}: {made.outcome}, {made.reason}"

    def describe_read(self, kernel: Kernel) -> Iterable[str]:
        for number in sorted(self.writer):
            writer = self.writer[number]
            if any(k is kernel for _, k in self.find_readers(self.nodes[number])):
                node = self.nodes[number]
                yield f"{_label(node)} of {writer[1].name} #{writer[0]}: not fused, {self.describe_barrier(node)}"

    # *** every boundary

    def explain_boundaries(self) -> Explanation:
        """One line for each buffer between kernels: who writes, who reads, and why they are not one."""
        sentences = []
        for number, (writer_number, writer) in self.writer.items():
            node = self.nodes[number]
            readers = self.find_readers(node)
            if readers:
                names = ", ".join(f"{k.name} #{i}" for i, k in readers[:3]) + (" ..." if len(readers) > 3 else "")
                place = f"  [{node.line}]" if node.line else ""
                who = f"{writer.name} #{writer_number}"
                sentences.append(f"{who} not fused with {names}: {_label(node)}: {self.describe_barrier(node)}{place}")
        heading = "boundaries" if sentences else "no boundary: no kernel reads another one's buffer"
        where = f"  {self.schedule.line}" if self.schedule.line else ""
        title = f"schedule {self.schedule.index}{where}, {_plural(len(self.schedule.kernels), 'kernel')}"
        return Explanation(title, self.schedule.index, (Step(heading, tuple(sentences)),))

    def describe_barrier(self, node: Node) -> str:
        made = self.bufferizes.get(node.id)
        decided = _why_realized(node)
        return decided if made is None or made.reason in decided else f"{decided}; {made.reason}"


_RULES = {
    "consumers-disagree": "readers that ask for different ranges cannot share one loop: it is written once for all",
    "ending-ranges": "an EXPAND reads each element many times; without a buffer it would be computed again each time",
    "always": "this op is a buffer whatever its ranges are",
}


def _why_realized(node: Node) -> str:
    return "not realized" if node.realized is None else f"{node.realized.reason} ({node.realized.detail})"


def _describe_work(kernel: Kernel) -> str:
    redundancy = "" if kernel.redundancy is None else f", {kernel.redundancy:.1f} times the ops the graph asks for"
    local = f", {kernel.local_bytes} bytes of LOCAL" if kernel.local_bytes else ""
    launches = f", launched {kernel.launches} times" if kernel.launches > 1 else ""
    return (
        f"{kernel.executed_ops:,} ops executed{redundancy}, {kernel.bytes:,} bytes moved,"
        f" {_plural(kernel.threads, 'thread')}{local}{launches}"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _label(node: Node) -> str:
    return f"{node.op} {node.id}"


def _describe_ranges(ranges: tuple[str, ...]) -> str:
    return f"[{', '.join(ranges)}]"


def _describe_shape(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _enters(node: Node, name: str) -> bool:
    return node.op == "VMAPIN" and name in (node.in_ranges or ()) and name not in (node.out_ranges or ())


def _same_place(line: str, asked: str) -> bool:
    """`x.py:12` is also asked for as `samples/x.py:12` or by a longer path."""
    return line == asked or line.endswith("/" + asked) or asked.endswith("/" + line)
