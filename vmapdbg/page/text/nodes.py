"""The nodes of a schedule as text: the range map of one run, what two runs treat differently, and `vmap_map`."""

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

from rich.text import Text

from vmapdbg.diff.result import NodeChange, VmapChange
from vmapdbg.model.capture import Node
from vmapdbg.model.schedule_index import group_equal, name_decision
from vmapdbg.model.wording import count_shown, format_known, format_plural, inflect, join_first
from vmapdbg.page.format import format_ids, format_shape, join_change
from vmapdbg.page.sentences import say_realized
from vmapdbg.page.text.layout import AFTER, ALERT, BEFORE, NOTE, Cell, Piece, Row
from vmapdbg.page.text.view import VMAP, ScheduleView

_SMALL_GRAPH = 24  # a graph with at most this many nodes (noise not counted) is shown whole
_MOST_ROWS = 24

_OP_STYLES = {"VMAPIN": NOTE, "VMAPOUT": NOTE}
_ALWAYS_SHOWN = frozenset({"VMAPIN", "VMAPOUT", "REDUCE_AXIS", "REDUCE"})
_NOISE = frozenset({"CONST", "VCONST", "DEVICE", "UNIQUE", "LUNIQUE", "RANGE", "BIND", "DEFINE_VAR", "SINK"})
_ONLY_MOVES = frozenset({"RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP", "CAST", "BITCAST"})


def print_nodes(view: ScheduleView) -> None:
    """Prints the range map of one run, outputs first; of two runs the nodes that were treated differently."""
    if view.is_pair:
        _print_changes(view)
        return
    page, nodes = view.page, [change.after for change in view.pair.nodes]
    if not nodes:
        page.head("Range map", "empty")
        return
    shown = _choose_nodes(view, nodes)
    page.head("Range map", f"{count_shown(len(shown), len(nodes), 'node')}, outputs first")
    _print_ranges(view, shown)
    sources = _list_sources(view, shown)
    page.table([_format_node(view, node, sources[node.id]) for node in shown])
    if hidden := len(nodes) - len(shown):
        what = "" if shown else "all without ranges; "
        page.add((f"... {hidden:,} more not shown: {what}--all shows them", "dim"), indent=2)


# *** one run


def _choose_nodes(view: ScheduleView, nodes: Sequence[Node]) -> list[Node]:
    """Returns the nodes worth a row, outputs first; in a long graph: nodes with a buffer or a finding, scope borders,
    reduces, meeting ambient ranges. Constants, devices and index arithmetic without ranges are noise in any graph."""
    # the pass numbers sources before consumers
    ordered = sorted(nodes, key=lambda node: -node.id)
    if view.page.show_all:
        return ordered
    noise: set[int] = set()
    for node in reversed(ordered):
        plain = node.op in _NOISE or (not node.in_ranges and not node.out_ranges and node.op not in _ALWAYS_SHOWN)
        # noise, too, if all its sources are noise
        constant = node.op in _ONLY_MOVES and bool(node.src) and noise.issuperset(node.src)
        if node.realized is None and (plain or constant):
            noise.add(node.id)
    found = {node.id for node in ordered if view.findings.about_node(view.pair.index, node.id)}
    matter = [node for node in ordered if node.id not in noise or node.id in found]
    if len(matter) <= _SMALL_GRAPH:
        return matter

    def joins_scopes(node: Node) -> bool:
        sources = [set(view.index.nodes[src].ambient) for src in node.src if src in view.index.nodes]
        return bool(node.ambient) and set(node.ambient) not in sources

    always = {node.id for node in matter if node.realized is not None or node.op in _ALWAYS_SHOWN}
    wanted = always.union(found, view.index.bufferizes)
    return [node for node in matter if node.id in wanted or joins_scopes(node)]


def _list_sources(view: ScheduleView, shown: Sequence[Node]) -> dict[int, set[int]]:
    """Returns for each node the nearest shown nodes that it reads."""
    rows = {node.id for node in shown}
    reached: dict[int, set[int]] = {}
    for node in sorted(view.schedule.nodes, key=lambda node: node.id):
        found = reached.setdefault(node.id, set())
        for src in node.src:
            found |= {src} if src in rows else reached.get(src, set())
    return reached


