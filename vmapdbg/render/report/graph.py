"""The kernels of a schedule and the buffers between them, laid out by Graphviz, as SVG that a page can hold.

Of what Graphviz writes only shapes, their places and texts are taken: no colour, no link, no style. The colours are the
page's own, light or dark.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree

import graphviz

from vmapdbg.model.capture import Capture, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import cut_end
from vmapdbg.overview.kernels import KernelGroup
from vmapdbg.render.format import format_bytes, format_share, round_count
from vmapdbg.render.graph.dot import clean_text, escape_lines
from vmapdbg.render.graph.draw import TooSlow, draw_dot
from vmapdbg.render.graph.items import DrawnSchedule
from vmapdbg.render.graph.kernels import build_kernel_graph
from vmapdbg.render.graph.model import Graph, GraphEdge, GraphError, GraphNode
from vmapdbg.render.report.nodes import name_node
from vmapdbg.render.report.pictures import Picture

_MOST_BOXES = 160
"""A drawing of more boxes is no help: it is folded further, and in the end cut."""
_SECONDS = 15.0
_LONGEST_NAME = 28
_SHADES = 5
_SVG = "{http://www.w3.org/2000/svg}"
# what is taken from Graphviz: tag -> attributes
_TAKEN = {
    "path": ("d",),
    "polygon": ("points",),
    "polyline": ("points",),
    "ellipse": ("cx", "cy", "rx", "ry"),
    "text": ("x", "y", "text-anchor", "font-size"),
}
_NUMBERS = re.compile(r"[-+.,\d\sA-Za-z]*")


@dataclass(frozen=True)
class Row:
    """What a kernel of a schedule is in the page: the numbers of its rows there, and what is changed about it (the name
    of a CSS class, empty for nothing)."""

    numbers: tuple[int, ...]
    mark: str = ""


def draw_schedule(
    capture: Capture,
    schedule: Schedule,
    groups: Sequence[KernelGroup],
    again: int = 0,
    side: Side | None = None,
) -> Picture:
    """Returns the drawing of a schedule; `groups` are the kernels of the page, `again` counts the later schedules that
    have the same kernels. `side` says what of a page with two sides this is one of."""
    title = f"schedule {schedule.index}"
    if again:
        title += f" and {again} like it"
    name = "" if side is None else side.name
    try:
        whole = build_kernel_graph(DrawnSchedule(capture, schedule), None, 1, title)
        numbers = _number_kernels(schedule, groups)
        graph, note = _fold(whole, numbers)
        links = _find_links(graph, schedule, numbers, side)
        programs = {name: groups[number] for name, number in numbers.items()}
        total = sum(group.ops for group in groups)
        drawn = draw_dot(_write_dot(graph, schedule, programs, total), "svg", _SECONDS)
    except GraphError as error:
        return Picture(schedule.index, title, "", str(error), name)
    except TooSlow:
        late = f"not drawn: the layout took more than {_SECONDS:g} seconds"
        return Picture(schedule.index, title, "", late, name)
    return Picture(schedule.index, title, _clean_svg(drawn.decode("utf-8"), graph, links), note, name)


@dataclass(frozen=True)
class Side:
    """One side of a page that has two: `name` is `before` or `after`, `rows` has for the number of each kernel what it
    is in the page, `name_node` what the page calls a node."""

    name: str
    rows: Mapping[int, Row]
    name_node: Callable[[int], str]


def _number_kernels(schedule: Schedule, groups: Sequence[KernelGroup]) -> dict[str, int]:
    """The group of each kernel of a schedule, by the name of its box."""
    places = ((number, place) for number, group in enumerate(groups) for place in group.places)
    return {f"kernel{place.number}": number for number, place in places if place.schedule == schedule.index}


# *** folding


def _fold(graph: Graph, group_of: Mapping[str, int]) -> tuple[Graph, str]:
    """Returns a graph that one can look at, and says what is left out of it."""
    notes: list[str] = []
    if graph.folded:
        notes.append("repeated layers are one box")
    if len(graph.nodes) > _MOST_BOXES:
        graph = _drop_buffers(graph)
        notes = ["buffers are left out", *notes]
    if len(graph.nodes) > _MOST_BOXES:
        graph = _join_programs(graph, group_of)
        notes = ["each program is one box, however often it runs; buffers are left out"]
    if len(graph.nodes) > _MOST_BOXES:
        heaviest = sorted(graph.nodes, key=lambda node: -node.weight)[:_MOST_BOXES]
        notes.append(f"only the {_MOST_BOXES} of {len(graph.nodes)} with the most work are drawn")
        graph = _keep(graph, {node.id for node in heaviest})
    return graph, "; ".join(notes)


def _keep(graph: Graph, names: set[str]) -> Graph:
    nodes = tuple(node for node in graph.nodes if node.id in names)
    edges = tuple(edge for edge in graph.edges if edge.tail in names and edge.head in names)
    return replace(graph, nodes=nodes, edges=edges)


def _drop_buffers(graph: Graph) -> Graph:
    """Joins what writes a buffer with what reads it."""
    buffers = {node.id for node in graph.nodes if node.kind in ("buffer", "kept")}
    writers: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        if edge.head in buffers:
            writers[edge.head].append(edge.tail)
    edges: dict[tuple[str, str], None] = {}
    for edge in graph.edges:
        tails = writers[edge.tail] if edge.tail in buffers else [edge.tail]
        if edge.head not in buffers:
            edges.update(dict.fromkeys((tail, edge.head) for tail in tails if tail != edge.head))
    nodes = tuple(node for node in graph.nodes if node.id not in buffers)
    return replace(graph, nodes=nodes, edges=tuple(GraphEdge(tail, head) for tail, head in edges))


def _join_programs(graph: Graph, group_of: Mapping[str, int]) -> Graph:
    """Draws kernels that are one program as the first of them."""
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    for node in graph.nodes:
        names[node.id] = node.id
        if node.id in group_of and node.kind == "kernel":
            names[node.id] = first.setdefault(group_of[node.id], node.id)
    moved = {(names[edge.tail], names[edge.head]): None for edge in graph.edges}
    edges = tuple(GraphEdge(tail, head) for tail, head in moved if tail != head)
    nodes = tuple(node for node in graph.nodes if names[node.id] == node.id)
    return replace(graph, nodes=nodes, edges=edges)


# *** DOT


def _write_dot(graph: Graph, schedule: Schedule, programs: Mapping[str, KernelGroup], total: int) -> str:
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
        shape = "cylinder" if node.kind in ("buffer", "kept") else "box"
        lines = _label(node, schedule, programs, total)
        end = "\\n" if len(lines) == 1 else "\\l"
        dot.node(node.id, id=node.id, shape=shape, label=escape_lines(lines, end))
    for edge in graph.edges:
        dot.edge(edge.tail, edge.head)
    return dot.source


def _label(node: GraphNode, schedule: Schedule, programs: Mapping[str, KernelGroup], total: int) -> list[str]:
    if node.kind == "kernel":
        group = programs[node.id]
        number = node.id.removeprefix("kernel")
        work = f"{round_count(group.kernel.executed_ops)} ops"
        if len(group.places) > 1:
            work += f", {len(group.places)} times"
        name = cut_end(group.kernel.name, _LONGEST_NAME)
        return [f"#{number} {name}", f"{work}  {format_share(group.ops, total)}"]
    if node.kind == "repeat":
        return [*node.lines]
    if node.members:
        made = index_of(schedule).find_kept(node.members[0])
        size = "" if made is None else f"  {format_bytes(made.bytes)}"
        return [cut_end(node.lines[0], _LONGEST_NAME) + size]
    return [node.lines[0]]


# *** links


@dataclass(frozen=True)
class _Link:
    """What a box stands for: groups of kernels, or a node, and what a reader of the screen says."""

    kernels: tuple[int, ...]
    node: str
    says: str
    mark: str = ""


def _find_links(graph: Graph, schedule: Schedule, group_of: Mapping[str, int], side: Side | None) -> dict[str, _Link]:
    drawn = {node.id for node in graph.nodes}
    found: dict[str, _Link] = {}
    rows = {name: Row((number,)) for name, number in group_of.items()}
    if side is not None:
        rows = {name: side.rows.get(int(name.removeprefix("kernel")), Row(())) for name in group_of}
    for node in graph.nodes:
        if node.kind == "repeat":
            hidden = _find_hidden(node, schedule, drawn)
            programs = dict.fromkeys(number for name in hidden for number in rows[name].numbers)
            mark = next((rows[name].mark for name in hidden if rows[name].mark), "")
            found[node.id] = _Link(tuple(programs), "", "; ".join(node.lines), mark)
        elif node.kind == "kernel":
            row = rows[node.id]
            found[node.id] = _Link(row.numbers, "", f"kernel {node.lines[0]}", row.mark)
        else:
            member = next(iter(node.members), None)
            name = ""
            if member is not None and side is not None:
                name = side.name_node(member)
            elif member is not None:
                name = name_node((schedule.index, member))
            found[node.id] = _Link((), name, f"buffer {node.lines[0]}")
    return found


def _find_hidden(repeat: GraphNode, schedule: Schedule, drawn: Collection[str]) -> list[str]:
    """The kernels that a box of repeated layers stands for: those that have no box of their own."""
    members = set(repeat.members)
    named = {f"kernel{number}": kernel for number, kernel in enumerate(schedule.kernels)}
    alone = [name for name in named if name == repeat.id or name not in drawn]
    return [name for name in alone if members.intersection(named[name].outputs)]


def find_drawn_names(picture_svg: str) -> list[str]:
    """Returns what the page calls the nodes that boxes of a drawing stand for: `0:48`, `b0:48` for one of before."""
    return re.findall(r'data-node="(b?\d+:\d+)"', picture_svg)


def find_drawn_nodes(picture_svg: str) -> Iterable[tuple[int, int]]:
    """Yields the nodes that boxes of a drawing stand for."""
    for schedule, node in re.findall(r'data-node="(\d+):(\d+)"', picture_svg):
        yield int(schedule), int(node)


# *** SVG


def _clean_svg(svg: str, graph: Graph, links: Mapping[str, _Link]) -> str:
    """Returns a new SVG that has of Graphviz' one what `_TAKEN` lists."""
    root = ElementTree.fromstring(svg)
    top = root.find(f"{_SVG}g")
    assert top is not None, "Graphviz puts all that it draws into one group"
    box = root.get("viewBox", "0 0 100 100")
    made = ElementTree.Element("svg", {"viewBox": box, "data-box": box, "class": "graph", "role": "group"})
    layer = ElementTree.SubElement(made, "g", {"transform": top.get("transform", "")})
    nodes = {node.id: node for node in graph.nodes}
    for part in top.findall(f"{_SVG}g"):
        kind = part.get("class")
        if kind == "edge":
            _copy_shapes(part, ElementTree.SubElement(layer, "g", {"class": "edge"}))
        elif kind == "node":
            node = nodes[part.get("id", "")]
            _copy_shapes(part, ElementTree.SubElement(layer, "g", _name_box(node, links[node.id])))
    return ElementTree.tostring(made, encoding="unicode")


def _name_box(node: GraphNode, link: _Link) -> dict[str, str]:
    classes = ["box", node.kind]
    if node.alert:
        classes.append("alert")
    if link.mark:
        classes.append(link.mark)
    if node.kind == "kernel":
        classes.append(f"w{round(node.weight * _SHADES)}")
    named = {"class": " ".join(classes), "tabindex": "0", "role": "button", "aria-label": clean_text(link.says)}
    if link.kernels:
        named["data-kernels"] = " ".join(map(str, link.kernels))
    if link.node:
        named["data-node"] = link.node
    return named


def _copy_shapes(part: ElementTree.Element, into: ElementTree.Element) -> None:
    for element in part.iter():
        tag = element.tag.removeprefix(_SVG)
        if tag not in _TAKEN:
            continue
        taken = {name: element.get(name, "") for name in _TAKEN[tag] if _NUMBERS.fullmatch(element.get(name, ""))}
        ElementTree.SubElement(into, tag, taken).text = element.text if tag == "text" else None
