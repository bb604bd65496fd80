"""The kernels of a schedule and the buffers between them, laid out by Graphviz, as SVG that a page can hold.

The colours are the page's own, light or dark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import graphviz

from vmapdbg.model.capture import Capture, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import cut_end
from vmapdbg.page.format import format_bytes, format_share, round_count
from vmapdbg.page.graph.dot import escape_lines
from vmapdbg.page.graph.draw import TooSlow, draw_dots
from vmapdbg.page.graph.items import DrawnSchedule
from vmapdbg.page.graph.kernels import build_kernel_graph
from vmapdbg.page.graph.model import BUFFERS, Graph, GraphError, GraphNode, measure_ranks
from vmapdbg.page.html.nodes import name_node
from vmapdbg.page.html.parts import Part, find_components, plan_parts
from vmapdbg.page.html.pictures import Picture, PicturePart
from vmapdbg.page.html.svg import Link, clean_svg
from vmapdbg.page.overview import KernelRow

_SECONDS = 15.0
_LONGEST_NAME = 28
_COLUMNS = 4
"""So many parts that do not hang together stand beside each other."""
_TOLD = ("with ", "also reads ")
"""Begins what a drawing with fewer boxes says in a kernel's."""


@dataclass(frozen=True)
class Row:
    """What a kernel of a schedule is in the page: the numbers of its rows there, and what is changed about it (the name
    of a CSS class, empty for nothing)."""

    numbers: tuple[int, ...]
    mark: str = ""


def draw_schedule(
    capture: Capture,
    schedule: Schedule,
    groups: Sequence[KernelRow],
    numbers: Sequence[int] = (),
    again: int = 0,
    side: Side | None = None,
) -> Picture:
    """Returns the drawing of a schedule; `groups` are the kernels of the page with their `numbers`, `again` counts the
    later schedules that have the same kernels. `side` says what of a page with two sides this is one of."""
    title = f"schedule {schedule.index}"
    if again:
        title += f" and {again} like it"
    name = "" if side is None else side.name
    try:
        drawn = DrawnSchedule(capture, schedule)
        positions = _find_groups(schedule, groups)
        parts = plan_parts(build_kernel_graph(drawn, None, 0, title), drawn, positions)
        programs = {name: groups[position] for name, position in positions.items()}
        total = sum(group.after.ops for group in groups)
        made = draw_dots([_write_dot(part.graph, schedule, programs, total) for part in parts], _SECONDS)
    except GraphError as error:
        return Picture(schedule.index, title, (PicturePart("", "", str(error)),), name)
    except TooSlow:
        late = f"not drawn: the layout took more than {_SECONDS:g} seconds"
        return Picture(schedule.index, title, (PicturePart("", "", late),), name)
    rows = _list_rows(positions, numbers, side)
    shown = [
        PicturePart(part.title, clean_svg(svg, part.graph, _find_links(part, schedule, rows, side)), part.note)
        for part, svg in zip(parts, made, strict=True)
    ]
    return Picture(schedule.index, title, tuple(shown), name)


@dataclass(frozen=True)
class Side:
    """One side of a page that has two: `name` is `before` or `after`, `rows` has for the number of each kernel what it
    is in the page, `name_node` what the page calls a node."""

    name: str
    rows: Mapping[int, Row]
    name_node: Callable[[int], str]


def _find_groups(schedule: Schedule, groups: Sequence[KernelRow]) -> dict[str, int]:
    """The position among the groups of each kernel of a schedule, by the name of its box."""
    places = ((position, place) for position, group in enumerate(groups) for place in group.places)
    return {f"kernel{place.position}": position for position, place in places if place.schedule == schedule.index}


# *** DOT