def _format_node(view: ScheduleView, node: Node, sources: Iterable[int]) -> Row:
    sides = dict.fromkeys((node.in_ranges, node.out_ranges))
    ranges = [view.names(side) or Text("()") for side in sides if side is not None]
    read = ", ".join(map(str, sorted(sources, reverse=True)))
    decisions = Text("; ").join(_list_decisions(view, node))
    return Row(
        Cell("id", str(node.id), right=True, comfort=5),
        Cell("op", (node.op, _OP_STYLES.get(node.op, "")), comfort=11),
        Cell("from", (read, "dim"), comfort=10, most=16, leaves=1, optional=True),
        Cell("shape", format_shape(node.shape), most=28, leaves=3),
        Cell("ranges in -> out", Text(" -> ").join(ranges), comfort=17, most=44, label="ranges"),
        Cell("ambient", view.names(node.ambient, ambient=node.ambient), comfort=8, most=16),
        Cell("decision", decisions, comfort=58, most=90, leaves=2, label="", own_line=True),
        Cell("line", (view.places.format(node.line), "dim"), comfort=16, most=32, leaves=4, label=""),
        notes=view.notes_for(view.findings.about_node(view.pair.index, node.id)),
        style="bold" * (node.realized is not None),
    )


def _format_realized(view: ScheduleView, node: Node, *, is_before: bool = False) -> Text:
    """Returns `realized, always: SENTENCE`. A LOCAL buffer, which has only some axes, names them."""
    realized, side = node.realized, "before" if is_before else "after"
    decision = name_decision(node, view.made[side].get(node.id))
    if realized is None:
        return view.page.text(decision)
    sentence, partial = say_realized(realized, view.side_names["before"]) if is_before else realized.detail, ""
    if 0 < len(realized.axes) < len(node.shape or ()):
        noun = inflect(len(realized.axes), "axis", "axes")
        partial = f", only {noun} {', '.join(map(str, realized.axes))} (LOCAL)"
    return view.page.join((f"{decision}, {realized.reason}{partial}", NOTE), format_known(": {}", sentence))


def _list_decisions(view: ScheduleView, node: Node, *, is_before: bool = False) -> Iterator[Text]:
    if node.realized is not None:
        yield _format_realized(view, node, is_before=is_before)
    if node.unsplit is not None:
        yield view.page.join(("not split", NOTE), format_known(": {}", node.unsplit.detail))


def _print_ranges(view: ScheduleView, shown: list[Node]) -> None:
    """One line for each kind of range with names and sizes; without `--all` only of ranges that the rows name."""
    named = set(view.index.vmap_names)
    for node in shown:
        every = (*(node.in_ranges or ()), *(node.out_ranges or ()), *node.ambient)
        named.update(re.findall(r"\w+", " ".join(every)))
    wanted = [item for item in view.schedule.ranges if view.page.show_all or item.name in named]
    for items in group_equal(sorted(wanted, key=lambda item: not item.vmap), lambda item: (item.vmap, item.axis_type)):
        sizes = "  ".join(f"{item.name}={item.size}" for item in items)
        kind, style = (f"vmap {items[0].axis_type}", VMAP) if items[0].vmap else (items[0].axis_type, "")
        view.page.add((f"{kind:<9} ", "dim"), (sizes, style), indent=2, hang=10)
    if any(node.ambient for node in shown):
        view.page.add(("* ambient: the value depends on it, its own ranges do not hold it", "dim"), indent=2)


# *** two runs


def _print_changes(view: ScheduleView) -> None:
    """Nodes that changed alike have one row. A change of only ambient ranges is in `vmap_map`, unless all is asked."""
    page, pair = view.page, view.pair
    changes = [item for item in pair.nodes if page.show_all or item.changed != ("ambient",)]
    rows = [_format_change(view, group) for group in _group_changes(view, changes)]
    rows += [_format_lone_node(view, node, before=True) for node in reversed(pair.nodes_only_before)]
    rows += [_format_lone_node(view, node, before=False) for node in reversed(pair.nodes_only_after)]
    sides = {"changed": changes, "only before": pair.nodes_only_before, "only after": pair.nodes_only_after}
    counts = [f"{len(nodes)} {what}" for what, nodes in sides.items() if nodes]
    if counts:
        page.head("Nodes", f"{', '.join(counts)}, outputs first")
    page.table(rows, _MOST_ROWS, "... {} not shown: --all shows them", noun="more row")


def _group_changes(view: ScheduleView, changes: Iterable[NodeChange]) -> list[list[NodeChange]]:
    """Nodes with another realize decision come first, each in a row of its own; others are grouped by their ranges."""

    def look(item: NodeChange) -> Hashable:
        if view.page.show_all or "realized" in item.changed:
            return item.after.id
        return tuple(text.plain for text in _describe_sides(view, item))

    return group_equal(sorted(changes, key=lambda item: ("realized" not in item.changed, -item.after.id)), look)


def _format_change(view: ScheduleView, group: list[NodeChange]) -> Row:
    shapes = {format_shape(item.after.shape) for item in group}
    ops = dict.fromkeys(join_change(item.before.op, item.after.op) for item in group)
    ids = join_change(format_ids(item.before.id for item in group), format_ids(item.after.id for item in group))
    lines = view.places.format_all(item.after.line for item in group if item.after.line is not None)
    shape = shapes.pop() if len(shapes) == 1 else ""
    return _make_row(ids, join_first([*ops], 3), shape, *_describe_sides(view, group[0]), lines)


