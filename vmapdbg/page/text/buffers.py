"""The BUFFERIZEs of a schedule as text, with two runs only the changed ones."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rich.text import Text

from vmapdbg.diff import BufferizeChange
from vmapdbg.model.capture import Bufferize
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_bytes, format_count
from vmapdbg.page.sentences import say_reason
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, Cell, Piece, Row
from vmapdbg.page.text.view import MARKS, STATUS_STYLES, ScheduleView

_STYLES = {"kept": ("green", ""), "removed": ("", "dim")}
"""The style of an outcome, and of its row."""
_ONLY = {"only-before": "only before, ", "only-after": "only after, "}


def print_bufferizes(view: ScheduleView) -> None:
    """Prints what each BUFFERIZE closes, its size, kept or removed and why; with two runs only changed ones."""
    page, every = view.page, view.pair.bufferizes
    changed = [item for item in every if page.show_all or not view.is_pair or item.status != "unchanged"]
    if not changed:
        if not view.is_pair:
            page.head(view.buffer_op, "none")
        return
    hides = view.is_pair and not page.show_all
    main = [item for item in changed if not (hides and _is_minor(item))]
    minor = [item for item in changed if hides and _is_minor(item)]
    same = sum(item.status == "unchanged" for item in every)
    about = _count_kept(every)
    if view.is_pair:
        about = f"{len(every) - same} changed, {same} unchanged"
    page.head(view.buffer_op, about + "; * ambient range" * any(item.ambient for item in main))
    page.table([_format_row(view, item) for item in main])
    removed = [item for item in minor if item.changed != ("reason",)]
    reasons = [item for item in minor if item.changed == ("reason",)]
    for items, what in ((removed, "removed on both sides"), (reasons, "the same for another reason")):
        if items:
            names = ", ".join(f"{_any_side(item).node} {item.op}" for item in items)
            page.add((f"~ {what}: {names}", "dim"), indent=2)


def _count_kept(items: Sequence[BufferizeChange]) -> str:
    kept = [item.after for item in items if item.after is not None and item.after.outcome == "kept"]
    held = format_bytes(sum(made.bytes for made in kept if made.addrspace == "GLOBAL"))
    return f"{len(kept)} kept ({held} GLOBAL), {len(items) - len(kept)} removed"


def _is_minor(item: BufferizeChange) -> bool:
    """Whether the change has no effect: no buffer on either side, or the same buffer for another reason."""
    outcomes = {side.outcome for side in (item.before, item.after) if side is not None}
    return outcomes == {"removed"} or item.changed == ("reason",)


def _any_side(item: BufferizeChange) -> Bufferize:
    side = item.after or item.before
    assert side is not None
    return side


def _format_row(view: ScheduleView, item: BufferizeChange) -> Row:
    page, side = view.page, _any_side(item)
    before, after = item.before or side, item.after or side
    elements = page.change(format_count(before.size), format_count(after.size))
    decision: Piece = ""
    if not view.is_pair:
        elements = page.text(_spell_elements(view, side))
        decision = page.join((side.outcome, _STYLES[side.outcome][0]), side.reason and f": {side.reason}")
    elif item.status != "changed":
        decision = f"{_ONLY.get(item.status, '')}{side.outcome}: {side.reason}"
    right = not view.is_pair
    cells = [
        Cell("", MARKS[item.status] if view.is_pair else "", comfort=1),
        Cell("node", str(side.node), right=True, comfort=5),
        Cell("op", item.op),
        Cell("closes", _format_closed(view, item), comfort=18, most=44),
        Cell("elements", elements, right=right, comfort=12 if right else 8, most=24),
        Cell("bytes", page.change(format_bytes(before.bytes), format_bytes(after.bytes)), right, comfort=8, most=24),
        Cell("space", page.change(before.addrspace, after.addrspace), comfort=6, most=24),
        Cell("decision", decision, comfort=50, most=90, leaves=1, label="", own_line=True),
    ]
    if not view.is_pair:
        return Row(cells, notes=_format_open_ranges(view, item, side), style=_STYLES[side.outcome][1])
    notes = [*_format_decisions(view, item), *_format_lost(item)]
    return Row(cells, notes=notes, style=STATUS_STYLES.get(item.status, ""))


def _format_closed(view: ScheduleView, item: BufferizeChange) -> Text:
    if view.is_pair and item.before is not None and item.after is not None:
        return view.merge_names(item.before.closed_ranges, item.after.closed_ranges, item.ambient)
    names = _any_side(item).closed_ranges
    if item.after is None:
        names = tuple(map(view.renaming.translate, names))
    return view.page.join("(", view.names(names, ambient=item.ambient), ")")


# *** one run


def _spell_elements(view: ScheduleView, made: Bufferize) -> str:
    sizes = [view.index.size_of(name) for name in made.closed_ranges]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes) > 1 and prod(known) == made.size:
        return f"{'x'.join(str(size) for size in known)} = {format_count(made.size)}"
    return format_count(made.size)


def _format_open_ranges(view: ScheduleView, item: BufferizeChange, made: Bufferize) -> list[Piece]:
    lost = item.lost_after
    harmless = [name for name in item.ambient if name not in (*made.closed_ranges, *lost)]
    notes: list[Piece] = []
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


def _format_lost(item: BufferizeChange) -> list[Piece]:
    notes: list[Piece] = []
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
