"""What stands beside each line of the user's source: its cost, why its nodes are realized, and findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vmapdbg.model.capture import Capture, Finding, Node, Realized, Schedule
from vmapdbg.model.place import split_place
from vmapdbg.model.schedule_index import index_of
from vmapdbg.page.html.code import Part, choose_near, split_python
from vmapdbg.page.html.nodes import NodeKey
from vmapdbg.page.html.sources import SourceFile
from vmapdbg.page.overview import Cost, count_lines
from vmapdbg.page.sentences import Names, say_briefly
from vmapdbg.page.view import View

_AROUND = 12
"""Lines of a long file further than this from a line with a cost are left out of view."""
_SHORT = 150
"""A file of so many lines is shown whole."""
_MOST_REMARKS = 4


@dataclass
class Remark:
    """Why `count` nodes of a line are realized. `example` is the first of them, and `shown` whether the page explains
    it."""

    why: str
    example: NodeKey
    count: int = 0
    shown: bool = False


@dataclass
class LineNotes:
    """What is known of a line of the user's code: `number` is that of the line in the page."""

    number: int
    line: str
    cost: Cost
    remarks: list[Remark] = field(default_factory=list[Remark])
    findings: list[Finding] = field(default_factory=list[Finding])
    more: int = 0


@dataclass(frozen=True)
class SourceLine:
    """A line to show. `gap` counts the lines that are left out before it."""

    number: int
    parts: Sequence[Part]
    notes: LineNotes | None
    gap: int = 0


@dataclass(frozen=True)
class SourceView:
    """A file to show."""

    file: SourceFile
    lines: list[SourceLine]
    unplaced: list[LineNotes]
    """Lines that the file does not have: it is not here, or it has changed."""


def list_lines(capture: Capture) -> list[str]:
    """Returns every line that a capture names, each once."""
    found: dict[str, None] = {}
    for schedule in capture.schedules:
        for node in schedule.nodes:
            if node.line is not None:
                found.setdefault(node.line)
        found.update(dict.fromkeys(line for kernel in schedule.kernels for line in kernel.lines))
    found.update(dict.fromkeys(item.line for item in capture.findings if item.line is not None))
    return list(found)


def collect_notes(capture: Capture, nodes: Iterable[NodeKey]) -> dict[str, LineNotes]:
    """Returns what is known of each line; `nodes` are those that the page explains."""
    costs = {row.name: row.after for row in count_lines(View.of_one(capture))}
    lines = list_lines(capture)
    notes = {line: LineNotes(i, line, costs.get(line) or Cost()) for i, line in enumerate(lines)}
    shown = frozenset(nodes)
    remarks: dict[tuple[str, str], Remark] = {}
    for schedule in capture.schedules:
        for node in schedule.nodes:
            if node.realized is not None and node.line is not None:
                _count_realized(schedule, node, node.realized, notes[node.line], remarks, shown)
    for finding in capture.findings:
        if finding.line is not None:
            notes[finding.line].findings.append(finding)
    for note in notes.values():
        note.remarks.sort(key=lambda remark: -remark.count)
        note.more = sum(remark.count for remark in note.remarks[_MOST_REMARKS:])
        del note.remarks[_MOST_REMARKS:]
    return notes


def _count_realized(
    schedule: Schedule,
    node: Node,
    realized: Realized,
    notes: LineNotes,
    remarks: dict[tuple[str, str], Remark],
    shown: frozenset[NodeKey],
) -> None:
    why = _say_why(schedule, realized)
    key = schedule.index, node.id
    if (notes.line, why) not in remarks:
        remarks[notes.line, why] = Remark(why, key)
        notes.remarks.append(remarks[notes.line, why])
    remark = remarks[notes.line, why]
    remark.count += 1
    if not remark.shown and key in shown:
        remark.example, remark.shown = key, True


def _say_why(schedule: Schedule, realized: Realized) -> str:
    """The rule in a few words, so that equal reasons of many nodes are one remark."""
    reason = next(iter(realized.reasons), None)
    rule = realized.reason if reason is None else reason.rule
    why = say_briefly(rule, reason, Names(index_of(schedule).op))
    if reason is None and why == rule:
        # an older capture has only the sentence
        return realized.detail or why
    return why


def view_source(file: SourceFile, notes: Iterable[LineNotes]) -> SourceView:
    """Returns a file with what is known of its lines."""
    placed: dict[int, LineNotes] = {}
    lines = [] if file.text is None else split_python(file.text)
    unplaced: list[LineNotes] = []
    for note in notes:
        name, number = split_place(note.line)
        if name != file.name:
            continue
        if number is None or not 0 < number <= len(lines):
            unplaced.append(note)
        else:
            placed[number] = note
    unplaced.sort(key=lambda note: split_place(note.line)[1] or 0)
    return SourceView(file, _choose_lines(lines, placed), unplaced)


def _choose_lines(lines: Sequence[Sequence[Part]], placed: dict[int, LineNotes]) -> list[SourceLine]:
    told = [number - 1 for number in placed] if len(lines) > _SHORT else range(len(lines))
    shown = choose_near(len(lines), told, _AROUND)
    return [SourceLine(i + 1, lines[i], placed.get(i + 1), gap) for i, gap in shown]
