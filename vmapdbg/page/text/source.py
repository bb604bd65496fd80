"""The source of kernels as text: each program once, and of two runs each change once."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from vmapdbg.diff import KernelChange, KernelSide
from vmapdbg.diff.source import LinePair, align_sources
from vmapdbg.model.capture import Kernel, SnippetError
from vmapdbg.model.wording import format_plural
from vmapdbg.page.crash_sentences import describe_crash, describe_error
from vmapdbg.page.format import format_ids, join_change
from vmapdbg.page.text.code import (
    add_one_column,
    add_two_columns,
    add_unified,
    fold_code,
    highlight,
    split_lines,
)
from vmapdbg.page.text.kernels import name_kernel
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, Page, escape_unsafe
from vmapdbg.page.text.view import ScheduleView

# Below this width two columns of source are too narrow to read.
_TWO_COLUMNS = 100
# With a smaller share of equal lines, one column shows the whole of before, then the whole of after.
_LEAST_SAME = 0.25


def print_source(view: ScheduleView) -> None:
    """Prints the source of each kernel; with two runs only of kernels whose source differs.

    A source that was printed before, in this schedule or another, gets one line.
    """
    page, start = view.page, len(view.page.lines)
    again: dict[tuple[str, str], list[int]] = {}
    for item in view.pair.kernels:
        if view.is_pair and not page.show_all and _has_same_source(item):
            continue
        side = (item.after or item.before)[0]
        if not view.is_pair and side.kernel.failed is not None:
            _print_failed(page, side.number, side.kernel.failed)
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


def _has_same_source(item: KernelChange) -> bool:
    return item.status in ("unchanged", "changed") and "source" not in item.changed


# *** one run


def _print_failed(page: Page, number: int, failed: SnippetError) -> None:
    """Prints why tinygrad makes no program of a kernel."""
    page.add()
    page.add((f"#{number} has no program: {describe_error(failed)}", ALERT))
    for sentence in describe_crash(failed.crash):
        page.add(sentence, indent=2)


def _print_kernel(view: ScheduleView, side: KernelSide) -> None:
    page, kernel = view.page, side.kernel
    code = escape_unsafe(kernel.source.strip("\n"), page.console.encoding)
    page.head(name_kernel(side), f"{kernel.target}, {format_plural(len(code.splitlines()), 'line')}")
    text = highlight(code, kernel.target) if page.is_coloured else Text(code)
    marks = _list_marks(view, kernel, side.number)
    if view.run.copies_source:
        page.lines += split_lines(text)
    elif not marks:
        page.lines += fold_code(text, page.width)
    else:
        for number, line in enumerate(text.split("\n", allow_blank=True), start=1):
            page.lines += fold_code(line, page.width)
            if number in marks:
                indent = len(line.plain) - len(line.plain.lstrip())
                page.add((f"^ {marks[number]}", ALERT), indent=min(indent, page.width // 2))


def _list_marks(view: ScheduleView, kernel: Kernel, number: int) -> dict[int, str]:
    """Returns line of the source (from 1) -> the codes of the findings about it."""
    marks: dict[int, str] = {}
    for found in view.findings.find_for_kernel(kernel, view.pair.index, number):
        if found.source_line is not None:
            marks[found.source_line] = ", ".join(filter(None, (marks.get(found.source_line), found.code)))
    return marks


# *** two runs


def _join_sources(sides: Sequence[KernelSide]) -> str:
    if len(sides) < 2:
        return "".join(side.kernel.source for side in sides)
    return "\n".join(f"// {name_kernel(side)}\n{side.kernel.source.strip(chr(10))}" for side in sides)


def _print_change(view: ScheduleView, item: KernelChange, sources: tuple[str, str]) -> None:
    page = view.page
    before, after = (escape_unsafe(source.strip("\n"), page.console.encoding) for source in sources)
    is_one_sided = not item.before or not item.after
    if is_one_sided:
        pairs = _list_apart(before, after)
    else:
        pairs = align_sources(before, after, {side.kernel.name for side in (*item.before, *item.after)})
    target = (item.after or item.before)[0].kernel.target
    coloured = _colour(page, before, target), _colour(page, after, target)
    page.head(_describe_match(item), _count_changed(item, pairs))
    if view.run.unified and not is_one_sided:
        for title, sides, style in (("--- before", item.before, BEFORE), ("+++ after", item.after, AFTER)):
            page.add((f"{title} {', '.join(map(name_kernel, sides))}", style), hang=4)
        add_unified(page, pairs, coloured)
    elif page.width >= _TWO_COLUMNS and not is_one_sided:
        add_two_columns(page, pairs, coloured)
    else:
        if sum(pair.is_same for pair in pairs) < len(pairs) * _LEAST_SAME:
            pairs = _list_apart(before, after)
        add_one_column(page, pairs, coloured)


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
    name = name_kernel((item.after or item.before)[0])
    if item.status == "fused-from":
        return f"{name}  fused from {', '.join(f'#{side.number}' for side in item.before)}"
    if item.status == "split-into":
        return f"{name_kernel(item.before[0])}  split into {', '.join(f'#{side.number}' for side in item.after)}"
    return join_change("".join(map(name_kernel, item.before)), name)


def _colour(page: Page, code: str, target: str) -> list[Text]:
    if page.is_coloured:
        text = highlight(code, target)
        # a highlighter drops blank lines at the end
        if text.plain == code:
            return list(text.split("\n", allow_blank=True))
    return [Text(line) for line in code.split("\n")]
