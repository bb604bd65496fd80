"""The kernels of a schedule as text, and its buffers: cost, launch, decisions; of two runs only what changed."""

from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from math import prod

from rich.text import Text

from vmapdbg.diff.result import BufferizeChange, KernelChange, KernelSide
from vmapdbg.model.capture import Bufferize
from vmapdbg.model.schedule_index import group_equal, kernel_identity
from vmapdbg.model.wording import format_known, format_plural
from vmapdbg.page.format import (
    compare_facts,
    format_bytes,
    format_count,
    format_ids,
    format_ratio,
    format_redundancy,
    format_seconds,
    format_share,
    join_change,
    round_count,
)
from vmapdbg.page.sentences import describe_error, say_reason
from vmapdbg.page.speed import describe_kernel
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, Cell, Piece, Row
from vmapdbg.page.text.view import MARKS, STATUS_STYLES, ScheduleView, count_distinct, describe_copies

_BAR = 6
_MUCH_REDUNDANCY = 2.0
"""A kernel with this redundancy or more is marked."""
TITLES = {
    "changed": "changed",
    "fused-from": "fused",
    "split-into": "split",
    "only-before": "only before",
    "only-after": "only after",
    "unchanged": "unchanged",
}


def print_kernels(view: ScheduleView) -> None:
    """Prints the kernels, with two runs only the changed ones. Equal kernels have one row, unless all is asked for."""
    page, changes = view.page, view.pair.kernels
    if view.is_pair and not page.show_all:
        changes = [item for item in changes if item.status != "unchanged"]
    groups = group_equal(changes, lambda item: _identify(item, page.show_all))
    if view.is_pair:
        if groups:
            _add_changed_title(view)
        page.table(_format_change(view, group) for group in groups)
        return
    kernels = [change.after[0].kernel for change in changes]
    if not kernels:
        page.head("Kernels", f"none, {describe_copies(view.schedule.copies)}")
        return
    count = count_distinct(len(kernels), len(set(map(kernel_identity, kernels))), "kernel")
    ops, moved = sum(kernel.executed_ops for kernel in kernels), sum(kernel.bytes for kernel in kernels)
    page.head("Kernels", f"{count}, {format_count(ops)} ops executed, {format_bytes(moved)} moved")
    # all kernels may only move data
    work = "executed_ops" if ops else "bytes"
    largest = max(*(getattr(kernel, work) for kernel in kernels), 1)
    page.table(_format_kernel(view, [change.after[0] for change in group], work, largest) for group in groups)


def _identify(item: KernelChange, show_all: bool) -> Hashable:
    """Returns what kernels that share a row have in common: kernels of one run, or kernels that are on one side."""
    if show_all or item.status not in ("unchanged", "only-before", "only-after"):
        return id(item)
    kernel = (item.after or item.before)[0].kernel
    return item.status, kernel_identity(kernel), kernel.name, kernel.launches, kernel.executed_ops


def name_kernel(side: KernelSide) -> str:
    """Returns `#0 r_3_2`."""
    return f"#{side.number} {side.kernel.name}"


def name_change(change: KernelChange, name: Callable[[KernelSide], str]) -> tuple[str, str]:
    """Returns the names of a kernel before and after; equal for a kernel of one side, fused from several, or split."""
    if len(change.before) == len(change.after) == 1:
        return name(change.before[0]), name(change.after[0])
    alone = name((change.after if len(change.after) == 1 else change.before)[0])
    return alone, alone


def list_parts(change: KernelChange) -> tuple[str, tuple[KernelSide, ...]]:
    """Returns `fused from ` or `split into `, and the several kernels; no words and no kernel for another change."""
    if change.status == "fused-from":
        return "fused from ", change.before
    if change.status == "split-into":
        return "split into ", change.after
    return "", ()


# *** kernels of one run


def _format_kernel(view: ScheduleView, group: list[KernelSide], work: str, largest: int) -> Row:
    """Returns the row of equal kernels, with their `work` as a part of the largest kernel's."""
    kernel, numbers = group[0].kernel, [side.number for side in group]
    redundant = "bold yellow" if (kernel.redundancy or 0) >= _MUCH_REDUNDANCY else ""
    share = getattr(kernel, work) / largest
    filled = max(round(share * _BAR), 1) if share > 0 else 0
    return Row(
        Cell("#", str(numbers[0]), right=True, comfort=3),
        Cell("kernel", (kernel.name, "bold" if kernel.failed is None else ALERT), comfort=16, most=40),
        Cell("ops", format_count(kernel.executed_ops), right=True, comfort=11),
        Cell("of largest", f"{format_share(share, 1):>4} {'#' * filled}", comfort=11),
        Cell("moves", format_bytes(kernel.bytes), right=True, comfort=9, leaves=2),
        Cell("redundancy", (format_redundancy(kernel.redundancy), redundant), right=True, comfort=10, leaves=1),
        Cell("threads", format_count(kernel.threads), right=True, comfort=7),
        facts=_list_facts(view, group),
        notes=view.notes_for(view.findings.about_kernel(view.pair.index, numbers)),
    )


