"""The source of kernels as text, highlighted and folded between tokens: each program once, each change once."""

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.syntax import Syntax
from rich.text import Text

from vmapdbg.diff.result import KernelChange, KernelSide
from vmapdbg.diff.source import LinePair, MarkedSpan, align_sources, keep_near
from vmapdbg.install.targets import language_of
from vmapdbg.model.wording import escape_unsafe, format_plural
from vmapdbg.page.format import format_ids, join_change
from vmapdbg.page.sentences import describe_crash, describe_error
from vmapdbg.page.text.kernels import TITLES, list_parts, name_change, name_kernel
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, CHANGED, Page
from vmapdbg.page.text.view import ScheduleView

_LEAST_SAME = 0.25  # with fewer equal lines, one column shows before, then after
_THEME = "ansi_dark"
_MORE_INDENT = 4
_CONTEXT = 3
_SIGN_STYLES = {" ": ("", ""), "-": (BEFORE, "bold reverse red"), "+": (AFTER, "bold reverse green")}
"""The style of a sign, and of the changes inside a line."""


def print_source(view: ScheduleView) -> None:
    """Prints the source of each kernel, of two runs only if it differs. A source printed before gets one line."""
    page, start = view.page, len(view.page.lines)
    again: dict[tuple[str, str], list[int]] = {}
    for item in view.pair.kernels:
        has_same_source = item.status in ("unchanged", "changed") and "source" not in item.changed
        if view.is_pair and not page.show_all and has_same_source:
            continue
        side = (item.after or item.before)[0]
        if not view.is_pair and side.kernel.failed is not None:
            # why tinygrad makes no program of the kernel
            page.add((f"#{side.number} has no program: {describe_error(side.kernel.failed)}", ALERT), gap=True)
            page.add_each(describe_crash(side.kernel.failed.crash), indent=2)
            continue
        sources = _join_sources(item.before), _join_sources(item.after)
        here = f"{name_kernel(side)} of schedule {view.pair.index}"
        first = view.run.printed_sources.setdefault(sources, here)
        if first != here:
            again.setdefault((side.kernel.name, first), []).append(side.number)
        elif view.is_pair:
            _print_change(view, item, sources)
        else:
            _print_kernel(view, side)
    if again:
        page.add()
    same = "the same as" if view.is_pair else "same source as"
    for (name, first), numbers in again.items():
        page.add((f"#{format_ids(numbers)} {name}: {same} {first}", "dim"))
    if len(page.lines) > start:
        # in place of the empty line above the first kernel
        page.lines[start : start + 1] = [Text(), page.join(("Source", "bold"))]
    elif not view.is_pair:
        page.head("Source", "no kernel")


