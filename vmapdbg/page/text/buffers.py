"""The BUFFERIZEs of a schedule as text, with two runs only the changed ones; and the alert for a lost ambient range."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rich.text import Text

from vmapdbg.diff import BufferizeChange
from vmapdbg.model.capture import Bufferize
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_bytes, format_count
from vmapdbg.page.sentences import say_reason
from vmapdbg.page.text.layout import Column, Part, Row, lay_out_table
from vmapdbg.page.text.view import AFTER, ALERT, BEFORE, MARKS, STATUS_STYLES, ScheduleView

_MOST_ALERTS = 3
_STYLES = {"kept": ("green", ""), "removed": ("", "dim")}
"""The style of an outcome, and of its row."""
_ONLY = {"only-before": "only before, ", "only-after": "only after, "}


def format_bufferizes(view: ScheduleView) -> list[Text]:
    """Returns what each BUFFERIZE closes, its size, kept or removed and why; with two runs only changed ones."""
    page, every = view.page, view.pair.bufferizes
    if not view.is_pair:
        if not every:
            return page.head(view.buffer_op, "none")
        lines = page.head(view.buffer_op, _count_kept(every) + _explain_star(every))
        return lines + _lay_out(view, [_format_row(view, item, item.after) for item in every if item.after])
    changed = [item for item in every if page.show_all or item.status != "unchanged"]
    if not changed:
        return []
    main = [item for item in changed if page.show_all or not _is_minor(item)]
    minor = [item for item in changed if not page.show_all and _is_minor(item)]
    same = sum(item.status == "unchanged" for item in every)
    lines = page.head(view.buffer_op, f"{len(every) - same} changed, {same} unchanged" + _explain_star(main))
    return lines + _lay_out(view, [_format_change(view, item) for item in main]) + _format_minor(view, minor)


def _lay_out(view: ScheduleView, rows: Sequence[Row]) -> list[Text]:
    right = not view.is_pair
    columns = (
        Column("", comfort=1),
        Column("node", right=True, comfort=5),
        Column("op", comfort=12),
        Column("closes", comfort=18, most=44),
        Column("elements", right=right, comfort=12 if right else 8, most=24),
        Column("bytes", right=right, comfort=8, most=24),
        Column("space", comfort=6, most=24),
        Column("decision", comfort=50, most=90, leaves=1, label="", own_line=True),
    )
    return lay_out_table(view.page, columns, rows)


def _explain_star(items: Sequence[BufferizeChange]) -> str:
    return "; * ambient range" if any(item.ambient for item in items) else ""


# *** one run


def format_alerts(view: ScheduleView) -> list[Text]:
    """Returns one line for each BUFFERIZE that loses an ambient range, for the top of the schedule."""
    lost = [item for item in view.pair.bufferizes if item.lost_after and item.after is not None]
    lines: list[Text] = []
    for item in lost[:_MOST_ALERTS]:
        about = f"node {_any_side(item).node} {item.op}: ambient {', '.join(item.lost_after)}"
        lines += view.page.wrap((f"!! BUFFERIZE of {about} is NOT closed", ALERT), indent=2, hang=3)
    if len(lost) > _MOST_ALERTS:
        more = format_plural(len(lost) - _MOST_ALERTS, "BUFFERIZE", "BUFFERIZEs")
        lines += view.page.wrap((f"!! and {more} more, see BUFFERIZE below", ALERT), indent=2)
    return lines


def _count_kept(items: Sequence[BufferizeChange]) -> str:
    kept = [item.after for item in items if item.after is not None and item.after.outcome == "kept"]
    held = format_bytes(sum(made.bytes for made in kept if made.addrspace == "GLOBAL"))
    return f"{len(kept)} kept ({held} GLOBAL), {len(items) - len(kept)} removed"


def _format_row(view: ScheduleView, item: BufferizeChange, made: Bufferize) -> Row:
    page = view.page
    style, shade = _STYLES[made.outcome]
    cells = [
        "",
        str(made.node),
        item.op,
        page.join("(", view.names(made.closed_ranges, ambient=item.ambient), ")"),
        _format_elements(view, made),
        format_bytes(made.bytes),
        made.addrspace,
        page.join((made.outcome, style), made.reason and f": {made.reason}"),
    ]
    return Row(cells, notes=_format_open_ranges(view, item, made), style=shade)


def _format_elements(view: ScheduleView, made: Bufferize) -> str:
    sizes = [view.index.size_of(name) for name in made.closed_ranges]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes) > 1 and prod(known) == made.size:
        return f"{'x'.join(str(size) for size in known)} = {format_count(made.size)}"
    return format_count(made.size)


def _format_open_ranges(view: ScheduleView, item: BufferizeChange, made: Bufferize) -> list[Part]:
    lost = item.lost_after
    closed = {*made.closed_ranges, *lost}
    harmless = [name for name in item.ambient if name not in closed]
    notes: list[Part] = []
    if lost:
        iterations = " x ".join(f"{view.index.size_of(name) or '?'}" for name in lost)
        alert = (
            f"!! ambient {', '.join(lost)} is NOT closed: all {iterations} iterations write the same "
            f"{format_plural(made.size, 'element')}, only one of them survives"
        )
        notes.append((alert, ALERT))
    if harmless and made.outcome == "kept":
        notes.append((f"ambient {', '.join(harmless)} stays open: LOCAL, inside its loop", "dim"))
    return notes


# *** two runs


def _is_minor(item: BufferizeChange) -> bool:
    """Whether the change has no effect: no buffer on either side, or the same buffer for another reason."""
    outcomes = {side.outcome for side in (item.before, item.after) if side is not None}
    return outcomes == {"removed"} or item.changed == ("reason",)


def _format_minor(view: ScheduleView, minor: list[BufferizeChange]) -> list[Text]:
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


def _format_change(view: ScheduleView, item: BufferizeChange) -> Row:
    side = _any_side(item)
    before, after = item.before or side, item.after or side
    decision = ""
    if item.status != "changed":
        decision = f"{_ONLY.get(item.status, '')}{side.outcome}: {side.reason}"
    cells = [
        MARKS[item.status],
        str(side.node),
        item.op,
        _format_closed(view, item),
        view.change(format_count(before.size), format_count(after.size)),
        view.change(format_bytes(before.bytes), format_bytes(after.bytes)),
        view.change(before.addrspace, after.addrspace),
        decision,
    ]
    notes = [*_format_decisions(view, item), *_format_lost(item)]
    return Row(cells, notes=notes, style=STATUS_STYLES.get(item.status, ""))


def _format_closed(view: ScheduleView, item: BufferizeChange) -> Text:
    if item.before is not None and item.after is not None:
        return view.merge_names(item.before.closed_ranges, item.after.closed_ranges, item.ambient)
    names = _any_side(item).closed_ranges
    if item.after is None:
        names = tuple(map(view.renaming.translate, names))
    return view.page.join("(", view.names(names, ambient=item.ambient), ")")


def _format_decisions(view: ScheduleView, item: BufferizeChange) -> list[Text]:
    if item.before is None or item.after is None or not {"outcome", "reason"} & set(item.changed):
        return []
    reason = item.before.reason
    if item.before.decided is not None:
        reason = say_reason(item.before.decided, view.names_before)
    return [
        view.page.join((f"- {item.before.outcome}", BEFORE), f": {reason}"),
        view.page.join((f"+ {item.after.outcome}", AFTER), f": {item.after.reason}"),
    ]


def _format_lost(item: BufferizeChange) -> list[Part]:
    notes: list[Part] = []
    if item.lost_before:
        names = ", ".join(item.lost_before)
        lost = f"before, ambient {names} was NOT closed: only one iteration of it survived{_explain_rescue(item)}"
        notes.append((f"!! {lost}", ALERT))
    if item.lost_after:
        names = ", ".join(item.lost_after)
        notes.append((f"!! after, ambient {names} is NOT closed: only one iteration of it survives", ALERT))
    return notes


def _explain_rescue(item: BufferizeChange) -> str:
    """Says why after does not lose what before lost."""
    if item.lost_after or item.after is None:
        return ""
    if item.after.outcome != "kept":
        return "; after, there is no buffer"
    if item.after.addrspace != "GLOBAL":
        return f"; after, it is {item.after.addrspace}, each iteration has its own"
    return "; after, it is"
