"""The user's files as one listing: lines with cost, reasons, findings. Below: cuts source texts into coloured parts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.token import Comment, Keyword, Name, Number, String

from vmapdbg.diff.source import keep_near
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.wording import split_place
from vmapdbg.page.format import list_places
from vmapdbg.page.overview import Cost, CostRow, RuleRow, count_rules, pair_costs
from vmapdbg.page.view import View

Part = tuple[str, str]
"""The CSS class of a piece of a line, empty for plain text, and its text."""

_AROUND = 12
"""Lines further than this from a line with a cost or an edit are left out."""


@dataclass(frozen=True)
class SourceFile:
    """A file with lines of a capture. If the capture does not have its text, that is None and `note` says so."""

    name: str
    text: str | None
    note: str = ""


def list_sources(capture: Capture) -> list[SourceFile]:
    """Returns the files that the lines of a capture name, the snippet first."""
    names = {split_place(line)[0] for line in list_places(capture)}
    unknown = "its text is not in the capture: its lines are shown without it"
    return [
        SourceFile(name, capture.sources.get(name), "" if name in capture.sources else unknown)
        for name in sorted(names, key=lambda name: (name != capture.snippet, name))
    ]


# *** notes next to a line


@dataclass
class LineNotes:
    """What is known of a line of the user's code. `number` is its number in the page; `remarks` are the rules that
    asked for its buffers. Of two runs, `findings` has the new findings, and `gone` the findings of before alone."""

    number: int
    line: str
    cost: CostRow
    remarks: list[RuleRow] = field(default_factory=list[RuleRow])
    findings: list[Finding] = field(default_factory=list[Finding])
    gone: list[Finding] = field(default_factory=list[Finding])


def collect_notes(view: View) -> dict[str, LineNotes]:
    """Returns the notes of each line by its name after. The lines of after come first."""
    costs = {row.name: row for row in pair_costs(view, "line")}
    names = dict.fromkeys([*list_places(view.after), *map(view.name_line, list_places(view.before))])
    rows = (costs.get(line) or CostRow(line, Cost(), Cost()) for line in names)
    notes = {row.name: LineNotes(number, row.name, row) for number, row in enumerate(rows)}
    for row in count_rules(view, by_line=True):
        # of two runs only changes
        if row.line and not (view.is_pair and row.before.nodes == row.after.nodes):
            notes[row.line].remarks.append(row)
    new, gone = (view.diff.findings_new, view.diff.findings_gone) if view.is_pair else (view.after.findings, ())
    for finding in new:
        if finding.line is not None:
            notes[finding.line].findings.append(finding)
    for finding in gone:
        if finding.line is not None:
            notes[view.name_line(finding.line)].gone.append(finding)
    return notes


# *** the listing


@dataclass(frozen=True)
class SourceLine:
    """A line to show, with its numbers; `kind` is `same`, `removed` or `added`."""

    kind: str
    before: int | None
    after: int | None
    parts: Sequence[Part]
    notes: LineNotes | None


@dataclass(frozen=True)
class SourceView:
    """A file to show, or both its edits. `lines` have the counts of lines left out above them. `unplaced` are lines
    that it lacks: the file is not here, or has changed."""

    names: tuple[str, ...]
    note: str
    lines: list[tuple[int, SourceLine]]
    unplaced: list[LineNotes]


def view_files(
    before: Sequence[SourceFile], after: Sequence[SourceFile], notes: Mapping[str, LineNotes], snippets: tuple[str, str]
) -> Iterator[SourceView]:
    """Yields the files of both sides; the two `snippets` are one listing. `notes` are by line after (else before)."""
    left = {file.name: file for file in before}
    for file in after:
        other = left.pop(file.name, None)
        if file.name == snippets[1] and snippets[0] in left:
            other = left.pop(snippets[0])
        yield _view(other or file, file, notes)
    yield from (_view(file, file, notes) for file in left.values())


def _view(before: SourceFile, after: SourceFile, notes: Mapping[str, LineNotes]) -> SourceView:
    lines = list(_list_lines(before, after, notes))
    important = [number for number, line in enumerate(lines) if line.notes is not None or line.kind != "same"]
    shown = [(gap, line) for gap, line in keep_near(lines, important, _AROUND) if line is not None]
    placed = {line.notes.line for line in lines if line.notes is not None}
    names = tuple(dict.fromkeys((before.name, after.name)))
    unplaced = [note for note in notes.values() if split_place(note.line)[0] in names and note.line not in placed]
    unplaced.sort(key=lambda note: split_place(note.line)[1] or 0)
    said = dict.fromkeys(note for note in (before.note, after.note) if note)
    return SourceView(names, "; ".join(said), shown, unplaced)


def _list_lines(before: SourceFile, after: SourceFile, notes: Mapping[str, LineNotes]) -> Iterator[SourceLine]:
    old, new = split_code(before.text, "python"), split_code(after.text, "python")
    texts = _split_lines(before.text), _split_lines(after.text)
    for tag, start, end, start_after, end_after in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        rows, kind = iter(range(start + 1, end + 1)), "same" if tag == "equal" else "added"
        if kind == "added":
            for row in rows:
                # the notes of an edited line are at its new place
                note = None if before.name == after.name else notes.get(f"{before.name}:{row}")
                yield SourceLine("removed", row, None, old[row - 1], note)
        for number in range(start_after + 1, end_after + 1):
            note = notes.get(f"{after.name}:{number}")
            yield SourceLine(kind, next(rows, None), number, new[number - 1], note)


# *** source text

_CLASSES = (
    (Comment, "tc"),
    (Keyword, "tk"),
    (String, "ts"),
    (Number, "tn"),
    (Name.Function, "tf"),
    (Name.Class, "tf"),
    (Name.Builtin, "tb"),
)
_MOST_COLOURED = 60_000
"""A longer text, in characters, stays plain: its colours would be most of the page."""


def _split_lines(text: str | None) -> list[str]:
    if text is None:
        return []
    # splitlines also cuts at a form feed, but Python's line numbers do not
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def split_code(text: str | None, language: str | None, plain: Collection[str] = ()) -> list[Sequence[Part]]:
    """Returns the lines of a text in parts; plain text for an unknown language. `plain` are classes to leave out."""
    written = _split_lines(text)
    plainly: list[Sequence[Part]] = [[("", line)] for line in written]
    if text is None or language is None or len(text) > _MOST_COLOURED:
        return plainly
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    lines: list[list[Part]] = [[]]
    for token, value in lexer.get_tokens("\n".join(written)):
        style = next((name for kind, name in _CLASSES if token in kind and name not in plain), "")
        for number, piece in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if piece and lines[-1] and lines[-1][-1][0] == style:
                piece = lines[-1].pop()[1] + piece
            if piece:
                lines[-1].append((style, piece))
    # a lexer may change the text: then show it without colours
    return plainly if ["".join(part for _, part in line) for line in lines] != written else [*lines]
