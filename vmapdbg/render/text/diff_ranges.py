"""What the rangeify pass decided differently, as text: nodes, `vmap_map`, BUFFERIZE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from vmapdbg.diff import BufferizeChange, NodeChange
from vmapdbg.model.capture import Bufferize, Node
from vmapdbg.model.wording import format_plural, join_first
from vmapdbg.render.format import format_bytes, format_count, format_ids, format_shape
from vmapdbg.render.sentences import say_realized, say_reason
from vmapdbg.render.text.diff_view import AFTER, BEFORE, MARKS, STATUS_STYLES, DiffView, join_change
from vmapdbg.render.text.layout import Column, Part, Row, lay_out_table
from vmapdbg.render.text.ranges import format_realized
from vmapdbg.render.text.view import ALERT

_MOST_ROWS = 24

_NODE_COLUMNS = (
    Column("node", right=True, comfort=5, most=16),
    Column("op", comfort=11, most=32),
    Column("shape", comfort=12, most=28, leaves=3),
    Column("- before", comfort=44, most=64, leaves=2, label="-", own_line=True),
    Column("+ after", comfort=44, most=64, leaves=1, label="+", own_line=True),
    Column("line", comfort=14, most=32, leaves=4, label=""),
)
_SAME_COLUMNS = (
    Column("node", right=True, comfort=5, most=16),
    Column("op", comfort=11, most=32),
    Column("shape", comfort=12, most=28, leaves=2),
    Column("ranges", comfort=17, most=44),
    Column("line", comfort=14, most=32, leaves=1, label=""),
)
_VMAP_COLUMNS = (
    Column("ambient", comfort=16, most=48),
    Column("count", right=True, comfort=5),
    Column("nodes", comfort=24, most=120),
)
_BUFFERIZE_COLUMNS = (
    Column("", comfort=1),
    Column("node", right=True, comfort=5),
    Column("op", comfort=12),
    Column("closes", comfort=18, most=44),
    Column("elements", comfort=8, most=24),
    Column("bytes", comfort=8, most=24),
    Column("space", comfort=6, most=24),
    Column("decision", comfort=50, most=90, leaves=1, label="", own_line=True),
)


def format_nodes(view: DiffView) -> list[Text]:
    """Returns the nodes that were treated differently, outputs first, those that changed alike in one row.

    A change of ambient ranges alone stands in `vmap_map`, unless all is asked for.
    """
    page, schedule = view.page, view.schedule
    changes = [item for item in schedule.nodes if page.show_all or item.changed != ("ambient",)]
    groups = _group_nodes(view, changes)
    rows = [_format_node_group(view, group) for group in groups]
    rows += [_format_lone_node(view, node, before=True) for node in reversed(schedule.nodes_only_before)]
    rows += [_format_lone_node(view, node, before=False) for node in reversed(schedule.nodes_only_after)]
    if not rows:
        return _format_same_nodes(view)
    counts = [
        f"{len(nodes)} {what}"
        for nodes, what in (
            (changes, "changed"),
            (schedule.nodes_only_before, "only before"),
            (schedule.nodes_only_after, "only after"),
        )
        if nodes
    ]
    lines = page.head("Nodes", f"{', '.join(counts)}, outputs first")
    shown = page.choose_first(rows, _MOST_ROWS)
    lines += lay_out_table(page, _NODE_COLUMNS, shown)
    if len(shown) < len(rows):
        more = f"... {format_plural(len(rows) - len(shown), 'more row')} not shown: --all shows them"
        lines += page.wrap((more, "dim"), indent=2)
    if same := _format_same_nodes(view):
        lines += [Text(), *same]
    return lines


def _format_same_nodes(view: DiffView) -> list[Text]:
    """With all: what is the same on both sides, as it is after."""
    same = view.schedule.same_nodes
    if not view.page.show_all or not same:
        return []
    rows: list[Row] = []
    for item in reversed(same):
        ids = join_change(str(item.before), str(item.after))
        cells = [ids, item.op, format_shape(item.shape), ", ".join(item.ranges or ()), view.places.format(item.line)]
        rows.append(Row(cells, style="dim"))
    lines = view.page.head("Nodes", f"{len(same)} unchanged, outputs first")
    return lines + lay_out_table(view.page, _SAME_COLUMNS, rows)


def _group_nodes(view: DiffView, changes: Iterable[NodeChange]) -> list[list[NodeChange]]:
    """Nodes with a changed realize decision each for itself and first; the others by how their ranges changed."""
    groups: dict[object, list[NodeChange]] = {}
    for item in sorted(changes, key=lambda item: ("realized" not in item.changed, -item.after.id)):
        before = _describe_node(view, item.before, item.changed, before=True)
        after = _describe_node(view, item.after, item.changed, before=False)
        look: object = (before.plain, after.plain)
        if view.page.show_all or "realized" in item.changed:
            look = item.after.id
        groups.setdefault(look, []).append(item)
    return list(groups.values())


def _format_node_group(view: DiffView, group: list[NodeChange]) -> Row:
    first = group[0]
    pairs = (dict.fromkeys((item.before.op, item.after.op)) for item in group)
    ops = list(dict.fromkeys(" -> ".join(pair) for pair in pairs))
    shapes = {format_shape(item.after.shape) for item in group}
    lines = [item.after.line for item in group if item.after.line is not None]
    cells = [
        _format_ids(group),
        join_first(ops, 3),
        shapes.pop() if len(shapes) == 1 else "",
        _describe_node(view, first.before, first.changed, before=True),
        _describe_node(view, first.after, first.changed, before=False),
        view.places.format_all(lines),
    ]
    return Row(cells)


def _format_ids(group: list[NodeChange]) -> str:
    if all(item.before.id == item.after.id for item in group):
        return format_ids(item.after.id for item in group)
    before = format_ids(item.before.id for item in group)
    after = format_ids(item.after.id for item in group)
    return f"{before} -> {after}"


def _format_lone_node(view: DiffView, node: Node, *, before: bool) -> Row:
    fields = ["in_ranges"]
    if node.realized is not None:
        fields.append("realized")
    text = _describe_node(view, node, fields, before=before)
    sides: tuple[Part, Part]
    if before:
        name, sides = (f"-{node.id}", BEFORE), (text, "")
    else:
        name, sides = (f"+{node.id}", AFTER), ("", text)
    return Row([name, node.op, format_shape(node.shape), *sides, view.places.format(node.line)])


def _describe_node(view: DiffView, node: Node, changed: Sequence[str], *, before: bool) -> Text:
    """Returns what changed of one side: `r2 | ambient rm1* | realized, ending-ranges: ...`."""
    page = view.page
    parts: list[Text] = []
    if "in_ranges" in changed or "out_ranges" in changed:
        ins, outs = node.in_ranges, node.out_ranges
        if before:
            ins, outs = view.renaming.translate_all(ins), view.renaming.translate_all(outs)
        parts.append(_describe_ranges(view, ins, outs))
    if "ambient" in changed:
        names = view.names(node.ambient, ambient=node.ambient)
        parts.append(page.join(("ambient ", "dim"), names or "none"))
    if "realized" in changed:
        parts.append(_describe_realized(view, node, before=before))
    return Text(" | ").join(parts)


def _describe_ranges(view: DiffView, ins: tuple[str, ...] | None, outs: tuple[str, ...] | None) -> Text:
    if ins is None and outs is None:
        return view.page.text("no ranges")
    left, right = view.names(ins or ()), view.names(outs or ())
    if left.plain == right.plain:
        return left or Text("()")
    return view.page.join(left, (" => ", "dim"), right)


def _describe_realized(view: DiffView, node: Node, *, before: bool) -> Text:
    if node.realized is None:
        return view.page.text("not realized")
    sentence = node.realized.detail
    if before:
        sentence = say_realized(node.realized, view.names_before)
    return format_realized(view.page, node, node.realized, sentence)


def format_vmap_map(view: DiffView) -> list[Text]:
    """Returns the changes of `vmap_map`, the nodes that changed alike in one row."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for item in view.schedule.vmap_map:
        groups.setdefault((item.ranges_before, item.ranges_after), []).append(item.after)
    if not groups:
        return []
    title = f"{format_plural(len(view.schedule.vmap_map), 'node')} changed; * ambient range"
    rows: list[Row] = []
    for (before, after), ids in sorted(groups.items(), key=lambda item: -max(item[1])):
        names = {*map(view.renaming.translate, before), *after}
        rows.append(Row([view.merge_names(before, after, names), (str(len(ids)), "dim"), format_ids(ids)]))
    return view.page.head("vmap_map", title) + lay_out_table(view.page, _VMAP_COLUMNS, rows)


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
    lines += lay_out_table(page, _BUFFERIZE_COLUMNS, [_format_bufferize(view, item) for item in main])
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
        lost = f"before, ambient {names} was NOT closed: only its last iteration survived{_tell_now(item)}"
        notes.append((f"!! {lost}", ALERT))
    if item.lost_after:
        names = ", ".join(item.lost_after)
        notes.append((f"!! after, ambient {names} is NOT closed: only its last iteration survives", ALERT))
    return notes
