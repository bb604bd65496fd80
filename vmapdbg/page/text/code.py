"""Source as text: highlighted, folded between tokens, and two sides of it in one column, side by side, or as hunks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest

from rich.cells import cell_len, set_cell_size
from rich.syntax import Syntax
from rich.text import Text

from vmapdbg.diff.source import LinePair
from vmapdbg.install.targets import language_of
from vmapdbg.model.wording import format_plural
from vmapdbg.page.text.layout import AFTER, BEFORE, CHANGED, NOTE, Page

_THEME = "ansi_dark"
_MORE_INDENT = 4
# A fold is at the last space if that leaves less than a third of the line empty.
_FULL_ENOUGH = 2 / 3
# What a fold must not cut: an identifier or number, an operator, a string, a run of spaces.
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[\w.$@%]+|\s+|->|<<=?|>>=?|[-+*/<>=!&|]=|&&|\|\||\+\+|--|::|//|/\*|\*/|.')
_CONTEXT = 3
_SEPARATOR = 3
MARKED_BEFORE = "bold reverse red"
MARKED_AFTER = "bold reverse green"
_SIGN_STYLES = {" ": "", "-": BEFORE, "+": AFTER}

Lines = tuple[list[Text], list[Text]]
"""The lines of both sides, coloured."""
_Item = tuple[LinePair, Text | None, Text | None]


def highlight(code: str, target: str) -> Text:
    """Returns source text coloured for `target`; plain text if pygments has no lexer for it."""
    lexer = language_of(target)
    if lexer is None:
        return Text(code)
    text = Syntax("", lexer, theme=_THEME, background_color="default").highlight(code)
    text.rstrip()
    # a lexer may change newlines around the code; then it is shown without colours
    if text.plain != code.rstrip():
        return Text(code)
    return text


def fold_code(code: Text, width: int) -> list[Text]:
    """Returns the lines of `code`; lines wider than `width` are folded between tokens and indented further."""
    lines: list[Text] = []
    for line in split_lines(code):
        if line.cell_len <= width:
            lines.append(line)
        else:
            lines += _fold_line(line, width)
    return lines


def split_lines(code: Text) -> Iterable[Text]:
    if code.spans:
        return code.split("\n", allow_blank=True)
    # several times faster, for a pipe
    return [Text(line) for line in code.plain.split("\n")]


def _fold_line(line: Text, width: int) -> list[Text]:
    indent = len(line.plain) - len(line.plain.lstrip())
    hang = min(indent + _MORE_INDENT, width // 2)
    pieces = line.divide(_list_cuts(line.plain, width, hang))
    folded = [pieces[0]]
    for piece in pieces[1:]:
        start = len(piece.plain) - len(piece.plain.lstrip())
        folded.append(Text(" " * hang) + piece[start:])
    return folded


def _list_cuts(line: str, width: int, hang: int) -> list[int]:
    """Returns the offsets to cut at: after a space near the end of the line, else before the token that does not fit.

    A token wider than a whole line is cut where the line ends.
    """
    cuts: list[int] = []
    start, space, room = 0, 0, width
    for match in _TOKEN.finditer(line):
        end = match.end()
        while cell_len(line[start:end]) > room and not match[0].isspace():
            cut = match.start()
            if space > start and cell_len(line[start:space]) > room * _FULL_ENOUGH:
                cut = space
            elif cut <= start:
                cut = start + max(len(set_cell_size(line[start:end], room).rstrip()), 1)
            cuts.append(cut)
            start, room = cut, width - hang
        if match[0].isspace():
            space = end
    return cuts


# *** two sides


def _fold_same(page: Page, pairs: Sequence[LinePair], coloured: Lines) -> Iterator[_Item | int]:
    """Yields the pairs to show, each with its two lines as Text, changes inside the lines marked; and a number for
    equal pairs that are left out."""
    left, right = map(iter, coloured)
    runs = [(same, list(run)) for same, run in groupby(pairs, key=lambda pair: pair.is_same)]
    for i, (same, run) in enumerate(runs):
        items: list[_Item] = []
        for pair in run:
            before = None if pair.before is None else _mark(next(left), pair.marks_before, MARKED_BEFORE)
            after = None if pair.after is None else _mark(next(right), pair.marks_after, MARKED_AFTER)
            items.append((pair, before, after))
        head = _CONTEXT if i > 0 else 0
        tail = _CONTEXT if i < len(runs) - 1 else 0
        # the line that says what is left out must replace more than one line
        if page.show_all or not same or len(items) <= head + tail + 1:
            yield from items
            continue
        yield from items[:head]
        yield len(items) - head - tail
        yield from items[len(items) - tail :]


def _mark(line: Text, marks: Iterable[tuple[int, int]], style: str) -> Text:
    for start, end in marks:
        line.stylize(style, start, end)
    return line


def _add_gap(page: Page, count: int) -> None:
    page.add((f"... {format_plural(count, 'line')} the same", "dim"), indent=2)


def add_one_column(page: Page, pairs: Sequence[LinePair], coloured: Lines) -> None:
    """Adds an equal pair as one line, else the line of before above the line of after."""
    for item in _fold_same(page, pairs, coloured):
        if isinstance(item, int):
            _add_gap(page, item)
            continue
        pair, before, after = item
        if pair.is_same:
            _add_line(page, " ", after)
        else:
            _add_line(page, "-", before, MARKED_BEFORE)
            _add_line(page, "+", after, MARKED_AFTER)


def _add_line(page: Page, sign: str, line: Text | None, marked: str = "") -> None:
    """Adds a line of source after its sign, folded to the page, with `^` below the parts that have the style `marked`.

    None is a line that the side does not have."""
    for text in _fold_marked(line, page.width - 2, marked):
        page.lines.append(Text.assemble((sign, _SIGN_STYLES[sign]), " ", text))
        sign = " "


def _fold_marked(line: Text | None, width: int, marked: str) -> Iterator[Text]:
    """Yields a line of source folded to `width`, with `^` below the parts that have the style `marked`."""
    for folded in () if line is None else fold_code(line, width):
        yield folded
        carets = [" "] * len(folded)
        for span in folded.spans:
            if marked and span.style == marked:
                carets[span.start : span.end] = "^" * (min(span.end, len(folded)) - span.start)
        if "^" in carets:
            yield Text("".join(carets).rstrip(), style=CHANGED)


def add_two_columns(page: Page, pairs: Sequence[LinePair], coloured: Lines) -> None:
    """Adds before on the left and after on the right, each folded to its half of the page."""
    room = page.width - _SEPARATOR
    left_width, right_width = (max(text.cell_len for text in side) for side in coloured)
    # what the left column needs, at most half of the page or the rest
    width = max(len("before"), min(left_width, max(room // 2, room - right_width)))
    titles = Text("before", style=BEFORE), Text("after", style=AFTER)
    page.lines.append(_join_columns(titles[0], " ", "", titles[1], width))
    for item in _fold_same(page, pairs, coloured):
        if isinstance(item, int):
            _add_gap(page, item)
            continue
        pair, before, after = item
        left, right = _fold_marked(before, width, MARKED_BEFORE), _fold_marked(after, room - width, MARKED_AFTER)
        sign, style = _sign_of(pair)
        for one, other in zip_longest(left, right, fillvalue=Text()):
            page.lines.append(_join_columns(one, sign, style, other, width))
            sign, style = "|", "dim"


def _sign_of(pair: LinePair) -> tuple[str, str]:
    if pair.is_same:
        return "|", "dim"
    if pair.after is None:
        return "-", BEFORE
    if pair.before is None:
        return "+", AFTER
    return "~", CHANGED


def _join_columns(left: Text, sign: str, style: str, right: Text, width: int) -> Text:
    return Text.assemble(left, " " * (width - left.cell_len), " ", (sign, style), " ", right)


def add_unified(page: Page, pairs: Sequence[LinePair], coloured: Lines) -> None:
    """Adds the hunks of a unified diff."""
    numbers = [1, 1]
    hunk: list[_Item] = []
    for entry in [*_fold_same(page, pairs, coloured), 0]:
        if isinstance(entry, tuple):
            hunk.append(entry)
            continue
        counts = [sum(item[1 + side] is not None for item in hunk) for side in (0, 1)]
        if any(not item[0].is_same for item in hunk):
            page.add((f"@@ -{numbers[0]},{counts[0]} +{numbers[1]},{counts[1]} @@", NOTE))
            _add_hunk(page, hunk)
        numbers = [number + entry + count for number, count in zip(numbers, counts, strict=True)]
        hunk = []


def _add_hunk(page: Page, hunk: list[_Item]) -> None:
    for same, run in groupby(hunk, key=lambda item: item[0].is_same):
        items = list(run)
        # changed lines: all of before, then all of after
        for _, before, _ in items:
            if not same:
                _add_line(page, "-", before)
        for _, _, after in items:
            _add_line(page, " " if same else "+", after)
