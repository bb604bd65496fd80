"""Prints explanations: a title, and on each topic its sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.text import Text

from vmapdbg.model.capture import Bufferize, Capture, Kernel, Node, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_known, format_plural, inflect, join_counted, join_first
from vmapdbg.page.format import format_ids, format_shape, star_ambient
from vmapdbg.page.text.layout import escape_unsafe
from vmapdbg.page.text.view import ALERT
from vmapdbg.why import Explanation, Fact, FactRule, Step

_MOST_READERS = 8
_MOST_KERNELS = 4


def print_explanations(capture: Capture, explanations: Sequence[Explanation], console: Console) -> None:
    """Prints each explanation under its title; sentences are folded to the width of the console."""
    schedules = {schedule.index: schedule for schedule in capture.schedules}
    for position, explanation in enumerate(explanations):
        sentences = Sentences(schedules[explanation.schedule], explanation)
        if position:
            console.print()
        console.print(Text(_safe(sentences.say_title(), console), style="bold"))
        for step in explanation.steps:
            _print_step(step, sentences, console)


def _print_step(step: Step, sentences: Sentences, console: Console) -> None:
    if not step.facts:
        console.print(Text("  no boundary: no kernel reads another one's buffer", style="dim"))
        return
    heading: str = sentences.schedule.buffer_op if step.topic == "BUFFERIZE" else step.topic
    for fact in step.facts:
        style = ALERT if fact.rule == "not-closed" else ""
        for sentence in sentences.say(fact):
            _print_hanging(f"  {heading:<15}", Text(_safe(sentence, console), style=style), console)
            heading = ""


def _print_hanging(label: str, text: Text, console: Console) -> None:
    width = max(20, console.width - len(label))
    for number, line in enumerate(text.wrap(console, width)):
        if number:
            label = " " * len(label)
        shown = Text(label, style="cyan")
        shown.append_text(line)
        shown.rstrip()
        console.print(shown, no_wrap=True, overflow="ignore", crop=False)


def _safe(value: str, console: Console) -> str:
    return escape_unsafe(value, console.encoding)


class Sentences:
    """The sentences of one explanation."""

    def __init__(self, schedule: Schedule, explanation: Explanation) -> None:
        self.schedule, self.index = schedule, index_of(schedule)
        self.subject, self.kernel_number = explanation.node, explanation.kernel
        self.again = explanation.again
        self._say: dict[FactRule, Callable[[Fact], Iterable[str]]] = {
            "readers": self._say_readers,
            "new-ranges": self._say_new_ranges,
            "ranges-of-reader": lambda fact: self._say_ranges("the reader's"),
            "ranges-of-readers": lambda fact: self._say_ranges("its readers agree on them"),
            "realized": self._say_realized,
            "not-split": self._say_not_split,
            "ambient": self._say_ambient,
            "closes": self._say_closes,
            "outcome": lambda fact: [f"{self.made.outcome}: {self.made.reason}"],
            "not-closed": self._say_not_closed,
            "written-by": lambda fact: [f"{self._name(fact.kernels[0])} computes it and writes its buffer"],
            "computed-in": self._say_computed_in,
            "read-by-kernels": lambda fact: [f"its buffer is read by {self._name_all(fact.kernels[:_MOST_KERNELS])}"],
            "op-is-never-fused": self._say_never_fused,
            "writes": lambda fact: [f"{self._label(fact.nodes[0])}: {_say_why(self.index.nodes[fact.nodes[0]])}"],
            "computes": self._say_computes,
            "fuses": self._say_fuses,
            "reads": self._say_reads,
            "works": self._say_work,
            "boundary": self._say_boundary,
        }

    def say(self, fact: Fact) -> Iterable[str]:
        """Returns the sentences of a fact."""
        if fact.rule in _PLAIN:
            return [_PLAIN[fact.rule]]
        return self._say[fact.rule](fact)

    def say_title(self) -> str:
        """Returns whom the explanation is about."""
        schedule = f"schedule {self.schedule.index}"
        if self.subject is not None:
            node = self.node
            words = ["node", str(node.id), node.op, node.arg, format_shape(node.shape), node.dtype]
            return f"{' '.join(filter(None, words))}{format_known('  {}', node.line)}, {schedule}"
        if self.kernel_number is not None:
            lines = ", ".join(self.kernel.lines[:3])
            return f"kernel {self._name(self.kernel_number)}{format_known('  {}', lines)}, {schedule}"
        count = format_plural(len(self.schedule.kernels), "kernel")
        noun = inflect(len(self.again), "schedule")
        again = format_known(f"; the same again: {noun} {{}}", format_ids(self.again))
        return f"{schedule}{format_known('  {}', self.schedule.line)}, {count}{again}"

    # *** names

    @property
    def node(self) -> Node:
        assert self.subject is not None
        return self.index.nodes[self.subject]

    @property
    def kernel(self) -> Kernel:
        assert self.kernel_number is not None
        return self.schedule.kernels[self.kernel_number]

    @property
    def made(self) -> Bufferize:
        return self.index.bufferizes[self.node.id]

    def _name(self, kernel: int) -> str:
        return f"{self.schedule.kernels[kernel].name} #{kernel}"

    def _name_all(self, kernels: Sequence[int]) -> str:
        return ", ".join(map(self._name, kernels))

    def _label(self, node_id: int) -> str:
        return f"{self.index.op(node_id)} {node_id}"

    # *** a node

    def _say_readers(self, fact: Fact) -> Iterable[str]:
        for node_id in fact.nodes[:_MOST_READERS]:
            ranges = self.index.nodes[node_id].in_ranges
            yield f"{self._label(node_id)} asks for {_format_ranges(ranges)}"
        if len(fact.nodes) > _MOST_READERS:
            yield f"and {len(fact.nodes) - _MOST_READERS} more"

    def _say_new_ranges(self, fact: Fact) -> Iterable[str]:
        realized = self.node.realized
        if realized is None or not realized.axes:
            return self._say_ranges("it has no axes")
        return self._say_ranges(f"new on axis {', '.join(map(str, realized.axes))}")

    def _say_ranges(self, origin: str) -> Iterable[str]:
        out, asked = self.node.out_ranges or (), self.node.in_ranges or ()
        sources = _format_ranges(asked)
        if asked == out:
            sources = "the same"
        return [f"{_format_ranges(out)} ({origin}); its sources are asked for {sources}"]

    def _say_realized(self, fact: Fact) -> Iterable[str]:
        realized = self.node.realized
        if realized is not None:
            yield f"{realized.reason}: {realized.detail}"
            if realized.reason in _MEANINGS:
                yield _MEANINGS[realized.reason]

    def _say_not_split(self, fact: Fact) -> Iterable[str]:
        if self.node.unsplit is not None:
            yield f"no: {self.node.unsplit.detail}"

    def _say_ambient(self, fact: Fact) -> Iterable[str]:
        entries = [self.index.nodes[node_id] for node_id in fact.nodes[:3]]
        places = [self._label(node.id) + format_known(" ({})", node.line) for node in entries]
        for name in fact.ranges:
            known = self.index.ranges.get(name)
            about = name
            if known is not None:
                about = f"{name} ({known.size}, {known.axis_type})"
            yield f"{about} from {', '.join(places) or 'its own varg'}"

    def _say_closes(self, fact: Fact) -> Iterable[str]:
        made = self.made
        closed = star_ambient(made.closed_ranges, made.ambient) or "no range"
        return [f"closes {closed}: {made.size} elements, {made.bytes} bytes, {made.addrspace}"]

    def _say_not_closed(self, fact: Fact) -> Iterable[str]:
        lost = f"each step of it writes the same {self.made.size} elements, the last wins"
        return [f"ambient {name} is NOT closed: {lost}" for name in fact.ranges]

    def _say_computed_in(self, fact: Fact) -> Iterable[str]:
        return [f"computed inside {join_first([self._name(i) for i in fact.kernels], _MOST_KERNELS)}"]

    def _say_never_fused(self, fact: Fact) -> Iterable[str]:
        return [f"{self.node.op} is never fused: drop it{format_known(' at {}', self.node.line)}"]

    # *** a kernel

    def _say_computes(self, fact: Fact) -> Iterable[str]:
        counts = Counter(map(self.index.op, fact.nodes))
        return [f"{len(fact.nodes)} nodes: {join_counted(counts.items())}"]

    def _say_fuses(self, fact: Fact) -> Iterable[str]:
        made = self.index.bufferizes[fact.nodes[0]]
        return [f"{self._label(made.node)}: {made.outcome}, {made.reason}"]

    def _say_reads(self, fact: Fact) -> Iterable[str]:
        node_id, writer = fact.nodes[0], fact.kernels[0]
        return [f"{self._label(node_id)} of {self._name(writer)}: not fused, {self._say_why_not_fused(node_id)}"]

    def _say_work(self, fact: Fact) -> Iterable[str]:
        kernel = self.kernel
        words = [f"{kernel.executed_ops:,} ops executed"]
        if kernel.redundancy is not None:
            words.append(f"{kernel.redundancy:.1f} times the ops the graph asks for")
        words += [f"{kernel.bytes:,} bytes moved", format_plural(kernel.threads, "thread")]
        if kernel.local_bytes:
            words.append(f"{kernel.local_bytes} bytes of LOCAL")
        if kernel.launches > 1:
            words.append(f"launched {kernel.launches} times")
        return [", ".join(words)]

    # *** a boundary

    def _say_boundary(self, fact: Fact) -> Iterable[str]:
        (node_id,), (writer, *readers) = fact.nodes, fact.kernels
        names = self._name_all(readers[:3])
        if len(readers) > 3:
            names += " ..."
        place = format_known("  [{}]", self.index.nodes[node_id].line)
        why = f"{self._label(node_id)}: {self._say_why_not_fused(node_id)}"
        return [f"{self._name(writer)} not fused with {names}: {why}{place}"]

    def _say_why_not_fused(self, node_id: int) -> str:
        node, made = self.index.nodes[node_id], self.index.bufferizes.get(node_id)
        decided = _say_why(node)
        # an output is kept because it is an output: that is said once
        said = "" if node.realized is None else node.realized.detail
        if made is None or made.reason in ("", said):
            return decided
        return f"{decided}; {made.reason}"


_PLAIN: dict[FactRule, str] = {
    "no-reader": "nothing: it is an output",
    "no-ranges": "none: nothing that has ranges reads it",
    "not-realized": "no: it is computed where it is read",
    "is-fused": "nothing: it is fused, its buffer was removed",
    "is-asked-for": "it is asked for: realize only what reads it",
    "reads-many-buffers": "let it read at most 3 buffers, so that the cost test lets its readers compute it",
    "readers-disagree": "let its readers ask for the same ranges (the same index, no flip or shift between them)",
    "is-read-many-times": "let each element be read once: no EXPAND between its reduce and its readers",
}

_MEANINGS = {
    "consumers-disagree": "readers that ask for different ranges cannot share one loop: it is written once for all",
    "ending-ranges": "an EXPAND reads each element many times; without a buffer it would be computed again each time",
    "always": "this op is a buffer whatever its ranges are",
}


def _say_why(node: Node) -> str:
    if node.realized is None:
        return "not realized"
    return f"{node.realized.reason} ({node.realized.detail})"


def _format_ranges(ranges: tuple[str, ...] | None) -> str:
    if ranges is None:
        return "no ranges"
    return f"[{', '.join(ranges)}]"
