"""The kernels of a schedule as text: cost, launch, buffers and user lines; of two runs how each was matched."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import zip_longest

from rich.text import Text

from vmapdbg.diff import KernelChange, KernelSide
from vmapdbg.model.capture import BufferArg, Kernel, Schedule
from vmapdbg.model.grouping import group_equal
from vmapdbg.model.schedule_index import kernel_identity
from vmapdbg.model.wording import format_plural
from vmapdbg.page.crash_sentences import describe_error
from vmapdbg.page.format import (
    describe_times,
    format_bytes,
    format_count,
    format_dims,
    format_ids,
    format_redundancy,
    format_seconds,
    format_share,
)
from vmapdbg.page.text.layout import Column, Page, Part, Row, lay_out_table
from vmapdbg.page.text.view import (
    AFTER,
    ALERT,
    BEFORE,
    MARKS,
    STATUS_STYLES,
    ScheduleView,
    format_ratio,
    format_short,
    join_change,
)

_BAR = 6
MUCH_REDUNDANCY = 2.0
"""A kernel with this redundancy or more is marked."""
_VERBS = {"write": "writes", "read-write": "updates", "read": "reads"}

_COLUMNS = (
    Column("#", right=True, comfort=3),
    Column("kernel", comfort=16, most=40),
    Column("ops", right=True, comfort=11),
    Column("of largest", comfort=11),
    Column("moves", right=True, comfort=9, leaves=2),
    Column("redundancy", right=True, comfort=10, leaves=1),
    Column("threads", right=True, comfort=7),
)
_CHANGE_COLUMNS = (
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


def format_kernels(view: ScheduleView) -> list[Text]:
    """Returns the kernels, with two runs only the changed ones. Equal kernels have one row, unless all is asked for."""
    if view.is_pair:
        return _format_changes(view)
    page = view.page
    sides = [change.after[0] for change in view.pair.kernels]
    kernels = [side.kernel for side in sides]
    if not kernels:
        return page.head("Kernels", f"none, {describe_copies(view.schedule)}")
    groups = group_equal(sides, lambda side: side.number if page.show_all else _identify(side.kernel))
    total = f"{format_count(sum(kernel.executed_ops for kernel in kernels))} ops executed"
    moved = f"{format_bytes(sum(kernel.bytes for kernel in kernels))} moved"
    title = f"{format_plural(len(kernels), 'kernel')}{_count_distinct(kernels)}, {total}, {moved}"
    rows = [_format_kernel(view, kernels, group) for group in groups]
    return page.head("Kernels", title) + lay_out_table(page, _COLUMNS, rows)


def describe_copies(schedule: Schedule) -> str:
    """Returns `1 copy`, `no copies`."""
    if not schedule.copies:
        return "no copies"
    return format_plural(schedule.copies, "copy", "copies")


def name_kernel(side: KernelSide) -> str:
    """Returns `#0 r_3_2`."""
    return f"#{side.number} {side.kernel.name}"


def _identify(kernel: Kernel) -> Hashable:
    return kernel_identity(kernel), kernel.name, kernel.launches, kernel.executed_ops


# *** one run


def _count_distinct(kernels: Sequence[Kernel]) -> str:
    distinct = len({kernel_identity(kernel) for kernel in kernels})
    if distinct == len(kernels):
        return ""
    return f" ({distinct} distinct)"


def _measure_share(kernels: Sequence[Kernel], kernel: Kernel) -> float:
    """Returns a kernel's executed ops over those of the largest; bytes if all kernels only move data."""
    if any(item.executed_ops for item in kernels):
        return kernel.executed_ops / max(item.executed_ops for item in kernels)
    return kernel.bytes / max(max(item.bytes for item in kernels), 1)