def _print_kernel(view: ScheduleView, side: KernelSide) -> None:
    page, kernel = view.page, side.kernel
    code = escape_unsafe(kernel.source.strip("\n"), page.console.encoding)
    page.head(name_kernel(side), f"{kernel.target}, {format_plural(len(code.splitlines()), 'line')}")
    lines = _colour(page, code, kernel.target)
    if view.run.copies_source:
        page.lines += lines
        return
    findings = view.findings.about_kernel(view.pair.index, [side.number])
    for number, line in enumerate(lines, start=1):
        page.lines += _fold_line(line, page.width)
        if codes := [found.code for found in findings if found.source_line == number]:
            indent = len(line.plain) - len(line.plain.lstrip())
            page.add((f"^ {', '.join(codes)}", ALERT), indent=min(indent, page.width // 2))


# *** two runs


def _join_sources(sides: Sequence[KernelSide]) -> str:
    """Returns the source of a side; a comment names each of several kernels."""
    if len(sides) == 1:
        return sides[0].kernel.source
    return "\n".join(f"// {name_kernel(side)}\n{side.kernel.source.strip(chr(10))}" for side in sides)


def _print_change(view: ScheduleView, item: KernelChange, sources: tuple[str, str]) -> None:
    page = view.page
    before, after = (escape_unsafe(source.strip("\n"), page.console.encoding) for source in sources)
    pairs = _list_apart(before, after)
    if item.before and item.after:
        pairs = list(align_sources(before, after, {side.kernel.name for side in item.sides}))
    target = (item.after or item.before)[0].kernel.target
    coloured = _colour(page, before, target), _colour(page, after, target)
    words, parts = list_parts(item)
    about = f"  {words}{', '.join(f'#{side.number}' for side in parts)}" if parts else ""
    lines = format_plural(len(pairs), "line")
    changed = sum(not pair.is_same for pair in pairs)
    counts = f"{changed} of {lines} changed" if changed else "the same"
    if not (item.before and item.after):
        counts = f"{TITLES[item.status]}, {lines}"
    page.head(join_change(*name_change(item, name_kernel)) + about, counts)
    if len(pairs) - changed < len(pairs) * _LEAST_SAME:
        pairs = _list_apart(before, after)
    _add_changes(page, pairs, coloured)


def _list_apart(before: str, after: str) -> list[LinePair]:
    removed = [LinePair(line, None) for line in before.split("\n") if before]
    return removed + [LinePair(None, line) for line in after.split("\n") if after]


# *** code


def _colour(page: Page, code: str, target: str) -> list[Text]:
    """Returns the lines of a source, coloured for `target` on a terminal, if pygments has a lexer for it."""
    lexer = language_of(target)
    # not in a pipe, and not with NO_COLOR
    is_coloured = page.console.color_system is not None and not page.console.no_color
    if is_coloured and lexer is not None:
        text = Syntax("", lexer, theme=_THEME, background_color="default").highlight(code)
        text.rstrip()
        # a lexer may change newlines around the code; then it is shown without colours
        if text.plain == code:
            return list(text.split("\n", allow_blank=True))
    return list(map(Text, code.split("\n")))


def _fold_line(line: Text, width: int) -> list[Text]:
    """Returns a line of source, folded between words and indented further if it is wider than `width`."""
    indent = len(line.plain) - len(line.plain.lstrip())
    hang = min(indent + _MORE_INDENT, width // 2)
    cuts, start, room = list[int](), 0, width
    # a word of wide characters fits into a line, too
    for match in re.finditer(rf"\s+|[\w.]{{1,{(width - hang) // 2}}}|.", line.plain):
        if cell_len(line.plain[start : match.end()]) > room and not match[0].isspace():
            start, room = match.start(), width - hang
            cuts.append(start)
    first, *rest = line.divide(cuts)
    return [first, *(Text(" " * hang) + piece for piece in rest)]


def _add_changes(page: Page, pairs: Sequence[LinePair], coloured: tuple[list[Text], list[Text]]) -> None:
    """Adds an equal pair as one line, else before above after; far from a change, equal pairs are only counted."""
    left, right = map(iter, coloured)
    lines_before = [None if pair.before is None else next(left) for pair in pairs]
    lines_after = [None if pair.after is None else next(right) for pair in pairs]
    important = [number for number, pair in enumerate(pairs) if page.show_all or not pair.is_same]
    for gap, number in keep_near(range(len(pairs)), important, _CONTEXT):
        if gap:
            page.add((f"... {format_plural(gap, 'line')} the same", "dim"), indent=2)
        if number is not None and pairs[number].is_same:
            _add_line(page, " ", lines_after[number], ())
        elif number is not None:
            _add_line(page, "-", lines_before[number], pairs[number].marks_before)
            _add_line(page, "+", lines_after[number], pairs[number].marks_after)


def _add_line(page: Page, sign: str, line: Text | None, marks: Sequence[MarkedSpan]) -> None:
    """Adds a line of source after its sign, with `^` below its `marks`; no line for None."""
    if line is None:
        return
    style, marked = _SIGN_STYLES[sign]
    for mark in marks:
        line.stylize(marked, *mark)
    for text in _fold_line(line, page.width - 2):
        page.lines.append(Text.assemble((sign, style), " ", text))
        sign = " "
        carets = [" "] * len(text)
        for span in text.spans:
            if marks and span.style == marked:
                carets[span.start : span.end] = "^" * (min(span.end, len(text)) - span.start)
        if "^" in carets:
            page.lines.append(Text("  " + "".join(carets).rstrip(), style=CHANGED))
