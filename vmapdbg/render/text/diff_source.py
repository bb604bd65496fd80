"""The source of changed kernels: side by side where there is room, in one column, or unified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, zip_longest

from rich.text import Span, Text

from vmapdbg.diff import KernelChange, KernelSide
from vmapdbg.diff.source import LinePair, align_sources
from vmapdbg.model.wording import format_plural
from vmapdbg.render.text.diff_kernels import name_kernel
from vmapdbg.render.text.diff_view import AFTER, BEFORE, CHANGED, DiffView, join_change
from vmapdbg.render.text.layout import Page, escape_unsafe
from vmapdbg.render.text.source import fold_code, highlight

# Below this width two columns of source are too narrow to read.
_TWO_COLUMNS = 100
_CONTEXT = 3
_SEPARATOR = 3
# With a smaller share of lines the same, one column shows the whole of before, then the whole of after.
_LEAST_SAME = 0.25
MARKED_BEFORE = "bold reverse red"
MARKED_AFTER = "bold reverse green"
_SIGN_STYLES = {" ": ("", ""), "-": (BEFORE, MARKED_BEFORE), "+": (AFTER, MARKED_AFTER)}
"""The style of the sign of a line, and that of what is marked in it."""
_MOST_KNOWN = 8192

_Lines = tuple[list[Text], list[Text]]
_Item = tuple[LinePair, Text | None, Text | None]


class DiffListing:
    """Prints each change of a program once: the same before and after a second time gets one line."""

    def __init__(self, *, unified: bool) -> None:
        self._unified = unified
        self._first: dict[tuple[str, str], str] = {}

    def format(self, view: DiffView) -> list[Text]:
        """Returns the source section of a schedule; nothing where no source changed."""
        lines: list[Text] = []
        again: list[Text] = []
        for item in view.schedule.kernels:
            if item.status in ("unchanged", "changed") and "source" not in item.changed and not view.page.show_all:
                continue
            sources = _join_sources(item.before), _join_sources(item.after)
            here = f"{_name_change(item)} of schedule {view.schedule.index}"
            first = self._first.setdefault(sources, here)
            if first != here:
                again += view.page.wrap((f"{_name_change(item)}: the same as {first}", "dim"), hang=2)
                continue
            if lines:
                lines.append(Text())
            lines += _format_change(view, item, sources, self._unified)
        if not lines and not again:
            return []
        if lines and again:
            lines.append(Text())
        return [view.page.join(("Source", "bold")), *lines, *again]


def _name_change(item: KernelChange) -> str:
    return name_kernel((item.after or item.before)[0])


def _join_sources(sides: Sequence[KernelSide]) -> str:
    if len(sides) < 2:
        return "".join(side.kernel.source for side in sides)
    return "\n".join(f"// {name_kernel(side)}\n{side.kernel.source.strip(chr(10))}" for side in sides)


def _format_change(view: DiffView, item: KernelChange, sources: tuple[str, str], unified: bool) -> list[Text]:
    page = view.page
    before, after = (escape_unsafe(source.strip("\n"), page.console.encoding) for source in sources)
    if not item.before or not item.after:
        pairs = _list_apart(before, after)
    else:
        pairs = align_sources(before, after, {side.kernel.name for side in (*item.before, *item.after)})
    target = (item.after or item.before)[0].kernel.target
    coloured = _colour(page, before, target), _colour(page, after, target)
    lines = page.head(_describe_match(item), _count_changed(item, pairs))
    one_sided = not item.before or not item.after
    if unified and not one_sided:
        return lines + list(_format_unified(page, item, pairs, coloured))
    if page.width >= _TWO_COLUMNS and not one_sided:
        return lines + list(_format_two_columns(page, pairs, coloured))
    if sum(pair.is_same for pair in pairs) < len(pairs) * _LEAST_SAME:
        pairs = _list_apart(before, after)
    return lines + list(_format_one_column(page, pairs, coloured))


def _list_apart(before: str, after: str) -> list[LinePair]:
    removed = [LinePair(line, None) for line in before.split("\n") if before]
    return removed + [LinePair(None, line) for line in after.split("\n") if after]


def _count_changed(item: KernelChange, pairs: Sequence[LinePair]) -> str:
    lines = format_plural(len(pairs), "line")
    changed = sum(not pair.is_same for pair in pairs)
    if not item.after:
        return f"only before, {lines}"
    if not item.before:
        return f"only after, {lines}"
    if not changed:
        return "the same"
    return f"{changed} of {lines} changed"


def _describe_match(item: KernelChange) -> str:
    name = _name_change(item)
    if item.status == "fused-from":
        return f"{name}  fused from {', '.join(f'#{side.number}' for side in item.before)}"
    if item.status == "split-into":
        return f"{name_kernel(item.before[0])}  split into {', '.join(f'#{side.number}' for side in item.after)}"
    before = "".join(map(name_kernel, item.before))
    return join_change(before, name)


def _colour(page: Page, code: str, target: str) -> list[Text]:
    if page.is_coloured:
        text = highlight(code, target)
        # a highlighter drops what is blank at the end
        if text.plain == code:
            return list(text.split("\n", allow_blank=True))
    return [Text(line) for line in code.split("\n")]


def _walk(pairs: Sequence[LinePair], coloured: _Lines) -> Iterator[_Item]:
    """Yields each pair with its two lines as Text, what changed inside them marked."""
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
    """Yields the pairs to show; a number stands for that many that are the same."""
    runs = [(same, list(run)) for same, run in groupby(items, key=lambda item: item[0].is_same)]
    for i, (same, run) in enumerate(runs):
        head = _CONTEXT if i > 0 else 0
        tail = _CONTEXT if i < len(runs) - 1 else 0
        # one line less would be replaced by the line that says so
        if page.show_all or not same or len(run) <= head + tail + 1:
            yield from run
            continue
        yield from run[:head]
        yield len(run) - head - tail
        yield from run[len(run) - tail :]


def _format_gap(page: Page, count: int) -> list[Text]:
    return page.wrap((f"... {format_plural(count, 'line')} the same", "dim"), indent=2)


def _format_one_column(page: Page, pairs: Sequence[LinePair], coloured: _Lines) -> Iterator[Text]:
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
    """Returns a line of source behind its sign, folded to `width`; with `carets` what is marked is underlined."""
    return _format_known_line(sign, line.plain, tuple(line.spans), width, carets)


# The layers of a network have most of their lines in common, and laying out a line costs more than to compare it.
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
    """Returns a line of source folded to `width`; below what has the style `marked` stands a line of `^`."""
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


def _format_two_columns(page: Page, pairs: Sequence[LinePair], coloured: _Lines) -> Iterator[Text]:
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
        sign, style = _find_sign(pair)
        for one, other in zip_longest(left, right, fillvalue=Text()):
            yield _join_columns(one, sign, style, other, width)
            sign, style = "|", "dim"


def _fold_column(line: Text | None, width: int, marked: str) -> Sequence[Text]:
    if line is None:
        return ()
    return _fold_known_line(line.plain, tuple(line.spans), width, marked)


def _choose_width(page: Page, coloured: _Lines) -> int:
    """The width of the left column: what it needs, or half of the page, or what the right one leaves."""
    room = page.width - _SEPARATOR
    left, right = (max(text.cell_len for text in side) for side in coloured)
    return max(len("before"), min(left, max(room // 2, room - right)))


def _find_sign(pair: LinePair) -> tuple[str, str]:
    if pair.is_same:
        return "|", "dim"
    if pair.after is None:
        return "-", BEFORE
    if pair.before is None:
        return "+", AFTER
    return "~", CHANGED


def _join_columns(left: Text, sign: str, style: str, right: Text, width: int) -> Text:
    return Text.assemble(left, " " * (width - left.cell_len), " ", (sign, style), " ", right)


def _format_unified(page: Page, item: KernelChange, pairs: Sequence[LinePair], coloured: _Lines) -> Iterator[Text]:
    for title, sides, style in (("--- before", item.before, BEFORE), ("+++ after", item.after, AFTER)):
        yield from page.wrap((f"{title} {', '.join(map(name_kernel, sides))}", style), hang=4)
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
        # what changed: all of before, then all of after
        if same:
            lines = [(" ", after) for _, _, after in items]
        else:
            lines = [("-", before) for _, before, _ in items] + [("+", after) for _, _, after in items]
        for sign, line in lines:
            if line is not None:
                yield from _format_line(sign, line, page.width)


def format_line_pair(page: Page, pair: LinePair) -> list[Text]:
    """Returns one line that changed, before and after, with what changed marked."""
    lines = ([Text(pair.before or "")], [Text(pair.after or "")])
    return list(_format_one_column(page, [pair], lines))
