"""Each BUFFERIZE that the rangeify pass made or removed differently, as text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from vmapdbg.diff import BufferizeChange
from vmapdbg.model.capture import Bufferize
from vmapdbg.page.format import format_bytes, format_count
from vmapdbg.page.sentences import say_reason
from vmapdbg.page.text.diff_view import AFTER, BEFORE, MARKS, STATUS_STYLES, DiffView
from vmapdbg.page.text.layout import Column, Part, Row, lay_out_table
from vmapdbg.page.text.view import ALERT

_COLUMNS = (
    Column("", comfort=1),
    Column("node", right=True, comfort=5),
    Column("op", comfort=12),
    Column("closes", comfort=18, most=44),
    Column("elements", comfort=8, most=24),
    Column("bytes", comfort=8, most=24),
    Column("space", comfort=6, most=24),
    Column("decision", comfort=50, most=90, leaves=1, label="", own_line=True),
)


def format_bufferizes(view: DiffView) -> list[Text]:
    """Returns each BUFFERIZE that appeared, vanished or changed, the ranges that it closes more marked `+`."""
    page = view.page
    changed = [item for item in view.schedule.bufferizes if page.show_all or item.status != "unchanged"]
    if not changed:
        return []
    main = [item for item in changed if page.show_all or not _is_minor(item)]
    minor = [item for item in changed if not page.show_all and _is_minor(item)]
    same = sum(item.status == "unchanged" for item in view.schedule.bufferizes)
    title = f"{len(view.schedule.bufferizes) - same} changed, {same} unchanged"
    if any(item.ambient for item in main):
        title += "; * ambient range"
    lines = page.head(view.buffer_op, title)
    lines += lay_out_table(page, _COLUMNS, [_format_bufferize(view, item) for item in main])
    return lines + _format_minor(view, minor)


def _is_minor(item: BufferizeChange) -> bool:
    """Nothing comes of it: no buffer on either side, or the same buffer for another reason."""
    outcomes = {side.outcome for side in (item.before, item.after) if side is not None}
    return outcomes == {"removed"} or item.changed == ("reason",)


def _format_minor(view: DiffView, minor: list[BufferizeChange]) -> list[Text]:
    lines: list[Text] = []
    removed = [item for item in minor if item.changed != ("reason",)]
    reasons = [item for item in minor if item.changed == ("reason",)]
    for items, what in ((removed, "removed on both sides"), (reasons, "the same for another reason")):
        if items:
            names = ", ".join(f"{_any_side(item).node} {item.op}" for item in items)
            lines += view.page.wrap((f"~ {what}: {names}", "dim"), indent=2, hang=2)
    return lines


def _any_side(item: BufferizeChange) -> Bufferize:
    side = item.after or item.before
    assert side is not None
    return side


def _format_bufferize(view: DiffView, item: BufferizeChange) -> Row:
    side = _any_side(item)
    before, after = item.before or side, item.after or side
    cells = [
        MARKS[item.status],
        str(side.node),
        item.op,
        _format_closed(view, item),
        view.change(format_count(before.size), format_count(after.size)),
        view.change(format_bytes(before.bytes), format_bytes(after.bytes)),
        view.change(before.addrspace, after.addrspace),
        _format_outcome(item, side),
    ]
    notes = [*_format_decisions(view, item), *_format_lost(item)]
    return Row(cells, notes=notes, style=STATUS_STYLES.get(item.status, ""))


def _format_closed(view: DiffView, item: BufferizeChange) -> Text:
    if item.before is not None and item.after is not None:
        return view.merge_names(item.before.closed_ranges, item.after.closed_ranges, item.ambient)
    names: Iterable[str] = _any_side(item).closed_ranges
    if item.after is None:
        names = map(view.renaming.translate, names)
    return view.page.join("(", view.names(names, ambient=item.ambient), ")")


def _format_outcome(item: BufferizeChange, side: Bufferize) -> str:
    if item.status == "changed":
        return ""
    only = {"only-before": "only before, ", "only-after": "only after, "}.get(item.status, "")
    return f"{only}{side.outcome}: {side.reason}"


def _format_decisions(view: DiffView, item: BufferizeChange) -> list[Text]:
    if item.before is None or item.after is None or not {"outcome", "reason"} & set(item.changed):
        return []
    reason = item.before.reason
    if item.before.decided is not None:
        reason = say_reason(item.before.decided, view.names_before)
    return [
        view.page.join((f"- {item.before.outcome}", BEFORE), f": {reason}"),
        view.page.join((f"+ {item.after.outcome}", AFTER), f": {item.after.reason}"),
    ]


def _tell_now(item: BufferizeChange) -> str:
    """Says why what a buffer lost before is not lost after."""
    if item.lost_after or item.after is None:
        return ""
    if item.after.outcome != "kept":
        return "; after, there is no buffer"
    if item.after.addrspace != "GLOBAL":
        return f"; after, it is {item.after.addrspace}, each iteration has its own"
    return "; after, it is"


def _format_lost(item: BufferizeChange) -> list[Part]:
    notes: list[Part] = []
    if item.lost_before:
        names = ", ".join(item.lost_before)
        lost = f"before, ambient {names} was NOT closed: only one iteration of it survived{_tell_now(item)}"
        notes.append((f"!! {lost}", ALERT))
    if item.lost_after:
        names = ", ".join(item.lost_after)
        notes.append((f"!! after, ambient {names} is NOT closed: only one iteration of it survives", ALERT))
    return notes