def _format_kernel(view: ScheduleView, kernels: Sequence[Kernel], group: list[KernelSide]) -> Row:
    kernel, numbers = group[0].kernel, [side.number for side in group]
    share = _measure_share(kernels, kernel)
    shade = _shade(share) if len(kernels) > 1 else ""
    facts = _list_facts(view, group)
    if kernel.failed is not None:
        return Row([str(numbers[0]), (kernel.name, ALERT), *["-"] * 5], facts=facts)
    is_redundant = kernel.redundancy is not None and kernel.redundancy >= MUCH_REDUNDANCY
    cells = [
        str(numbers[0]),
        (kernel.name, "bold"),
        (format_count(kernel.executed_ops), shade),
        (_format_bar(share), shade),
        format_bytes(kernel.bytes),
        (format_redundancy(kernel.redundancy), "bold yellow" if is_redundant else ""),
        format_count(kernel.threads),
    ]
    notes = view.notes_for(view.findings.take_for_kernel(kernel, view.pair.index, numbers))
    return Row(cells, facts=facts, notes=notes)


def _shade(share: float) -> str:
    """Returns the style of a kernel by its share of the work; the largest has 1."""
    for least, style in ((0.66, "bold yellow"), (0.33, "yellow"), (0.05, "")):
        if share > least:
            return style
    return "dim"


def _format_bar(share: float) -> str:
    filled = max(round(share * _BAR), 1) if share > 0 else 0
    return f"{format_share(share, 1):>4} {'#' * filled}"


def _list_facts(view: ScheduleView, group: list[KernelSide]) -> list[Text]:
    kernels = [side.kernel for side in group]
    kernel, page = kernels[0], view.page
    outputs = sorted({node for item in kernels for node in item.outputs})
    facts = [
        *_list_buffers(kernel),
        ("launch ", _format_launch(page, kernel)),
        ("time ", describe_times(kernel)),
        ("nodes ", format_ids(node for item in kernels for node in item.nodes)),
        ("stores ", ", ".join(f"{node} {view.index.op(node)}".removesuffix(" ?") for node in outputs)),
        ("lines ", view.places.format_all(line for item in kernels for line in item.lines)),
    ]
    if len(group) > 1:
        also = format_ids(side.number for side in group[1:])
        facts.append((f"{len(group)} times the same, also ", f"#{also}"))
    shown: list[Text] = []
    for label, value in facts:
        if isinstance(value, Text):
            shown.append(value)
        elif value:
            shown.append(page.join((label, "dim"), value))
    return shown


def _format_launch(page: Page, kernel: Kernel) -> Text | str:
    if kernel.failed is not None:
        return page.join((describe_error(kernel.failed), ALERT))
    launch = f"global {format_dims(kernel.global_size)}, local {format_dims(kernel.local_size)}"
    if kernel.local_bytes:
        launch += f", LOCAL {kernel.local_bytes:,} B"
    if kernel.launches != 1:
        launch += f", launched {kernel.launches:,} times"
    return launch


def _list_buffers(kernel: Kernel) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    for access in dict.fromkeys([*_VERBS, *(item.access for item in kernel.buffers)]):
        arguments = ", ".join(_describe_buffer(item) for item in kernel.buffers if item.access == access)
        facts.append((f"{_VERBS.get(access, access)} ", arguments))
    return facts


def _describe_buffer(buffer: BufferArg) -> str:
    return f"{buffer.name} ({buffer.size:,} {buffer.dtype})"


# *** two runs


def _format_changes(view: ScheduleView) -> list[Text]:
    page, kernels = view.page, view.pair.kernels
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
    groups = group_equal(shown, lambda item: id(item) if page.show_all else _identify_lone(item))
    return lines + lay_out_table(page, _CHANGE_COLUMNS, [_format_change(view, group) for group in groups])


def _count(kernels: Sequence[KernelChange], side: str) -> int:
    return len({item.number for change in kernels for item in getattr(change, side)})


def _identify_lone(item: KernelChange) -> Hashable:
    """Only kernels that are on one side share a row."""
    if item.status not in ("only-before", "only-after"):
        return id(item)
    return item.status, _identify((item.before or item.after)[0].kernel)


def _format_change(view: ScheduleView, group: list[KernelChange]) -> Row:
    item = group[0]
    sides = [[side.kernel for side in some] for some in (item.before or item.after, item.after or item.before)]
    ops = [sum(kernel.executed_ops for kernel in some) for some in sides]
    moved = [sum(kernel.bytes for kernel in some) for some in sides]
    threads = [max(kernel.threads for kernel in some) for some in sides]
    before = format_ids(side.number for change in group for side in change.before)
    after = format_ids(side.number for change in group for side in change.after)
    cells = [
        MARKS[item.status],
        join_change(before, after),
        _format_names(view, item),
        view.compare(ops[0], ops[1], format_short),
        view.compare(moved[0], moved[1], format_bytes),
        view.change(*map(format_short, threads)),
    ]
    style = STATUS_STYLES.get(item.status, "")
    return Row(cells, facts=_list_changed_facts(view, item), notes=_format_relation(view, item), style=style)


