"""Kernel source as text: highlighted, and folded between tokens so that it can still be read and compiled."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.syntax import Syntax
from rich.text import Text

from vmapdbg.install.targets import language_of
from vmapdbg.model.capture import Kernel
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_ids
from vmapdbg.page.text.crash import format_failed_kernel
from vmapdbg.page.text.layout import Page, escape_unsafe
from vmapdbg.page.text.view import ALERT, ScheduleView

_THEME = "ansi_dark"
_MORE_INDENT = 4
# A fold goes to the last space when that leaves less than a third of the line empty.
_LATE = 2 / 3
# What a fold must not cut: an identifier or number, an operator, a string, a run of spaces.
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[\w.$@%]+|\s+|->|<<=?|>>=?|[-+*/<>=!&|]=|&&|\|\||\+\+|--|::|//|/\*|\*/|.')


def format_source(view: ScheduleView) -> list[Text]:
    """Returns the source section of a schedule as lines. Each program is printed once: a kernel with the source of an
    earlier one gets one line."""
    page = view.page
    lines: list[Text] = []
    again: dict[tuple[str, str], list[int]] = {}
    for number, kernel in view.kernels.items():
        if kernel.failed is not None:
            lines += format_failed_kernel(view, number)
            continue
        title = f"#{number} {kernel.name}"
        here = f"{title} of schedule {view.schedule.index}"
        first = view.whole.printed_sources.setdefault(kernel.source, here)
        if first == here:
            if lines:
                lines.append(Text())
            lines += _format_kernel_source(view, title, kernel, _find_marks(view, kernel, number))
        else:
            again.setdefault((kernel.name, first), []).append(number)
    if lines and again:
        lines.append(Text())
    for (name, first), numbers in again.items():
        note = f"#{format_ids(numbers)} {name}: same source as {first}"
        lines += page.wrap((note, "dim"), hang=2)
    if not lines:
        return page.head("Source", "no kernel")
    return [page.join(("Source", "bold")), *lines]


def _find_marks(view: ScheduleView, kernel: Kernel, number: int) -> dict[int, str]:
    """Returns line of the source (from 1) -> the codes of the findings about it."""
    marks: dict[int, str] = {}
    for found in view.findings.find_for_kernel(kernel, view.schedule.index, number):
        if found.source_line is not None:
            marks[found.source_line] = ", ".join(filter(None, (marks.get(found.source_line), found.code)))
    return marks


def _format_kernel_source(view: ScheduleView, title: str, kernel: Kernel, marks: dict[int, str]) -> list[Text]:
    page = view.page
    code = escape_unsafe(kernel.source.strip("\n"), page.console.encoding)
    size = format_plural(len(code.splitlines()), "line")
    heading = page.join((title, "bold"), (f"  {kernel.target}, {size}", "dim"))
    text = highlight(code, kernel.target) if page.is_coloured else Text(code)
    if view.whole.copies_source:
        return [*page.wrap(heading, hang=2), *_split_lines(text)]
    return [*page.wrap(heading, hang=2), *_fold_marked(page, text, marks)]


def _fold_marked(page: Page, code: Text, marks: dict[int, str]) -> list[Text]:
    """Returns the lines of `code` with `^ VD101` below those that a finding is about."""
    if not marks:
        return fold_code(code, page.width)
    lines: list[Text] = []
    every = list(code.split("\n", allow_blank=True))
    for number, line in enumerate(every, start=1):
        lines += fold_code(line, page.width)
        if number in marks:
            indent = len(line.plain) - len(line.plain.lstrip())
            lines += page.wrap((f"^ {marks[number]}", ALERT), indent=min(indent, page.width // 2))
    return lines


def highlight(code: str, target: str) -> Text:
    """Returns source text coloured for `target`; plain where pygments has no lexer for it."""
    lexer = language_of(target)
    if lexer is None:
        return Text(code)
    text = Syntax("", lexer, theme=_THEME, background_color="default").highlight(code)
    text.rstrip()
    # A lexer may change the newlines around the code; text that does not match is not worth the colours.
    if text.plain != code.rstrip():
        return Text(code)
    return text


def fold_code(code: Text, width: int) -> list[Text]:
    """Returns the lines of `code`, those wider than `width` folded between tokens and indented further."""
    lines: list[Text] = []
    for line in _split_lines(code):
        if line.cell_len <= width:
            lines.append(line)
        else:
            lines += _fold_line(line, width)
    return lines


def _split_lines(code: Text) -> Iterable[Text]:
    if code.spans:
        return code.split("\n", allow_blank=True)
    # several times quicker, for a pipe
    return [Text(line) for line in code.plain.split("\n")]


def _fold_line(line: Text, width: int) -> list[Text]:
    indent = len(line.plain) - len(line.plain.lstrip())
    hang = min(indent + _MORE_INDENT, width // 2)
    pieces = line.divide(_find_cuts(line.plain, width, hang))
    folded = [pieces[0]]
    for piece in pieces[1:]:
        start = len(piece.plain) - len(piece.plain.lstrip())
        folded.append(Text(" " * hang) + piece[start:])
    return folded


def _find_cuts(line: str, width: int, hang: int) -> list[int]:
    """Returns the offsets to cut at: after a space near the end of the room, else before the token too much.

    A token wider than a whole line is cut where the line ends.
    """
    cuts: list[int] = []
    start, space, room = 0, 0, width
    for match in _TOKEN.finditer(line):
        end = match.end()
        while cell_len(line[start:end]) > room and not match[0].isspace():
            cut = match.start()
            if space > start and cell_len(line[start:space]) > room * _LATE:
                cut = space
            elif cut <= start:
                cut = start + max(len(set_cell_size(line[start:end], room).rstrip()), 1)
            cuts.append(cut)
            start, room = cut, width - hang
        if match[0].isspace():
            space = end
    return cuts