def _format_lone_node(view: ScheduleView, node: Node, *, before: bool) -> Row:
    ranges = _describe(view, node, ["in_ranges"], is_before=before)
    text = Text(" | ").join([ranges, *_list_decisions(view, node, is_before=before)])
    name, sides = ((f"-{node.id}", BEFORE), (text, "")) if before else ((f"+{node.id}", AFTER), ("", text))
    return _make_row(name, node.op, format_shape(node.shape), *sides, view.places.format(node.line))


def _make_row(node: Piece, op: str, shape: str, before: Piece, after: Piece, line: str) -> Row:
    return Row(
        Cell("node", node, right=True, comfort=5, most=16),
        Cell("op", op, comfort=11, most=32),
        Cell("shape", shape, most=28, leaves=3),
        Cell("- before", before, comfort=44, most=64, leaves=2, label="-", own_line=True),
        Cell("+ after", after, comfort=44, most=64, leaves=1, label="+", own_line=True),
        Cell("line", line, comfort=14, most=32, leaves=4, label=""),
    )


def _describe_sides(view: ScheduleView, item: NodeChange) -> tuple[Text, Text]:
    before = _describe(view, item.before, item.changed, is_before=True)
    return before, _describe(view, item.after, item.changed, is_before=False)


def _describe(view: ScheduleView, node: Node, changed: Sequence[str], *, is_before: bool) -> Text:
    """Returns what changed on one side: `r2 | ambient rm1* | realized, ending-ranges: ...`."""
    page = view.page
    parts: list[Text] = []
    if "in_ranges" in changed or "out_ranges" in changed:
        ins, outs = node.in_ranges, node.out_ranges
        if is_before:
            ins, outs = view.renaming.translate_all(ins), view.renaming.translate_all(outs)
        left, right = view.names(ins or ()), view.names(outs or ())
        if ins is None and outs is None:
            left = page.text("no ranges")
        elif left.plain != right.plain:
            left = page.join(left, (" => ", "dim"), right)
        parts.append(left or Text("()"))
    if "ambient" in changed:
        names = view.names(node.ambient, ambient=node.ambient)
        parts.append(page.label("ambient", names or "none"))
    if "realized" in changed:
        parts.append(_format_realized(view, node, is_before=is_before))
    if "src" in changed:
        names = view.side_names["before" if is_before else "after"]
        parts.append(page.label("reads", ", ".join(map(names.label, node.src)) or "nothing"))
    return Text(" | ").join(parts)


# *** vmap_map


def print_vmap_map(view: ScheduleView) -> None:
    """Prints `vmap_map`, or what changed in it; nodes with the same ambient ranges are in one row."""
    groups = group_equal(view.pair.vmap_map, lambda item: (item.ranges_before, item.ranges_after))
    title = format_plural(len(view.pair.vmap_map), "node")
    if groups and view.is_pair:
        view.page.head("vmap_map", f"{title} changed; * ambient range")
        groups.sort(key=lambda group: -max(item.after for item in group))
    elif groups:
        view.page.head("vmap_map", f"{title} with ambient ranges")
        groups.sort(key=lambda group: (len(group[0].ranges_after), group[0].ranges_after))
    elif not view.is_pair:
        view.page.head("vmap_map", "empty")
    view.page.table(_format_entries(view, group) for group in groups)
    if groups and not view.is_pair:
        _print_lacking(view)


def _format_entries(view: ScheduleView, group: Sequence[VmapChange]) -> Row:
    before, after = group[0].ranges_before, group[0].ranges_after
    sizes = ""
    if view.is_pair:
        names = view.merge_names(before, after, {*map(view.renaming.translate, before), *after})
    else:
        names = view.names(after, ambient=after)
        known = list(map(view.index.size_of, after))
        if None not in known:
            sizes = "x".join(map(str, known))
    return Row(
        Cell("ambient", names, comfort=16),
        Cell("sizes", sizes, comfort=8, most=20),
        Cell("count", (str(len(group)), "dim"), right=True, comfort=5),
        Cell("nodes", format_ids(item.after for item in group), comfort=24, most=120),
    )


def _print_lacking(view: ScheduleView) -> None:
    """Names the ranges that the pass's own map lacks: it has fewer for a node than the node's value depends on."""
    entries = {entry.node: entry.ranges for entry in view.schedule.vmap_map}
    lacking = {node.id: set(node.ambient).difference(entries.get(node.id, ())) for node in view.schedule.nodes}
    if names := ", ".join(sorted(set[str]().union(*lacking.values()))):
        ids = format_ids(number for number, ranges in lacking.items() if ranges)
        view.page.add((f"!! it lacks {names}, on which nodes {ids} depend", ALERT), indent=2, hang=3)
