"""The kernels of a schedule as text: cost, launch, buffers and user lines; of two runs how each was matched."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import zip_longest

from rich.text import Text

from vmapdbg.diff import KernelChange, KernelSide
from vmapdbg.model.capture import BufferArg, Kernel
from vmapdbg.model.schedule_index import group_equal, kernel_identity
from vmapdbg.model.wording import format_plural
from vmapdbg.page.crash_sentences import describe_error
from vmapdbg.page.format import (
    describe_times,
    format_bytes,
    format_count,
    format_dims,
    format_ids,
    format_ratio,
    format_redundancy,
    format_seconds,
    format_share,
    format_short,
    join_change,
)
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, Cell, Piece, Row
from vmapdbg.page.text.view import MARKS, STATUS_STYLES, ScheduleView, describe_copies

_BAR = 6
MUCH_REDUNDANCY = 2.0
"""A kernel with this redundancy or more is marked."""
_VERBS = {"write": "writes", "read-write": "updates", "read": "reads"}
_TITLES = {
    "changed": "changed",
    "fused-from": "fused",
    "split-into": "split",
    "only-before": "only before",
    "only-after": "only after",
    "unchanged": "unchanged",
}


def print_kernels(view: ScheduleView) -> None:
    """Prints the kernels, with two runs only the changed ones. Equal kernels have one row, unless all is asked for."""
    if view.is_pair:
        _print_changes(view)
        return
    sides = [change.after[0] for change in view.pair.kernels]
    kernels = [side.kernel for side in sides]
    if not kernels:
        view.page.head("Kernels", f"none, {describe_copies(view.schedule.copies)}")
        return
    groups = group_equal(sides, lambda side: side.number if view.page.show_all else _identify(side.kernel))
    count = format_plural(len(kernels), "kernel")
    distinct = len({kernel_identity(kernel) for kernel in kernels})
    if distinct != len(kernels):
        count += f" ({distinct} distinct)"
    total = f"{format_count(sum(kernel.executed_ops for kernel in kernels))} ops executed"
    moved = f"{format_bytes(sum(kernel.bytes for kernel in kernels))} moved"
    view.page.head("Kernels", f"{count}, {total}, {moved}")
    view.page.table([_format_kernel(view, kernels, group) for group in groups])


def name_kernel(side: KernelSide) -> str:
    """Returns `#0 r_3_2`."""
    return f"#{side.number} {side.kernel.name}"


def _identify(kernel: Kernel) -> Hashable:
    return kernel_identity(kernel), kernel.name, kernel.launches, kernel.executed_ops


# *** one run


def _measure_share(kernels: Sequence[Kernel], kernel: Kernel) -> float:
    """Returns a kernel's executed ops over those of the largest; bytes if all kernels only move data."""
    if any(item.executed_ops for item in kernels):
        return kernel.executed_ops / max(item.executed_ops for item in kernels)
    return kernel.bytes / max(max(item.bytes for item in kernels), 1)


def _format_kernel(view: ScheduleView, kernels: Sequence[Kernel], group: list[KernelSide]) -> Row:
    kernel, numbers = group[0].kernel, [side.number for side in group]
    share = _measure_share(kernels, kernel)
    shade = _shade(share) if len(kernels) > 1 else ""
    filled = max(round(share * _BAR), 1) if share > 0 else 0
    is_redundant = kernel.redundancy is not None and kernel.redundancy >= MUCH_REDUNDANCY
    amounts: tuple[Piece, ...] = ("-",) * 5
    notes: list[Text] = []
    if kernel.failed is None:
        amounts = (
            (format_count(kernel.executed_ops), shade),
            (f"{format_share(share, 1):>4} {'#' * filled}", shade),
            format_bytes(kernel.bytes),
            (format_redundancy(kernel.redundancy), "bold yellow" if is_redundant else ""),
            format_count(kernel.threads),
        )
        notes = view.notes_for(view.findings.take_for_kernel(kernel, view.pair.index, numbers))
    cells = [
        Cell("#", str(numbers[0]), right=True, comfort=3),
        Cell("kernel", (kernel.name, "bold" if kernel.failed is None else ALERT), comfort=16, most=40),
        Cell("ops", amounts[0], right=True, comfort=11),
        Cell("of largest", amounts[1], comfort=11),
        Cell("moves", amounts[2], right=True, comfort=9, leaves=2),
        Cell("redundancy", amounts[3], right=True, comfort=10, leaves=1),
        Cell("threads", amounts[4], right=True, comfort=7),
    ]
    return Row(cells, _list_facts(view, group), notes)


