"""The range map and `vmap_map` of a schedule as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from rich.text import Text

from vmapdbg.model.capture import Node, Range, Realized, Unsplit
from vmapdbg.model.wording import count_shown, format_plural, inflect
from vmapdbg.page.format import format_ids, format_shape
from vmapdbg.page.text.layout import Column, Page, Row, lay_out_table
from vmapdbg.page.text.view import NOTE, VMAP, ScheduleView

# A graph with no more nodes than this (noise not counted) is shown whole.
_SMALL_GRAPH = 24

# On a page below this width a line in the snippet itself is only `:12`.
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
_VMAP_COLUMNS = (
    Column("ambient", comfort=16, most=32),
    Column("sizes", comfort=8, most=20),
    Column("count", right=True, comfort=5),
    Column("nodes", comfort=24, most=120),
)


def format_range_map(view: ScheduleView) -> list[Text]:
    """Returns the range map as lines: the legend, then the nodes from outputs to inputs."""
    shown = choose_nodes(view)
    hidden = len(view.nodes) - len(shown)
    if not view.nodes:
        return view.page.head("Range map", "empty")
    count = count_shown(len(shown), len(view.nodes), "node")
    lines = view.page.wrap(("Range map", "bold"), (f"  {count}, outputs first", "dim"))
    lines += _format_legend(view, shown)
    rows = [_format_node(view, node, sources) for node, sources in _find_sources(view, shown)]
    lines += lay_out_table(view.page, _COLUMNS, rows)
    if hidden:
        what = "--all shows them" if shown else "all without ranges; --all shows them"
        lines += view.page.wrap((f"... {hidden:,} more not shown: {what}", "dim"), indent=2)
    return lines


def choose_nodes(view: ScheduleView) -> list[Node]:
    """Returns the nodes worth a row, outputs first.

    Of a long graph these are the realized nodes, the borders of vmap scopes, the reduces, the nodes where
    different ambient ranges meet, and those that a finding is about. Constants and what is made of them,
    devices and index arithmetic without ranges are noise even in a short one.
    """
    ordered = _sort_outputs_first(view.nodes)
    if view.page.show_all:
        return ordered
    # sources first: what is made of noise alone is noise, too
    noise = _find_noise(reversed(ordered))
    found = {node.id for node in ordered if view.findings.has_for_node(node, view.schedule.index)}
    matter = [node for node in ordered if node.id not in noise or node.id in found]
    if len(matter) <= _SMALL_GRAPH:
        return matter
    always = found | view.index.bufferizes.keys()
    always |= {node.id for node in matter if node.realized is not None or node.op in _ALWAYS_SHOWN}
    return [node for node in matter if node.id in always or _joins_scopes(view, node)]


def _sort_outputs_first(nodes: Iterable[Node]) -> list[Node]:
    """The pass numbers sources before consumers, so the largest id is nearest to the outputs."""
    return sorted(nodes, key=lambda node: -node.id)


def _find_noise(nodes_sources_first: Iterable[Node]) -> set[int]:
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


def _find_sources(view: ScheduleView, shown: list[Node]) -> list[tuple[Node, list[int]]]:
    """Pairs each shown node with the shown nodes that it reads, the hidden ones between them skipped."""
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


def _format_node(view: ScheduleView, node: Node, sources: list[int]) -> Row:
    page = view.page
    decisions: list[Text] = []
    if node.realized is not None:
        decisions.append(format_realized(page, node, node.realized, node.realized.detail))
    if node.unsplit is not None:
        decisions.append(format_unsplit(page, node.unsplit))
    cells = [
        str(node.id),
        (node.op, _OP_STYLES.get(node.op, "")),
        (", ".join(map(str, sources)), "dim"),
        format_shape(node.shape),
        _format_in_out(view, node),
        view.range_names(node.ambient, mark=True),
        Text("; ").join(decisions),
        (view.places.format(node.line, brief=page.width < _NARROW), "dim"),
    ]
    notes = view.notes_for(view.findings.take_for_node(node, view.schedule.index))
    return Row(cells, notes=notes, style="" if node.realized is None else "bold")


def _format_in_out(view: ScheduleView, node: Node) -> Text:
    sides = [side for side in (node.in_ranges, node.out_ranges) if side is not None]
    texts = [view.range_names(side) or Text("()") for side in sides]
    if len(texts) == 2 and texts[0].plain == texts[1].plain:
        return texts[0]
    return Text(" -> ").join(texts)


def format_realized(page: Page, node: Node, realized: Realized, sentence: str) -> Text:
    """Returns `realized, always: SENTENCE`, the axes with it where they are not all: then the buffer is LOCAL."""
    partial = ""
    if 0 < len(realized.axes) < len(node.shape or ()):
        noun = inflect(len(realized.axes), "axis", "axes")
        partial = f", only {noun} {', '.join(map(str, realized.axes))} (LOCAL)"
    return page.join((f"realized, {realized.reason}{partial}", NOTE), sentence and f": {sentence}")


def format_unsplit(page: Page, unsplit: Unsplit) -> Text:
    """Returns `not split: SENTENCE`."""
    return page.join(("not split", NOTE), unsplit.detail and f": {unsplit.detail}")


def _format_legend(view: ScheduleView, shown: list[Node]) -> list[Text]:
    """One line for each kind of range with names and sizes; without `--all` only those that the rows name."""
    named = _collect_named(shown) | view.index.vmap_names
    wanted = [item for item in view.schedule.ranges if view.page.show_all or item.name in named]
    groups: dict[str, list[Range]] = {}
    for item in sorted(wanted, key=lambda item: not item.vmap):
        kind = item.axis_type
        if item.vmap:
            kind = f"vmap {kind}"
        groups.setdefault(kind, []).append(item)
    lines: list[Text] = []
    for kind, items in groups.items():
        sizes = "  ".join(f"{item.name}={item.size}" for item in items)
        style = VMAP if items[0].vmap else ""
        lines += view.page.wrap((f"{kind:<9} ", "dim"), (sizes, style), indent=2, hang=10)
    if any(node.ambient for node in shown):
        note = "* ambient: the value depends on it, its own ranges do not hold it"
        lines += view.page.wrap((note, "dim"), indent=2, hang=2)
    return lines


def _collect_named(shown: list[Node]) -> set[str]:
    every = [ranges for node in shown for ranges in (node.in_ranges, node.out_ranges, node.ambient) if ranges]
    return set(re.findall(r"\w+", " ".join(chain.from_iterable(every))))


def format_vmap_map(view: ScheduleView) -> list[Text]:
    """Returns `vmap_map` as lines, the nodes with the same ambient ranges together."""
    groups: dict[tuple[str, ...], list[int]] = {}
    entries = [entry for entry in view.schedule.vmap_map if view.has_node(entry.node)]
    for entry in entries:
        groups.setdefault(entry.ranges, []).append(entry.node)
    if not groups:
        return view.page.head("vmap_map", "empty" + _explain_empty(view))
    rows: list[Row] = []
    for names, ids in sorted(groups.items(), key=lambda item: (len(item[0]), item[0])):
        sizes = _format_sizes(view, names)
        rows.append(Row([view.range_names(names, mark=True), sizes, (str(len(ids)), "dim"), format_ids(ids)]))
    title = format_plural(len(entries), "node") + " with ambient ranges"
    return view.page.head("vmap_map", title) + lay_out_table(view.page, _VMAP_COLUMNS, rows)


def _format_sizes(view: ScheduleView, names: tuple[str, ...]) -> str:
    sizes = [view.index.size_of(name) for name in names]
    if None in sizes:
        return ""
    return "x".join(map(str, sizes))


def _explain_empty(view: ScheduleView) -> str:
    if all(node.op != "VMAPIN" for node in view.schedule.nodes):
        return ": no VMAPIN in this graph"
    if view.capture.patches.get("ambient-ranges", True):
        return " although the graph has a VMAPIN"
    return " although the graph has a VMAPIN (patch ambient-ranges is off)"