def _write_dot(graph: Graph, schedule: Schedule, programs: Mapping[str, KernelRow], total: int) -> str:
    """Labels are in Courier: every monospace font of a browser is about as wide, so that no text leaves its box."""
    dot = graphviz.Digraph(
        "vmapdbg",
        graph_attr={"rankdir": "TB", "nodesep": "0.22", "ranksep": "0.3", "pad": "0.1"},
        node_attr={"fontname": "Courier", "fontsize": "10", "margin": "0.12,0.05", "height": "0.3", "shape": "box"},
        edge_attr={"arrowsize": "0.6"},
    )
    if len(graph.nodes) + len(graph.edges) > 400:
        dot.attr(nslimit="2", nslimit1="2", mclimit="0.5")
    for node in graph.nodes:
        shape = "cylinder" if node.kind in BUFFERS else "box"
        lines = _label(node, schedule, programs, total)
        end = "\\n" if len(lines) == 1 else "\\l"
        dot.node(node.id, id=node.id, shape=shape, label=escape_lines(lines, end))
    for edge in graph.edges:
        dot.edge(edge.tail, edge.head)
    for upper, lower in _list_rows_below(graph):
        dot.edge(upper, lower, style="invis")
    return dot.source


def _list_rows_below(graph: Graph) -> Iterable[tuple[str, str]]:
    """Yields what stands below what it does not hang together with: one row of it all would be too wide."""
    parts, ranks = find_components(graph), measure_ranks(graph)
    for upper, lower in zip(parts, parts[_COLUMNS:], strict=False):
        yield max(upper, key=lambda name: (ranks[name], name)), min(lower, key=lambda name: (ranks[name], name))


def _label(node: GraphNode, schedule: Schedule, programs: Mapping[str, KernelRow], total: int) -> list[str]:
    if node.kind == "kernel":
        group = programs[node.id]
        number = node.id.removeprefix("kernel")
        work = f"{round_count(group.kernel.executed_ops)} ops"
        if len(group.places) > 1:
            work += f", {len(group.places)} times"
        name = cut_end(group.kernel.name, _LONGEST_NAME)
        told = [line for line in node.lines if line.startswith(_TOLD)]
        return [f"#{number} {name}", f"{work}  {format_share(group.after.ops, total)}", *told]
    if node.kind in ("repeat", "folded"):
        return [*node.lines]
    if node.members:
        made = index_of(schedule).find_kept(node.members[0])
        size = "" if made is None else f"  {format_bytes(made.bytes)}"
        return [cut_end(node.lines[0], _LONGEST_NAME) + size]
    return [node.lines[0]]


# *** links


def _list_rows(positions: Mapping[str, int], numbers: Sequence[int], side: Side | None) -> dict[str, Row]:
    """What each kernel of a schedule is in the page, by the name of its box."""
    if side is None:
        return {name: Row((numbers[position],)) for name, position in positions.items()}
    return {name: side.rows.get(int(name.removeprefix("kernel")), Row(())) for name in positions}


def _find_links(part: Part, schedule: Schedule, rows: Mapping[str, Row], side: Side | None) -> dict[str, Link]:
    found: dict[str, Link] = {}
    for node in part.graph.nodes:
        if node.id in part.hidden:
            hidden = [rows[name] for name in part.hidden[node.id]]
            programs = dict.fromkeys(number for row in hidden for number in row.numbers)
            mark = next((row.mark for row in hidden if row.mark), "")
            found[node.id] = Link(tuple(programs), "", "; ".join(node.lines), mark, part.opens.get(node.id))
        elif node.kind == "kernel":
            row = rows[node.id]
            found[node.id] = Link(row.numbers, "", f"kernel {node.lines[0]}", row.mark)
        else:
            member = next(iter(node.members), None)
            name = ""
            if member is not None and side is not None:
                name = side.name_node(member)
            elif member is not None:
                name = name_node((schedule.index, member))
            found[node.id] = Link((), name, f"buffer {node.lines[0]}")
    return found


def find_drawn_names(picture_svg: str) -> list[str]:
    """Returns what the page calls the nodes that boxes of a drawing stand for: `0:48`, `b0:48` for one of before."""
    return re.findall(r'data-node="(b?\d+:\d+)"', picture_svg)


def find_drawn_nodes(picture_svg: str) -> Iterable[tuple[int, int]]:
    """Yields the nodes that boxes of a drawing stand for."""
    for schedule, node in re.findall(r'data-node="(\d+):(\d+)"', picture_svg):
        yield int(schedule), int(node)
