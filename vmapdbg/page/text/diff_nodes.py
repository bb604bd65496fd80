"""The nodes that the rangeify pass treated differently, as text, and `vmap_map`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from vmapdbg.diff import NodeChange
from vmapdbg.model.capture import Node
from vmapdbg.model.wording import format_plural, join_first
from vmapdbg.page.format import format_ids, format_shape
from vmapdbg.page.sentences import say_realized
from vmapdbg.page.text.diff_view import AFTER, BEFORE, DiffView, join_change
from vmapdbg.page.text.layout import Column, Part, Row, lay_out_table
from vmapdbg.page.text.ranges import format_realized, format_unsplit

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
    if node.unsplit is not None:
        text = Text(" | ").join([text, format_unsplit(view.page, node.unsplit)])
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
    if "src" in changed:
        names = view.names_before if before else view.names_after
        parts.append(page.join(("reads ", "dim"), ", ".join(map(names.label, node.src)) or "nothing"))
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