def _shade(share: float) -> str:
    """Returns the style of a kernel by its share of the work; the largest has 1."""
    for least, style in ((0.66, "bold yellow"), (0.33, "yellow"), (0.05, "")):
        if share > least:
            return style
    return "dim"


def _list_facts(view: ScheduleView, group: list[KernelSide]) -> list[Text]:
    kernels = [side.kernel for side in group]
    kernel, page = kernels[0], view.page
    outputs = sorted({node for item in kernels for node in item.outputs})
    facts: list[tuple[str, str]] = []
    for access in dict.fromkeys([*_VERBS, *(item.access for item in kernel.buffers)]):
        arguments = ", ".join(_describe_buffer(item) for item in kernel.buffers if item.access == access)
        facts.append((_VERBS.get(access, access), arguments))
    facts += [
        ("launch" if kernel.failed is None else "", _describe_launch(kernel)),
        ("time", describe_times(kernel)),
        ("nodes", format_ids(node for item in kernels for node in item.nodes)),
        ("stores", ", ".join(f"{node} {view.index.op(node)}".removesuffix(" ?") for node in outputs)),
        ("lines", view.places.format_all(line for item in kernels for line in item.lines)),
        (f"{len(group)} times the same, also", "#" * (len(group) > 1) + format_ids(side.number for side in group[1:])),
    ]
    known = [(label, value) for label, value in facts if value]
    return [page.join((f"{label} ", "dim"), value) if label else page.text(value, ALERT) for label, value in known]


def _describe_launch(kernel: Kernel) -> str:
    if kernel.failed is not None:
        return describe_error(kernel.failed)
    launch = f"global {format_dims(kernel.global_size)}, local {format_dims(kernel.local_size)}"
    if kernel.local_bytes:
        launch += f", LOCAL {kernel.local_bytes:,} B"
    if kernel.launches != 1:
        launch += f", launched {kernel.launches:,} times"
    return launch


def _describe_buffer(buffer: BufferArg) -> str:
    return f"{buffer.name} ({buffer.size:,} {buffer.dtype})"


# *** two runs


def _print_changes(view: ScheduleView) -> None:
    page, kernels = view.page, view.pair.kernels
    shown = [item for item in kernels if page.show_all or item.status != "unchanged"]
    if not shown:
        return
    statuses = [item.status for item in kernels]
    counts = [f"{statuses.count(status)} {title}" for status, title in _TITLES.items() if status in statuses]
    before = len({item.number for change in kernels for item in change.before})
    after = len({item.number for change in kernels for item in change.after})
    count = page.text(format_plural(after, "kernel"))
    if before != after:
        count = page.change(str(before), count.plain)
    page.head("Kernels", count, f": {', '.join(counts)}")
    groups = group_equal(shown, lambda item: id(item) if page.show_all else _identify_lone(item))
    page.table([_format_change(view, group) for group in groups])


def _identify_lone(item: KernelChange) -> Hashable:
    """Only kernels that are on one side share a row."""
    if item.status not in ("only-before", "only-after"):
        return id(item)
    return item.status, _identify((item.before or item.after)[0].kernel)