def _format_names(view: ScheduleView, item: KernelChange) -> Text:
    sides = item.after or item.before
    name = sides[0].kernel.name
    if len(sides) > 1:
        name = format_plural(len(sides), "kernel")
    if len(item.before) == len(item.after) == 1:
        return view.change(item.before[0].kernel.name, name)
    return view.page.text(name, "bold")


def _format_relation(view: ScheduleView, item: KernelChange) -> list[Text]:
    if item.status == "fused-from":
        return [view.page.join(("fused from ", "bold"), ", ".join(map(name_kernel, item.before)))]
    if item.status == "split-into":
        return [view.page.join(("split into ", "bold"), ", ".join(map(name_kernel, item.after)))]
    return []


def _list_changed_facts(view: ScheduleView, item: KernelChange) -> list[Part]:
    facts: list[Part] = []
    if item.status in ("only-before", "only-after"):
        facts.append(_TITLES[item.status])
    if len(item.before) == len(item.after) == 1:
        facts += _compare_facts(view, item.before[0].kernel, item.after[0].kernel)
    else:
        local = [
            f"{max(side.kernel.local_bytes for side in some):,} B"
            for some in (item.before or item.after, item.after or item.before)
        ]
        if local != ["0 B", "0 B"]:
            facts.append(view.page.join(("LOCAL ", "dim"), view.change(*local)))
    facts += _format_times(view, item)
    lines = [line for side in item.after or item.before for line in side.kernel.lines]
    if places := view.places.format_all(lines):
        facts.append(view.page.join(("lines ", "dim"), places))
    return facts


def _format_times(view: ScheduleView, item: KernelChange) -> list[Text]:
    """The median of a launch; of several kernels their sum. A kernel of one side has its own time only."""
    sides = [[side.kernel.measured for side in one] for one in (item.before, item.after) if one]
    medians = [sum(one.median for one in measured if one is not None) for measured in sides]
    if not all(medians):
        return []
    before, after = medians[0], medians[-1]
    change = view.change(format_seconds(before), format_seconds(after))
    label = "a launch takes " if max(map(len, sides)) == 1 else "a launch of each takes "
    return [view.page.join((label, "dim"), change, format_ratio(before, after) * (len(medians) > 1))]


def _compare_facts(view: ScheduleView, before: Kernel, after: Kernel) -> list[Part]:
    facts = _compare_buffers(view, before, after)
    values: tuple[tuple[str, Callable[[Kernel], str]], ...] = (
        ("global", lambda kernel: format_dims(kernel.global_size)),
        ("local", lambda kernel: format_dims(kernel.local_size)),
        ("LOCAL", lambda kernel: f"{kernel.local_bytes:,} B"),
        ("launches", lambda kernel: str(kernel.launches)),
        ("target", lambda kernel: kernel.target),
    )
    for label, write in values:
        if write(before) != write(after):
            facts.append(view.page.join((f"{label} ", "dim"), view.change(write(before), write(after))))
    if before.key and before.key == after.key and before.source != after.source and not facts:
        facts.append(("the same AST, other code", "dim"))
    return facts


def _compare_buffers(view: ScheduleView, before: Kernel, after: Kernel) -> list[Part]:
    facts: list[Part] = []
    for one, other in zip_longest(before.buffers, after.buffers):
        if other is None:
            facts.append((f"- {one.access}s {_describe_buffer(one)}", BEFORE))
        elif one is None:
            facts.append((f"+ {other.access}s {_describe_buffer(other)}", AFTER))
        elif _describe_buffer(one) != _describe_buffer(other):
            change = view.change(_describe_buffer(one), _describe_buffer(other))
            facts.append(view.page.join((f"{other.access}s ", "dim"), change))
    return facts
