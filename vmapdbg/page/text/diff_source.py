"""The source of changed kernels: which are shown, how they are matched, and in which of the layouts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from vmapdbg.diff import KernelChange, KernelSide
from vmapdbg.diff.source import LinePair, align_sources
from vmapdbg.model.wording import format_plural
from vmapdbg.page.text.diff_kernels import name_kernel
from vmapdbg.page.text.diff_lines import format_one_column, format_two_columns, format_unified
from vmapdbg.page.text.diff_view import DiffView, join_change
from vmapdbg.page.text.layout import Page, escape_unsafe
from vmapdbg.page.text.source import highlight

# Below this width two columns of source are too narrow to read.
_TWO_COLUMNS = 100
# With a smaller share of lines the same, one column shows the whole of before, then the whole of after.
_LEAST_SAME = 0.25


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
        return lines + list(format_unified(page, item, pairs, coloured))
    if page.width >= _TWO_COLUMNS and not one_sided:
        return lines + list(format_two_columns(page, pairs, coloured))
    if sum(pair.is_same for pair in pairs) < len(pairs) * _LEAST_SAME:
        pairs = _list_apart(before, after)
    return lines + list(format_one_column(page, pairs, coloured))


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