def _list_facts(view: ScheduleView, group: list[KernelSide]) -> list[Text]:
    kernels = [side.kernel for side in group]
    outputs = sorted(set(chain.from_iterable(item.outputs for item in kernels)))
    facts = [
        *describe_kernel(kernels[0], view.run.capture and view.run.capture.device).items(),
        ("nodes", format_ids(chain.from_iterable(item.nodes for item in kernels))),
        ("stores", ", ".join(f"{node} {view.index.op(node)}".removesuffix(" ?") for node in outputs)),
        ("lines", view.places.format_all(chain.from_iterable(item.lines for item in kernels))),
        (f"{len(group)} times the same, also", format_known("#{}", format_ids(side.number for side in group[1:]))),
    ]
    error = describe_error(kernels[0].failed) if kernels[0].failed is not None else ""
    return [view.page.text(error, ALERT), *(view.page.label(*fact) for fact in facts)]


# *** kernels of two runs


def _add_changed_title(view: ScheduleView) -> None:
    page, kernels = view.page, view.pair.kernels
    statuses = [item.status for item in kernels]
    counts = [f"{statuses.count(status)} {title}" for status, title in TITLES.items() if status in statuses]
    # a kernel that was split, or fused with others, is in one change only
    before = {side.number for item in kernels for side in item.before}
    after = {side.number for item in kernels for side in item.after}
    count = page.text(format_plural(len(after), "kernel"))
    if len(before) != len(after):
        count = page.change(str(len(before)), count.plain)
    page.head("Kernels", count, f": {', '.join(counts)}")


def _format_change(view: ScheduleView, group: list[KernelChange]) -> Row:
    page, item = view.page, group[0]
    before, after = _add_up(item.before or item.after), _add_up(item.after or item.before)
    numbers_before = format_ids(side.number for change in group for side in change.before)
    numbers_after = format_ids(side.number for change in group for side in change.after)
    words, parts = list_parts(item)
    return Row(
        Cell("", MARKS[item.status], comfort=1),
        Cell("#", join_change(numbers_before, numbers_after), comfort=3, most=10),
        Cell("kernel", page.change(*name_change(item, lambda side: side.kernel.name)), comfort=16, most=48),
        Cell("ops", page.compare(before[0], after[0], round_count), comfort=10, most=30),
        Cell("moves", page.compare(before[1], after[1], format_bytes), comfort=10, most=34, leaves=2),
        Cell("threads", page.change(round_count(before[2]), round_count(after[2])), comfort=7, most=24, leaves=1),
        facts=_list_changed_facts(view, item),
        notes=[page.join((words, "bold"), ", ".join(map(name_kernel, parts)))],
        style=STATUS_STYLES.get(item.status, ""),
    )


def _add_up(sides: Sequence[KernelSide]) -> tuple[int, int, int]:
    """Returns the ops and bytes of some kernels, and the most threads."""
    kernels = [side.kernel for side in sides]
    ops, moved = sum(kernel.executed_ops for kernel in kernels), sum(kernel.bytes for kernel in kernels)
    return ops, moved, max(kernel.threads for kernel in kernels)


def _list_changed_facts(view: ScheduleView, item: KernelChange) -> list[Piece]:
    page = view.page
    facts: list[Piece] = []
    if len(item.before) == len(item.after) == 1:
        compared = compare_facts(item.before[0].kernel, item.after[0].kernel)
        facts += [page.label(name, page.change(left, right)) for name, left, right in compared]
    elif item.status in ("only-before", "only-after"):
        facts.append(TITLES[item.status])
    # the median of a launch; of several kernels their sum
    measured = [[side.kernel.measured for side in some] for some in (item.before, item.after) if some]
    medians = [sum(one.median for one in some if one is not None) for some in measured]
    if all(medians):
        # a kernel of one side has its own time only
        change = page.change(format_seconds(medians[0]), format_seconds(medians[-1]))
        ratio = format_ratio(medians[0], medians[-1]) * (len(medians) > 1)
        label = "a launch takes" if max(len(item.before), len(item.after)) == 1 else "a launch of each takes"
        facts.append(page.label(label, page.join(change, ratio)))
    lines = chain.from_iterable(side.kernel.lines for side in item.after or item.before)
    return [*facts, page.label("lines", view.places.format_all(lines))]


# *** buffers


