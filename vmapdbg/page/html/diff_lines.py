"""The user's files of two sides as one listing, and what each line comes to before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from vmapdbg.model.capture import Finding
from vmapdbg.model.place import split_place
from vmapdbg.page.html.code import Part, choose_near, split_python
from vmapdbg.page.html.lines import LineNotes
from vmapdbg.page.html.sources import SourceFile
from vmapdbg.page.overview import CostRow

_AROUND = 8
"""Lines of a long file further than this from a line with a cost or an edit are left out of view."""
_SHORT = 150


@dataclass(frozen=True)
class RemarkChange:
    """Why nodes of a line are realized, and how many before and after."""

    why: str
    before: int
    after: int

    @property
    def sign(self) -> str:
        """What stands before it: `+` for one that is only after, `-` for one that is only before."""
        if not self.before:
            return "+"
        if not self.after:
            return "-"
        return "~" if self.before != self.after else "="


@dataclass
class DiffNotes:
    """What is known of a line on both sides: `number` is that of the line in the page."""

    number: int
    line: str
    cost: CostRow
    remarks: list[RemarkChange] = field(default_factory=list[RemarkChange])
    gone: list[Finding] = field(default_factory=list[Finding])
    new: list[Finding] = field(default_factory=list[Finding])


@dataclass(frozen=True)
class DiffLine:
    """A line to show: its numbers before and after, and whether it is `same`, `removed` or `added`. `gap` counts the
    lines that are left out before it."""

    kind: str
    before: int | None
    after: int | None
    parts: Sequence[Part]
    notes: DiffNotes | None
    gap: int = 0


@dataclass(frozen=True)
class DiffSource:
    """A file to show, or two edits of it, and lines of it that it does not have."""

    title: str
    note: str
    lines: list[DiffLine]
    unplaced: list[DiffNotes]


def merge_remarks(before: LineNotes | None, after: LineNotes | None) -> list[RemarkChange]:
    """Returns why nodes of a line are realized, what changed first."""
    counts = [{} if side is None else {remark.why: remark.count for remark in side.remarks} for side in (before, after)]
    merged = [RemarkChange(why, counts[0].get(why, 0), counts[1].get(why, 0)) for why in {**counts[1], **counts[0]}]
    return sorted(merged, key=lambda remark: (remark.sign == "=", -abs(remark.after - remark.before)))


def view_files(
    before: Sequence[SourceFile], after: Sequence[SourceFile], notes: Mapping[str, DiffNotes], names: tuple[str, str]
) -> list[DiffSource]:
    """Returns the files of both sides; `names` are the two snippets, which are one listing where they are two files.
    `notes` has what is known of a line by its name after, or before where it is only there."""
    left = {file.name: file for file in before}
    views: list[DiffSource] = []
    for file in after:
        other = left.pop(file.name, None)
        if file.name == names[1] and names[0] in left:
            other = left.pop(names[0])
        views.append(_view(other or file, file, notes))
    views += [_view(file, file, notes) for file in left.values()]
    return views


def _view(before: SourceFile, after: SourceFile, notes: Mapping[str, DiffNotes]) -> DiffSource:
    lines = _list_lines(before, after, notes)
    placed = {line.notes.line for line in lines if line.notes is not None}
    names = {before.name, after.name}
    unplaced = [note for note in notes.values() if split_place(note.line)[0] in names and note.line not in placed]
    title = after.name
    if before.name != after.name:
        title = f"{before.name} -> {after.name}"
    said = dict.fromkeys(note for note in (before.note, after.note) if note)
    return DiffSource(title, "; ".join(said), _leave_out(lines), unplaced)


def _list_lines(before: SourceFile, after: SourceFile, notes: Mapping[str, DiffNotes]) -> list[DiffLine]:
    old, new = (_split(file) for file in (before, after))
    texts = [["".join(part for _, part in line) for line in side] for side in (old, new)]
    found: list[DiffLine] = []
    for tag, i, end, j, end_after in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if tag == "equal":
            for row, column in zip(range(i, end), range(j, end_after), strict=True):
                note = notes.get(f"{after.name}:{column + 1}")
                found.append(DiffLine("same", row + 1, column + 1, new[column], note))
            continue
        for row in range(i, end):
            # one that is edited has its notes where it is now
            note = notes.get(f"{before.name}:{row + 1}") if before.name != after.name else None
            found.append(DiffLine("removed", row + 1, None, old[row], note))
        for column in range(j, end_after):
            note = notes.get(f"{after.name}:{column + 1}")
            found.append(DiffLine("added", None, column + 1, new[column], note))
    return found


def _split(file: SourceFile) -> list[Sequence[Part]]:
    return [] if file.text is None else split_python(file.text)


def _leave_out(lines: Sequence[DiffLine]) -> list[DiffLine]:
    if len(lines) <= _SHORT:
        return [*lines]
    told = [number for number, line in enumerate(lines) if line.notes is not None or line.kind != "same"]
    return [replace(lines[number], gap=gap) for number, gap in choose_near(len(lines), told, _AROUND)]


def number_lines(before: Iterable[str], after: Iterable[str], same: Mapping[str, str]) -> dict[str, int]:
    """Numbers the lines of both sides, one that is on both by its name after."""
    names = [*after, *(same.get(line, line) for line in before)]
    return {line: number for number, line in enumerate(dict.fromkeys(names))}
