"""Source as text: highlighted, folded between tokens, and two sides of it in one column, side by side, or as hunks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, zip_longest

from rich.cells import cell_len, set_cell_size
from rich.syntax import Syntax
from rich.text import Span, Text

from vmapdbg.diff.source import LinePair
from vmapdbg.install.targets import language_of
from vmapdbg.model.wording import format_plural
from vmapdbg.page.text.layout import AFTER, BEFORE, CHANGED, Page

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
_SIGN_STYLES = {" ": ("", ""), "-": (BEFORE, MARKED_BEFORE), "+": (AFTER, MARKED_AFTER)}
"""The style of a line's sign, and of the marks in the line."""
_MOST_KNOWN = 8192

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


def _walk(pairs: Sequence[LinePair], coloured: Lines) -> Iterator[_Item]:
    """Yields each pair with its two lines as Text, changes inside the lines marked."""
    left, right = iter(coloured[0]), iter(coloured[1])
    for pair in pairs:
        before = after = None
        if pair.before is not None:
            before = _mark(next(left), pair.marks_before, MARKED_BEFORE)
        if pair.after is not None:
            after = _mark(next(right), pair.marks_after, MARKED_AFTER)
        yield pair, before, after


def _mark(line: Text, marks: Iterable[tuple[int, int]], style: str) -> Text:
    for start, end in marks:
        line.stylize(style, start, end)
    return line


def _fold_same(page: Page, items: Iterable[_Item]) -> Iterator[_Item | int]:
    """Yields the pairs to show, and a number for equal pairs that are left out."""
    runs = [(same, list(run)) for same, run in groupby(items, key=lambda item: item[0].is_same)]
    for i, (same, run) in enumerate(runs):
        head = _CONTEXT if i > 0 else 0
        tail = _CONTEXT if i < len(runs) - 1 else 0
        # the line that says what is left out must replace more than one line
        if page.show_all or not same or len(run) <= head + tail + 1:
            yield from run
            continue
        yield from run[:head]
        yield len(run) - head - tail
        yield from run[len(run) - tail :]


def _format_gap(page: Page, count: int) -> list[Text]:
    return page.wrap((f"... {format_plural(count, 'line')} the same", "dim"), indent=2)


def format_one_column(page: Page, pairs: Sequence[LinePair], coloured: Lines) -> Iterator[Text]:
    """Yields an equal pair as one line, else the line of before above the line of after."""
    for item in _fold_same(page, _walk(pairs, coloured)):
        if isinstance(item, int):
            yield from _format_gap(page, item)
            continue
        pair, before, after = item
        if pair.is_same and after is not None:
            yield from _format_line(" ", after, page.width)
            continue
        if before is not None:
            yield from _format_line("-", before, page.width, carets=True)
        if after is not None:
            yield from _format_line("+", after, page.width, carets=True)


def _format_line(sign: str, line: Text, width: int, *, carets: bool = False) -> Sequence[Text]:
    """Returns a line of source after its sign, folded to `width`; with `carets` marks are underlined."""
    return _format_known_line(sign, line.plain, tuple(line.spans), width, carets)


# Layers of a network have most lines in common, and laying out a line costs more than looking it up.
@lru_cache(maxsize=_MOST_KNOWN)
def _format_known_line(sign: str, plain: str, spans: tuple[Span, ...], width: int, carets: bool) -> tuple[Text, ...]:
    style, marked = _SIGN_STYLES[sign]
    if not carets:
        marked = ""
    lines = _fold_known_line(plain, spans, width - 2, marked)
    signs = [(sign, style), *[(" ", style)] * (len(lines) - 1)]
    return tuple([Text.assemble(first, " ", line) for first, line in zip(signs, lines, strict=True)])


@lru_cache(maxsize=_MOST_KNOWN)
def _fold_known_line(plain: str, spans: tuple[Span, ...], width: int, marked: str) -> tuple[Text, ...]:
    """Returns a line of source folded to `width`, with `^` below the parts that have the style `marked`."""
    shown: list[Text] = []
    for line in fold_code(Text(plain, spans=list(spans)), width):
        shown.append(line)
        below = _draw_carets(line, marked)
        if below is not None:
            shown.append(below)
    return tuple(shown)


def _draw_carets(line: Text, style: str) -> Text | None:
    carets = [" "] * len(line)
    for span in line.spans:
        if style and span.style == style:
            carets[span.start : span.end] = "^" * (min(span.end, len(line)) - span.start)
    drawn = "".join(carets).rstrip()
    if not drawn:
        return None
    return Text(drawn, style=CHANGED)


def format_two_columns(page: Page, pairs: Sequence[LinePair], coloured: Lines) -> Iterator[Text]:
    """Yields before on the left and after on the right, each folded to its half of the page."""
    width = _choose_width(page, coloured)
    rest = page.width - _SEPARATOR - width
    yield _join_columns(Text("before", style=BEFORE), " ", "", Text("after", style=AFTER), width)
    for item in _fold_same(page, _walk(pairs, coloured)):
        if isinstance(item, int):
            yield from _format_gap(page, item)
            continue
        pair, before, after = item
        left = _fold_column(before, width, MARKED_BEFORE)
        right = _fold_column(after, rest, MARKED_AFTER)
        sign, style = _sign_of(pair)
        for one, other in zip_longest(left, right, fillvalue=Text()):
            yield _join_columns(one, sign, style, other, width)
            sign, style = "|", "dim"


def _fold_column(line: Text | None, width: int, marked: str) -> Sequence[Text]:
    if line is None:
        return ()
    return _fold_known_line(line.plain, tuple(line.spans), width, marked)


def _choose_width(page: Page, coloured: Lines) -> int:
    """Returns the width of the left column: what it needs, at most half of the page or the rest."""
    room = page.width - _SEPARATOR
    left, right = (max(text.cell_len for text in side) for side in coloured)
    return max(len("before"), min(left, max(room // 2, room - right)))


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


def format_unified(page: Page, pairs: Sequence[LinePair], coloured: Lines) -> Iterator[Text]:
    """Yields the hunks of a unified diff."""
    numbers = [1, 1]
    hunk: list[_Item] = []
    for entry in [*_fold_same(page, _walk(pairs, coloured)), 0]:
        if isinstance(entry, tuple):
            hunk.append(entry)
            continue
        if any(not item[0].is_same for item in hunk):
            yield from _format_hunk(page, hunk, numbers)
        for side in (0, 1):
            numbers[side] += entry + sum(item[1 + side] is not None for item in hunk)
        hunk = []


def _format_hunk(page: Page, hunk: list[_Item], numbers: list[int]) -> Iterator[Text]:
    counts = [sum(item[1 + side] is not None for item in hunk) for side in (0, 1)]
    yield page.text(f"@@ -{numbers[0]},{counts[0]} +{numbers[1]},{counts[1]} @@", "cyan")
    for same, run in groupby(hunk, key=lambda item: item[0].is_same):
        items = list(run)
        # changed lines: all of before, then all of after
        if same:
            lines = [(" ", after) for _, _, after in items]
        else:
            lines = [("-", before) for _, before, _ in items] + [("+", after) for _, _, after in items]
        for sign, line in lines:
            if line is not None:
                yield from _format_line(sign, line, page.width)
