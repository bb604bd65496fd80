"""The nodes of a schedule as text: the range map of one run, what two runs treat differently, and `vmap_map`."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain

from rich.text import Text

from vmapdbg.diff import NodeChange
from vmapdbg.diff.result import VmapChange
from vmapdbg.model.capture import Node, Range, Realized, Unsplit
from vmapdbg.model.grouping import group_equal
from vmapdbg.model.wording import count_shown, format_plural, inflect, join_first
from vmapdbg.page.format import format_ids, format_shape
from vmapdbg.page.sentences import say_realized
from vmapdbg.page.text.layout import Column, Page, Part, Row, lay_out_table
from vmapdbg.page.text.view import AFTER, BEFORE, NOTE, VMAP, ScheduleView, join_change

# A graph with at most this many nodes (noise not counted) is shown whole.
_SMALL_GRAPH = 24
_MOST_ROWS = 24

# On a page below this width a line of the snippet itself is only `:12`.
_NARROW = 72

_OP_STYLES = {"VMAPIN": NOTE, "VMAPOUT": NOTE}
_ALWAYS_SHOWN = frozenset({"VMAPIN", "VMAPOUT", "REDUCE_AXIS", "REDUCE"})
_NOISE = frozenset({"CONST", "VCONST", "DEVICE", "UNIQUE", "LUNIQUE", "RANGE", "BIND", "DEFINE_VAR", "SINK"})
_ONLY_MOVES = frozenset({"RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "CAST", "BITCAST"})

_COLUMNS = (
    Column("id", right=True, comfort=5),
    Column("op", comfort=11),
    Column("from", comfort=10, most=16, leaves=1, optional=True),
    Column("shape", comfort=12, most=28, leaves=3),
    Column("ranges in -> out", comfort=17, most=44, label="ranges", split="-> "),
    Column("ambient", comfort=8, most=16),
    Column("decision", comfort=58, most=90, leaves=2, label="", own_line=True),
    Column("line", comfort=16, most=32, leaves=4, label=""),
)
_CHANGE_COLUMNS = (
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
    Column("sizes", comfort=8, most=20),
    Column("count", right=True, comfort=5),
    Column("nodes", comfort=24, most=120),
)


def format_nodes(view: ScheduleView) -> list[Text]:
    """Returns the range map of one run, outputs first; of two runs the nodes that were treated differently."""
    if view.is_pair:
        return _format_changes(view)
    nodes = [change.after for change in view.pair.nodes]
    if not nodes:
        return view.page.head("Range map", "empty")
    shown = _choose_nodes(view, nodes)
    count = count_shown(len(shown), len(nodes), "node")
    lines = view.page.wrap(("Range map", "bold"), (f"  {count}, outputs first", "dim"))
    lines += _format_legend(view, shown)
    rows = [_format_node(view, node, sources) for node, sources in _pair_with_sources(view, shown)]
    lines += lay_out_table(view.page, _COLUMNS, rows)
    if hidden := len(nodes) - len(shown):
        what = "--all shows them" if shown else "all without ranges; --all shows them"
        lines += view.page.wrap((f"... {hidden:,} more not shown: {what}", "dim"), indent=2)
    return lines


# *** one run: which nodes


def _choose_nodes(view: ScheduleView, nodes: Sequence[Node]) -> list[Node]:
    """Returns the nodes worth a row, outputs first.

    In a long graph these are the realized nodes, the borders of vmap scopes, the reduces, the nodes where
    different ambient ranges meet, and the nodes with findings. Constants and their movement ops, devices and index
    arithmetic without ranges are noise even in a short graph.
    """
    ordered = _sort_outputs_first(nodes)
    if view.page.show_all:
        return ordered
    # sources first: a node whose sources are all noise is noise, too
    noise = _list_noise(reversed(ordered))
    found = {node.id for node in ordered if view.findings.has_for_node(node, view.pair.index)}
    matter = [node for node in ordered if node.id not in noise or node.id in found]
    if len(matter) <= _SMALL_GRAPH:
        return matter
    always = found | view.index.bufferizes.keys()
    always |= {node.id for node in matter if node.realized is not None or node.op in _ALWAYS_SHOWN}
    return [node for node in matter if node.id in always or _joins_scopes(view, node)]


def _sort_outputs_first(nodes: Iterable[Node]) -> list[Node]:
    """The pass numbers sources before consumers, so the largest id is nearest to the outputs."""
    return sorted(nodes, key=lambda node: -node.id)


def _list_noise(nodes_sources_first: Iterable[Node]) -> set[int]:
    noise: set[int] = set()
    for node in nodes_sources_first:
        plain = node.op in _NOISE or (not node.in_ranges and not node.out_ranges and node.op not in _ALWAYS_SHOWN)
        constant = node.op in _ONLY_MOVES and bool(node.src) and all(src in noise for src in node.src)
        if node.realized is None and (plain or constant):
            noise.add(node.id)
    return noise


def _joins_scopes(view: ScheduleView, node: Node) -> bool:
    nodes = view.index.nodes
    sources = [set(nodes[src].ambient) for src in node.src if src in nodes]
    return bool(node.ambient) and all(set(node.ambient) != source for source in sources)


def _pair_with_sources(view: ScheduleView, shown: list[Node]) -> list[tuple[Node, list[int]]]:
    """Pairs each shown node with the nearest shown nodes that it reads."""
    rows = {node.id for node in shown}
    reached: dict[int, frozenset[int]] = {}
    for node in reversed(_sort_outputs_first(view.schedule.nodes)):
        found: set[int] = set()
        for src in node.src:
            if src in rows:
                found.add(src)
            else:
                found |= reached.get(src, frozenset())
        reached[node.id] = frozenset(found)
    return [(node, sorted(reached[node.id], reverse=True)) for node in shown]


# *** one run: rows


def _format_node(view: ScheduleView, node: Node, sources: list[int]) -> Row:
    page = view.page
    decisions: list[Text] = []
    if node.realized is not None:
        decisions.append(_format_realized(page, node, node.realized, node.realized.detail))
    if node.unsplit is not None:
        decisions.append(_format_unsplit(page, node.unsplit))
    cells = [
        str(node.id),
        (node.op, _OP_STYLES.get(node.op, "")),
        (", ".join(map(str, sources)), "dim"),
        format_shape(node.shape),
        _format_in_out(view, node),
        view.names(node.ambient, ambient=node.ambient),
        Text("; ").join(decisions),
        (view.places.format(node.line, brief=page.width < _NARROW), "dim"),
    ]
    notes = view.notes_for(view.findings.take_for_node(node, view.pair.index))
    return Row(cells, notes=notes, style="" if node.realized is None else "bold")


def _format_in_out(view: ScheduleView, node: Node) -> Text:
    sides = [side for side in (node.in_ranges, node.out_ranges) if side is not None]
    texts = [view.names(side) or Text("()") for side in sides]
    if len(texts) == 2 and texts[0].plain == texts[1].plain:
        return texts[0]
    return Text(" -> ").join(texts)


def _format_realized(page: Page, node: Node, realized: Realized, sentence: str) -> Text:
    """Returns `realized, always: SENTENCE`. A LOCAL buffer, which has only some axes, names them."""
    partial = ""
    if 0 < len(realized.axes) < len(node.shape or ()):
        noun = inflect(len(realized.axes), "axis", "axes")
        partial = f", only {noun} {', '.join(map(str, realized.axes))} (LOCAL)"
    return page.join((f"realized, {realized.reason}{partial}", NOTE), sentence and f": {sentence}")


def _format_unsplit(page: Page, unsplit: Unsplit) -> Text:
    return page.join(("not split", NOTE), unsplit.detail and f": {unsplit.detail}")


def _format_legend(view: ScheduleView, shown: list[Node]) -> list[Text]:
    """One line for each kind of range with names and sizes; without `--all` only of ranges that the rows name."""
    named = _collect_named(shown) | view.index.vmap_names
    wanted = [item for item in view.schedule.ranges if view.page.show_all or item.name in named]
    kinds = group_equal(sorted(wanted, key=lambda item: not item.vmap), _name_kind)
    lines: list[Text] = []
    for items in kinds:
        sizes = "  ".join(f"{item.name}={item.size}" for item in items)
        style = VMAP if items[0].vmap else ""
        lines += view.page.wrap((f"{_name_kind(items[0]):<9} ", "dim"), (sizes, style), indent=2, hang=10)
    if any(node.ambient for node in shown):
        note = "* ambient: the value depends on it, its own ranges do not hold it"
        lines += view.page.wrap((note, "dim"), indent=2, hang=2)
    return lines


def _name_kind(item: Range) -> str:
    return f"vmap {item.axis_type}" if item.vmap else item.axis_type


def _collect_named(shown: list[Node]) -> set[str]:
    every = [ranges for node in shown for ranges in (node.in_ranges, node.out_ranges, node.ambient) if ranges]
    return set(re.findall(r"\w+", " ".join(chain.from_iterable(every))))


# *** two runs


def _format_changes(view: ScheduleView) -> list[Text]:
    """Nodes that changed alike have one row. A change of only ambient ranges is in `vmap_map`, unless all is asked."""
    page, pair = view.page, view.pair
    changes = [item for item in pair.nodes if page.show_all or item.changed != ("ambient",)]
    rows = [_format_change(view, group) for group in _group_changes(view, changes)]
    rows += [_format_lone_node(view, node, before=True) for node in reversed(pair.nodes_only_before)]
    rows += [_format_lone_node(view, node, before=False) for node in reversed(pair.nodes_only_after)]
    same = _format_same_nodes(view)
    if not rows:
        return same
    counts = [
        (len(changes), "changed"),
        (len(pair.nodes_only_before), "only before"),
        (len(pair.nodes_only_after), "only after"),
    ]
    lines = page.head("Nodes", f"{', '.join(f'{count} {what}' for count, what in counts if count)}, outputs first")
    shown = page.choose_first(rows, _MOST_ROWS)
    lines += lay_out_table(page, _CHANGE_COLUMNS, shown)
    if len(shown) < len(rows):
        more = f"... {format_plural(len(rows) - len(shown), 'more row')} not shown: --all shows them"
        lines += page.wrap((more, "dim"), indent=2)
    if same:
        lines += [Text(), *same]
    return lines


def _format_same_nodes(view: ScheduleView) -> list[Text]:
    """With all: the nodes that are the same on both sides."""
    same = view.pair.same_nodes
    if not view.page.show_all or not same:
        return []
    rows: list[Row] = []
    for item in reversed(same):
        ids = join_change(str(item.before), str(item.after))
        cells = [ids, item.op, format_shape(item.shape), ", ".join(item.ranges or ()), view.places.format(item.line)]
        rows.append(Row(cells, style="dim"))
    lines = view.page.head("Nodes", f"{len(same)} unchanged, outputs first")
    return lines + lay_out_table(view.page, _SAME_COLUMNS, rows)


def _group_changes(view: ScheduleView, changes: Iterable[NodeChange]) -> list[list[NodeChange]]:
    """Nodes with another realize decision come first, each in a row of its own; others are grouped by their ranges."""

    def look(item: NodeChange) -> Hashable:
        if view.page.show_all or "realized" in item.changed:
            return item.after.id
        before = _describe(view, item.before, item.changed, "before")
        after = _describe(view, item.after, item.changed, "after")
        return before.plain, after.plain

    return group_equal(sorted(changes, key=lambda item: ("realized" not in item.changed, -item.after.id)), look)


def _format_change(view: ScheduleView, group: list[NodeChange]) -> Row:
    first = group[0]
    pairs = (dict.fromkeys((item.before.op, item.after.op)) for item in group)
    ops = list(dict.fromkeys(" -> ".join(pair) for pair in pairs))
    shapes = {format_shape(item.after.shape) for item in group}
    lines = [item.after.line for item in group if item.after.line is not None]
    cells = [
        _join_ids(group),
        join_first(ops, 3),
        shapes.pop() if len(shapes) == 1 else "",
        _describe(view, first.before, first.changed, "before"),
        _describe(view, first.after, first.changed, "after"),
        view.places.format_all(lines),
    ]
    return Row(cells)


def _join_ids(group: list[NodeChange]) -> str:
    after = format_ids(item.after.id for item in group)
    if all(item.before.id == item.after.id for item in group):
        return after
    return f"{format_ids(item.before.id for item in group)} -> {after}"


def _format_lone_node(view: ScheduleView, node: Node, *, before: bool) -> Row:
    fields = ["in_ranges"]
    if node.realized is not None:
        fields.append("realized")
    text = _describe(view, node, fields, "before" if before else "after")
    if node.unsplit is not None:
        text = Text(" | ").join([text, _format_unsplit(view.page, node.unsplit)])
    sides: tuple[Part, Part]
    if before:
        name, sides = (f"-{node.id}", BEFORE), (text, "")
    else:
        name, sides = (f"+{node.id}", AFTER), ("", text)
    return Row([name, node.op, format_shape(node.shape), *sides, view.places.format(node.line)])


def _describe(view: ScheduleView, node: Node, changed: Sequence[str], side: str) -> Text:
    """Returns what changed on one side: `r2 | ambient rm1* | realized, ending-ranges: ...`."""
    page, is_before = view.page, side == "before"
    parts: list[Text] = []
    if "in_ranges" in changed or "out_ranges" in changed:
        ins, outs = node.in_ranges, node.out_ranges
        if is_before:
            ins, outs = view.renaming.translate_all(ins), view.renaming.translate_all(outs)
        parts.append(_describe_ranges(view, ins, outs))
    if "ambient" in changed:
        names = view.names(node.ambient, ambient=node.ambient)
        parts.append(page.join(("ambient ", "dim"), names or "none"))
    if "realized" in changed:
        parts.append(_describe_realized(view, node, is_before=is_before))
    if "src" in changed:
        names = view.names_before if is_before else view.names_after
        parts.append(page.join(("reads ", "dim"), ", ".join(map(names.label, node.src)) or "nothing"))
    return Text(" | ").join(parts)


def _describe_ranges(view: ScheduleView, ins: tuple[str, ...] | None, outs: tuple[str, ...] | None) -> Text:
    if ins is None and outs is None:
        return view.page.text("no ranges")
    left, right = view.names(ins or ()), view.names(outs or ())
    if left.plain == right.plain:
        return left or Text("()")
    return view.page.join(left, (" => ", "dim"), right)


def _describe_realized(view: ScheduleView, node: Node, *, is_before: bool) -> Text:
    if node.realized is None:
        return view.page.text("not realized")
    sentence = node.realized.detail
    if is_before:
        sentence = say_realized(node.realized, view.names_before)
    return _format_realized(view.page, node, node.realized, sentence)


# *** vmap_map


def format_vmap_map(view: ScheduleView) -> list[Text]:
    """Returns `vmap_map`, or what changed in it; nodes with the same ambient ranges are in one row."""
    entries = view.pair.vmap_map
    groups = group_equal(entries, lambda item: (item.ranges_before, item.ranges_after))
    if view.is_pair:
        if not groups:
            return []
        title = f"{format_plural(len(entries), 'node')} changed; * ambient range"
        groups.sort(key=lambda group: -max(item.after for item in group))
    elif not groups:
        return view.page.head("vmap_map", "empty" + _explain_empty(view))
    else:
        title = format_plural(len(entries), "node") + " with ambient ranges"
        groups.sort(key=lambda group: (len(group[0].ranges_after), group[0].ranges_after))
    rows: list[Row] = []
    for group in groups:
        names, sizes = _format_ambient(view, group[0])
        rows.append(Row([names, sizes, (str(len(group)), "dim"), format_ids(item.after for item in group)]))
    return view.page.head("vmap_map", title) + lay_out_table(view.page, _VMAP_COLUMNS, rows)


def _format_ambient(view: ScheduleView, item: VmapChange) -> tuple[Text, str]:
    """Returns the ambient ranges of an entry, and with one run their sizes."""
    before, after = item.ranges_before, item.ranges_after
    if view.is_pair:
        return view.merge_names(before, after, {*map(view.renaming.translate, before), *after}), ""
    sizes = [view.index.size_of(name) for name in after]
    return view.names(after, ambient=after), "" if None in sizes else "x".join(map(str, sizes))


def _explain_empty(view: ScheduleView) -> str:
    if all(node.op != "VMAPIN" for node in view.schedule.nodes):
        return ": no VMAPIN in this graph"
    if view.run.patches.get("ambient-ranges", True):
        return " although the graph has a VMAPIN"
    return " although the graph has a VMAPIN (patch ambient-ranges is off)"
