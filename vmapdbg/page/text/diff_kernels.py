"""The kernels of a diff as text: how each was matched, and what it costs on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from rich.text import Text

from vmapdbg.diff import KernelChange, KernelSide
from vmapdbg.model.capture import BufferArg, Kernel
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_bytes, format_dims, format_ids, format_seconds
from vmapdbg.page.text.diff_view import (
    AFTER,
    BEFORE,
    MARKS,
    STATUS_STYLES,
    DiffView,
    format_ratio,
    format_short,
    join_change,
)
from vmapdbg.page.text.layout import Column, Part, Row, lay_out_table

_COLUMNS = (
    Column("", comfort=1),
    Column("#", comfort=3, most=10),
    Column("kernel", comfort=16, most=48),
    Column("ops", comfort=10, most=30),
    Column("moves", comfort=10, most=34, leaves=2),
    Column("threads", comfort=7, most=24, leaves=1),
)
_TITLES = {
    "changed": "changed",
    "fused-from": "fused",
    "split-into": "split",
    "only-before": "only before",
    "only-after": "only after",
    "unchanged": "unchanged",
}


def format_kernels(view: DiffView) -> list[Text]:
    """Returns the kernels that are not the same on both sides; with all those that are, too."""
    page, kernels = view.page, view.schedule.kernels
    shown = [item for item in kernels if page.show_all or item.status != "unchanged"]
    if not shown:
        return []
    statuses = [item.status for item in kernels]
    counts = [f"{statuses.count(status)} {title}" for status, title in _TITLES.items() if status in statuses]
    before, after = _count(kernels, "before"), _count(kernels, "after")
    count: Part = format_plural(after, "kernel")
    if before != after:
        count = view.change(str(before), count)
    lines = page.wrap(("Kernels", "bold"), "  ", count, (f": {', '.join(counts)}", "dim"), hang=2)
    rows = [_format_kernel(view, group) for group in _group_kernels(view, shown)]
    return lines + lay_out_table(page, _COLUMNS, rows)


def _count(kernels: Sequence[KernelChange], side: str) -> int:
    return len({item.number for change in kernels for item in getattr(change, side)})


def _group_kernels(view: DiffView, kernels: Sequence[KernelChange]) -> list[list[KernelChange]]:
    """Kernels of one side that are the same program stand in one row."""
    groups: dict[object, list[KernelChange]] = {}
    for row, item in enumerate(kernels):
        identity: object = row
        if item.status in ("only-before", "only-after") and not view.page.show_all:
            kernel = (item.before or item.after)[0].kernel
            identity = (item.status, kernel.key or kernel.source, kernel.name, kernel.executed_ops, kernel.launches)
        groups.setdefault(identity, []).append(item)
    return list(groups.values())


def _format_kernel(view: DiffView, group: list[KernelChange]) -> Row:
    item = group[0]
    cells = [
        MARKS[item.status],
        _format_numbers(group),
        _format_names(view, item),
        _format_sum(view, item, lambda kernel: kernel.executed_ops, format_short),
        _format_sum(view, item, lambda kernel: kernel.bytes, format_bytes),
        _format_most(view, item, lambda kernel: kernel.threads, format_short),
    ]
    style = STATUS_STYLES.get(item.status, "")
    return Row(cells, facts=_format_facts(view, item), notes=_format_relation(view, item), style=style)


def _format_numbers(group: list[KernelChange]) -> str:
    before = format_ids(side.number for item in group for side in item.before)
    after = format_ids(side.number for item in group for side in item.after)
    return join_change(before, after)


def _format_names(view: DiffView, item: KernelChange) -> Text:
    sides = item.after or item.before
    name = sides[0].kernel.name
    if len(sides) > 1:
        name = format_plural(len(sides), "kernel")
    if len(item.before) == len(item.after) == 1:
        return view.change(item.before[0].kernel.name, name)
    return view.page.text(name, "bold")


def _sides(item: KernelChange) -> tuple[tuple[KernelSide, ...], tuple[KernelSide, ...]]:
    return item.before or item.after, item.after or item.before


def _format_sum(view: DiffView, item: KernelChange, of: Callable[[Kernel], int], write: Callable[[int], str]) -> Text:
    before, after = (sum(of(side.kernel) for side in sides) for sides in _sides(item))
    return view.page.join(view.change(write(before), write(after)), format_ratio(before, after) * (before != after))


def _format_most(view: DiffView, item: KernelChange, of: Callable[[Kernel], int], write: Callable[[int], str]) -> Text:
    before, after = (max(of(side.kernel) for side in sides) for sides in _sides(item))
    return view.change(write(before), write(after))


def _format_relation(view: DiffView, item: KernelChange) -> list[Text]:
    if item.status == "fused-from":
        return [view.page.join(("fused from ", "bold"), ", ".join(map(name_kernel, item.before)))]
    if item.status == "split-into":
        return [view.page.join(("split into ", "bold"), ", ".join(map(name_kernel, item.after)))]
    return []


def name_kernel(side: KernelSide) -> str:
    """Returns `#0 r_3_2`."""
    return f"#{side.number} {side.kernel.name}"


def _format_facts(view: DiffView, item: KernelChange) -> list[Part]:
    facts: list[Part] = []
    if item.status in ("only-before", "only-after"):
        facts.append(_TITLES[item.status])
    if len(item.before) == len(item.after) == 1:
        facts += _format_pair_facts(view, item.before[0].kernel, item.after[0].kernel)
    else:
        facts += _format_local(view, item)
    facts += _format_times(view, item)
    lines = [line for side in item.after or item.before for line in side.kernel.lines]
    if places := view.places.format_all(lines):
        facts.append(view.page.join(("lines ", "dim"), places))
    return facts


def _format_times(view: DiffView, item: KernelChange) -> list[Text]:
    """The median of a launch; of several kernels their sum. What is on one side alone has its own."""
    sides = [[side.kernel.measured for side in one] for one in (item.before, item.after) if one]
    medians = [sum(one.median for one in measured if one is not None) for measured in sides]
    if not all(medians):
        return []
    before, after = medians[0], medians[-1]
    change = view.change(format_seconds(before), format_seconds(after))
    label = "a launch takes " if max(map(len, sides)) == 1 else "a launch of each takes "
    return [view.page.join((label, "dim"), change, format_ratio(before, after) * (len(medians) > 1))]


def _format_local(view: DiffView, item: KernelChange) -> list[Text]:
    most = _format_most(view, item, lambda kernel: kernel.local_bytes, lambda count: f"{count:,} B")
    if most.plain == "0 B":
        return []
    return [view.page.join(("LOCAL ", "dim"), most)]


def _format_pair_facts(view: DiffView, before: Kernel, after: Kernel) -> list[Part]:
    facts = _format_buffers(view, before, after)
    for label, one, other in (
        ("global", format_dims(before.global_size), format_dims(after.global_size)),
        ("local", format_dims(before.local_size), format_dims(after.local_size)),
        ("LOCAL", f"{before.local_bytes:,} B", f"{after.local_bytes:,} B"),
        ("launches", str(before.launches), str(after.launches)),
        ("target", before.target, after.target),
    ):
        if one != other:
            facts.append(view.page.join((f"{label} ", "dim"), view.change(one, other)))
    if before.key and before.key == after.key and before.source != after.source and not facts:
        facts.append(("the same AST, other code", "dim"))
    return facts


def _format_buffers(view: DiffView, before: Kernel, after: Kernel) -> list[Part]:
    facts: list[Part] = []
    for one, other in zip_longest(before.buffers, after.buffers):
        if other is None:
            facts.append((f"- {one.access}s {_describe(one)}", BEFORE))
        elif one is None:
            facts.append((f"+ {other.access}s {_describe(other)}", AFTER))
        elif _describe(one) != _describe(other):
            facts.append(view.page.join((f"{other.access}s ", "dim"), view.change(_describe(one), _describe(other))))
    return facts


def _describe(buffer: BufferArg) -> str:
    return f"{buffer.name} ({buffer.size:,} {buffer.dtype})"
