"""The BUFFERIZE decisions of a schedule as text, and the mark for an ambient range that is lost."""

from __future__ import annotations

from math import prod

from rich.text import Text

from vmapdbg.model.capture import Bufferize
from vmapdbg.model.wording import format_plural
from vmapdbg.page.format import format_bytes, format_count
from vmapdbg.page.text.layout import Column, Part, Row, lay_out_table
from vmapdbg.page.text.view import ALERT, ScheduleView

_MOST_ALERTS = 3
_STYLES = {"kept": ("green", ""), "removed": ("", "dim")}
"""The style of an outcome, and that of its row."""

_COLUMNS = (
    Column("node", right=True, comfort=5),
    Column("op", comfort=12),
    Column("closes", comfort=18, most=44),
    Column("elements", right=True, comfort=12, most=24),
    Column("bytes", right=True, comfort=8),
    Column("space", comfort=6),
    Column("decision", comfort=50, most=90, leaves=1, label="", own_line=True),
)


def format_bufferizes(view: ScheduleView) -> list[Text]:
    """Returns the BUFFERIZE section as lines: what each one closes, its size, kept or removed and why."""
    page, bufferizes = view.page, view.bufferizes
    if not bufferizes:
        return page.head(view.schedule.buffer_op, "none")
    kept = [item for item in bufferizes if item.outcome == "kept"]
    held = format_bytes(sum(item.bytes for item in kept if item.addrspace == "GLOBAL"))
    title = f"{len(kept)} kept ({held} GLOBAL), {len(bufferizes) - len(kept)} removed"
    if any(view.index.ambient_of(item.node) for item in bufferizes):
        title += "; * ambient range"
    lines = page.head(view.schedule.buffer_op, title)
    return lines + lay_out_table(page, _COLUMNS, [_format_row(view, item) for item in bufferizes])


def format_alerts(view: ScheduleView) -> list[Text]:
    """Returns one line for each BUFFERIZE that loses an ambient range, for the top of the schedule."""
    lost = [(item, names) for item in view.bufferizes if (names := view.index.find_lost(item))]
    lines: list[Text] = []
    for item, names in lost[:_MOST_ALERTS]:
        alert = f"!! BUFFERIZE of node {item.node} {view.index.op(item.node)}: ambient {', '.join(names)} is NOT closed"
        lines += view.page.wrap((alert, ALERT), indent=2, hang=3)
    if len(lost) > _MOST_ALERTS:
        more = format_plural(len(lost) - _MOST_ALERTS, "BUFFERIZE", "BUFFERIZEs")
        lines += view.page.wrap((f"!! and {more} more, see BUFFERIZE below", ALERT), indent=2)
    return lines


def _format_row(view: ScheduleView, item: Bufferize) -> Row:
    page = view.page
    style, shade = _STYLES[item.outcome]
    decision = page.join((item.outcome, style), item.reason and f": {item.reason}")
    closes = view.range_names(item.closed_ranges, ambient=view.index.ambient_of(item.node))
    cells = [
        str(item.node),
        view.index.op(item.node),
        page.join("(", closes, ")"),
        _format_elements(view, item),
        format_bytes(item.bytes),
        item.addrspace,
        decision,
    ]
    return Row(cells, notes=_format_open_ranges(view, item), style=shade)


def _format_elements(view: ScheduleView, item: Bufferize) -> str:
    sizes = [view.index.size_of(name) for name in item.closed_ranges]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes) > 1 and prod(known) == item.size:
        return f"{'x'.join(str(size) for size in known)} = {format_count(item.size)}"
    return format_count(item.size)


def _format_open_ranges(view: ScheduleView, item: Bufferize) -> list[Part]:
    lost = view.index.find_lost(item)
    closed = {*item.closed_ranges, *lost}
    harmless = [name for name in view.index.ambient_of(item.node) if name not in closed]
    notes: list[Part] = []
    if lost:
        iterations = " x ".join(f"{view.index.size_of(name) or '?'}" for name in lost)
        alert = (
            f"!! ambient {', '.join(lost)} is NOT closed: all {iterations} iterations write the same "
            f"{format_plural(item.size, 'element')}, only one of them survives"
        )
        notes.append((alert, ALERT))
    if harmless and item.outcome == "kept":
        notes.append((f"ambient {', '.join(harmless)} stays open: LOCAL, inside its loop", "dim"))
    return notes