def print_bufferizes(view: ScheduleView) -> None:
    """Prints what each BUFFERIZE closes, its size, kept or removed and why; with two runs only changed ones."""
    page, every = view.page, view.pair.bufferizes
    shown = [item for item in every if not view.is_pair or page.show_all or item.status != "unchanged"]
    if not shown and not view.is_pair:
        page.head(view.buffer_op, "none")
    if not shown:
        return
    if view.is_pair:
        same = sum(item.status == "unchanged" for item in every)
        about = f"{len(every) - same} changed, {same} unchanged"
    else:
        kept = [made for made in map(_any_side, every) if made.outcome == "kept"]
        held = format_bytes(sum(made.bytes for made in kept if made.holds_memory))
        about = f"{len(kept)} kept ({held} GLOBAL), {len(every) - len(kept)} removed, most bytes first"
        shown.sort(key=lambda item: (_any_side(item).outcome == "removed", -_any_side(item).bytes))
    if any(item.ambient for item in shown):
        about += "; * ambient range"
    page.head(view.buffer_op, about)
    page.table(_format_bufferize(view, item) for item in shown)


def _any_side(item: BufferizeChange) -> Bufferize:
    side = item.after or item.before
    assert side is not None
    return side


def _format_bufferize(view: ScheduleView, item: BufferizeChange) -> Row:
    page, side = view.page, _any_side(item)
    before, after = item.before or side, item.after or side
    elements, decision, line = page.change(format_count(before.size), format_count(after.size)), Text(), None
    style, right = STATUS_STYLES.get(item.status, ""), not view.is_pair
    if not view.is_pair:
        line = (node := view.index.node(side.node)) and node.line
        style = "" if side.outcome == "kept" else "dim"
        sizes = [size for size in map(view.index.size_of, side.closed_ranges) if isinstance(size, int)]
        if len(sizes) > 1 and prod(sizes) == side.size:
            elements = page.text(f"{'x'.join(map(str, sizes))} = {format_count(side.size)}")
    if item.status != "changed":
        only = f"{TITLES[item.status]}, " if item.status != "unchanged" else ""
        outcome = side.outcome, "green" if side.outcome == "kept" else ""
        decision = page.join(only, outcome, format_known(": {}", side.reason))
    elif before.outcome == after.outcome == "removed":
        decision = page.text("removed on both sides")
    return Row(
        Cell("", MARKS[item.status] if view.is_pair else "", comfort=1),
        Cell("node", str(side.node), right=True, comfort=5),
        Cell("op", item.op),
        Cell("closes", _format_closed(view, item), comfort=18, most=44),
        Cell("elements", elements, right, comfort=10, most=24),
        Cell("bytes", page.change(*map(format_bytes, (before.bytes, after.bytes))), right, comfort=8, most=24),
        Cell("space", page.change(before.addrspace, after.addrspace), comfort=6, most=24),
        Cell("line", (view.places.format(line), "dim"), comfort=12, most=32, leaves=0, label=""),
        Cell("decision", decision, comfort=50, most=90, leaves=1, label="", own_line=True),
        notes=_list_notes(view, item),
        style=style,
    )


def _format_closed(view: ScheduleView, item: BufferizeChange) -> Text:
    if view.is_pair and item.before is not None and item.after is not None:
        return view.merge_names(item.before.closed_ranges, item.after.closed_ranges, item.ambient)
    names = _any_side(item).closed_ranges
    if item.after is None:
        names = tuple(map(view.renaming.translate, names))
    return view.page.join("(", view.names(names, ambient=item.ambient), ")")


def _list_notes(view: ScheduleView, item: BufferizeChange) -> list[Piece]:
    """Returns notes about ambient ranges that are not closed, and of two runs about a decision that changed."""
    before, after = item.before, item.after
    notes: list[Piece] = []
    if not view.is_pair and item.lost_after:
        steps = " x ".join(f"{view.index.size_of(name) or '?'}" for name in item.lost_after)
        same = format_plural(_any_side(item).size, "element")
        alert = f"all {steps} iterations write the same {same}, only one of them survives"
        notes.append((f"!! ambient {', '.join(item.lost_after)} is NOT closed: {alert}", ALERT))
    if not view.is_pair:
        return notes
    if before is not None and after is not None and {"outcome", "reason"} & set(item.changed):
        reason = say_reason(before.decided, view.side_names["before"]) if before.decided is not None else before.reason
        notes.append(view.page.join((f"- {before.outcome}", BEFORE), f": {reason}"))
        notes.append(view.page.join((f"+ {after.outcome}", AFTER), f": {after.reason}"))
    was = "!! before, ambient {} was NOT closed: only one iteration of it survived"
    now = "!! after, ambient {} is NOT closed: only one iteration of it survives"
    alerts = ((was, item.lost_before), (now, item.lost_after))
    return [*notes, *((format_known(form, ", ".join(lost)), ALERT) for form, lost in alerts)]