def _format_change(view: ScheduleView, group: list[KernelChange]) -> Row:
    page, item = view.page, group[0]
    sides = [[side.kernel for side in some] for some in (item.before or item.after, item.after or item.before)]
    ops = [sum(kernel.executed_ops for kernel in some) for some in sides]
    moved = [sum(kernel.bytes for kernel in some) for some in sides]
    threads = [format_short(max(kernel.threads for kernel in some)) for some in sides]
    before = format_ids(side.number for change in group for side in change.before)
    after = format_ids(side.number for change in group for side in change.after)
    cells = [
        Cell("", MARKS[item.status], comfort=1),
        Cell("#", join_change(before, after), comfort=3, most=10),
        Cell("kernel", _format_names(view, item), comfort=16, most=48),
        Cell("ops", page.compare(ops[0], ops[1], format_short), comfort=10, most=30),
        Cell("moves", page.compare(moved[0], moved[1], format_bytes), comfort=10, most=34, leaves=2),
        Cell("threads", page.change(threads[0], threads[1]), comfort=7, most=24, leaves=1),
    ]
    notes: list[Text] = []
    if item.status == "fused-from":
        notes.append(page.join(("fused from ", "bold"), ", ".join(map(name_kernel, item.before))))
    if item.status == "split-into":
        notes.append(page.join(("split into ", "bold"), ", ".join(map(name_kernel, item.after))))
    return Row(cells, _list_changed_facts(view, item), notes, STATUS_STYLES.get(item.status, ""))


def _format_names(view: ScheduleView, item: KernelChange) -> Text:
    sides = item.after or item.before
    name = sides[0].kernel.name
    if len(sides) > 1:
        name = format_plural(len(sides), "kernel")
    if len(item.before) == len(item.after) == 1:
        return view.page.change(item.before[0].kernel.name, name)
    return view.page.text(name, "bold")


def _list_changed_facts(view: ScheduleView, item: KernelChange) -> list[Piece]:
    page = view.page
    facts: list[Piece] = []
    if item.status in ("only-before", "only-after"):
        facts.append(_TITLES[item.status])
    if len(item.before) == len(item.after) == 1:
        facts += _compare_facts(view, item.before[0].kernel, item.after[0].kernel)
    else:
        sides = item.before or item.after, item.after or item.before
        local = [f"{max(side.kernel.local_bytes for side in some):,} B" for some in sides]
        if local != ["0 B", "0 B"]:
            facts.append(page.join(("LOCAL ", "dim"), page.change(*local)))
    facts += _format_times(view, item)
    lines = [line for side in item.after or item.before for line in side.kernel.lines]
    if places := view.places.format_all(lines):
        facts.append(page.join(("lines ", "dim"), places))
    return facts


def _format_times(view: ScheduleView, item: KernelChange) -> list[Text]:
    """The median of a launch; of several kernels their sum. A kernel of one side has its own time only."""
    sides = [[side.kernel.measured for side in one] for one in (item.before, item.after) if one]
    medians = [sum(one.median for one in measured if one is not None) for measured in sides]
    if not all(medians):
        return []
    before, after = medians[0], medians[-1]
    change = view.page.change(format_seconds(before), format_seconds(after))
    label = "a launch takes " if max(map(len, sides)) == 1 else "a launch of each takes "
    return [view.page.join((label, "dim"), change, format_ratio(before, after) * (len(medians) > 1))]


def _compare_facts(view: ScheduleView, before: Kernel, after: Kernel) -> list[Piece]:
    page = view.page
    facts: list[Piece] = []
    for one, other in zip_longest(before.buffers, after.buffers):
        if other is None:
            facts.append((f"- {one.access}s {_describe_buffer(one)}", BEFORE))
        elif one is None:
            facts.append((f"+ {other.access}s {_describe_buffer(other)}", AFTER))
        elif _describe_buffer(one) != _describe_buffer(other):
            change = page.change(_describe_buffer(one), _describe_buffer(other))
            facts.append(page.join((f"{other.access}s ", "dim"), change))
    values: tuple[tuple[str, Callable[[Kernel], str]], ...] = (
        ("global", lambda kernel: format_dims(kernel.global_size)),
        ("local", lambda kernel: format_dims(kernel.local_size)),
        ("LOCAL", lambda kernel: f"{kernel.local_bytes:,} B"),
        ("launches", lambda kernel: str(kernel.launches)),
        ("target", lambda kernel: kernel.target),
    )
    for label, write in values:
        if write(before) != write(after):
            facts.append(page.join((f"{label} ", "dim"), page.change(write(before), write(after))))
    if before.key and before.key == after.key and before.source != after.source and not facts:
        facts.append(("the same AST, other code", "dim"))
    return facts
