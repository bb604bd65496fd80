"""The kernels of a schedule as text: cost, launch, buffers, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from vmapdbg.model.capture import Kernel, Schedule
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
    format_share,
)
from vmapdbg.page.text.layout import Column, Page, Row, lay_out_table
from vmapdbg.page.text.view import ALERT, ScheduleView

_BAR = 6
MUCH_REDUNDANCY = 2.0
"""From here on it is marked."""
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


def format_kernels(view: ScheduleView) -> list[Text]:
    """Returns the kernels section as lines. Identical kernels stand in one row, unless all is asked for."""
    page = view.page
    kernels = list(view.kernels.values())
    if not kernels:
        return page.head("Kernels", f"none, {describe_copies(view.schedule)}")
    groups = _group_kernels(view.kernels, apart=page.show_all)
    most = max(_cost(kernels, kernel) for kernel in kernels)
    total = f"{format_count(sum(kernel.executed_ops for kernel in kernels))} ops executed"
    moved = f"{format_bytes(sum(kernel.bytes for kernel in kernels))} moved"
    title = f"{format_plural(len(kernels), 'kernel')}{_count_distinct(kernels)}, {total}, {moved}"
    rows = [_format_kernel(view, numbers, most) for numbers in groups]
    return page.head("Kernels", title) + lay_out_table(page, _COLUMNS, rows)


def describe_copies(schedule: Schedule) -> str:
    """Returns `1 copy`, `no copies`."""
    if not schedule.copies:
        return "no copies"
    return format_plural(schedule.copies, "copy", "copies")


def _count_distinct(kernels: Sequence[Kernel]) -> str:
    distinct = len({kernel_identity(kernel) for kernel in kernels})
    if distinct == len(kernels):
        return ""
    return f" ({distinct} distinct)"


def _group_kernels(kernels: Mapping[int, Kernel], *, apart: bool) -> list[list[int]]:
    if apart:
        return [[number] for number in kernels]
    groups: dict[object, list[int]] = {}
    for number, kernel in kernels.items():
        identity = (kernel_identity(kernel), kernel.name, kernel.launches, kernel.executed_ops)
        groups.setdefault(identity, []).append(number)
    return list(groups.values())


def _cost(kernels: Sequence[Kernel], kernel: Kernel) -> int:
    """Executed ops; where no kernel has any (they only move data), bytes."""
    if any(item.executed_ops for item in kernels):
        return kernel.executed_ops
    return kernel.bytes


def _format_kernel(view: ScheduleView, numbers: list[int], most: int) -> Row:
    kernels = list(view.kernels.values())
    kernel = view.kernels[numbers[0]]
    share = _cost(kernels, kernel) / max(most, 1)
    shade = ""
    if len(kernels) > 1:
        shade = _shade(share)
    alarm = ""
    if kernel.redundancy is not None and kernel.redundancy >= MUCH_REDUNDANCY:
        alarm = "bold yellow"
    if kernel.failed is not None:
        return Row([str(numbers[0]), (kernel.name, ALERT), *["-"] * 5], facts=_format_facts(view, numbers))
    cells = [
        str(numbers[0]),
        (kernel.name, "bold"),
        (format_count(kernel.executed_ops), shade),
        (_format_bar(share), shade),
        format_bytes(kernel.bytes),
        (format_redundancy(kernel.redundancy), alarm),
        format_count(kernel.threads),
    ]
    notes = view.notes_for(view.findings.take_for_kernel(kernel, view.schedule.index, numbers))
    return Row(cells, facts=_format_facts(view, numbers), notes=notes)


def _shade(share: float) -> str:
    """Returns the style of a kernel by its share of the work, the largest being 1."""
    for least, style in ((0.66, "bold yellow"), (0.33, "yellow"), (0.05, "")):
        if share > least:
            return style
    return "dim"


def _format_bar(share: float) -> str:
    filled = max(round(share * _BAR), 1) if share > 0 else 0
    return f"{format_share(share, 1):>4} {'#' * filled}"


def _format_facts(view: ScheduleView, numbers: list[int]) -> list[Text]:
    kernels = [view.schedule.kernels[number] for number in numbers]
    kernel, page = kernels[0], view.page
    facts = _format_buffers(view, kernel)
    facts.append(_format_launch(page, kernel))
    if times := describe_times(kernel):
        facts.append(page.join(("time ", "dim"), times))
    if nodes := format_ids(node for item in kernels for node in item.nodes):
        facts.append(page.join(("nodes ", "dim"), nodes))
    if outputs := sorted({node for item in kernels for node in item.outputs}):
        stored = ", ".join(f"{node} {view.index.op(node)}".removesuffix(" ?") for node in outputs)
        facts.append(page.join(("stores ", "dim"), stored))
    if places := view.places.format_all(line for item in kernels for line in item.lines):
        facts.append(page.join(("lines ", "dim"), places))
    if len(numbers) > 1:
        facts.append(page.join((f"{len(numbers)} times the same, also ", "dim"), f"#{format_ids(numbers[1:])}"))
    return facts


def _format_launch(page: Page, kernel: Kernel) -> Text:
    if kernel.failed is not None:
        return page.join((describe_error(kernel.failed), ALERT))
    launch = f"global {format_dims(kernel.global_size)}, local {format_dims(kernel.local_size)}"
    if kernel.local_bytes:
        launch += f", LOCAL {kernel.local_bytes:,} B"
    if kernel.launches != 1:
        launch += f", launched {kernel.launches:,} times"
    return page.join(("launch ", "dim"), launch)


def _format_buffers(view: ScheduleView, kernel: Kernel) -> list[Text]:
    notes: list[Text] = []
    for access in dict.fromkeys([*_VERBS, *(item.access for item in kernel.buffers)]):
        args = [item for item in kernel.buffers if item.access == access]
        if args:
            parts = ", ".join(f"{item.name} ({item.size:,} {item.dtype})" for item in args)
            notes.append(view.page.join((f"{_VERBS.get(access, access)} ", "dim"), parts))
    return notes
