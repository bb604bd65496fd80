"""The drawings of a page: the kernels of a schedule and their buffers, laid out by Graphviz, as SVG without colours.

The colours are in the page's style, light or dark. Of two runs, the drawings of both sides are beside each other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from vmapdbg.diff import ScheduleDiff
from vmapdbg.model.capture import Schedule
from vmapdbg.model.schedule_index import find_distinct, index_of
from vmapdbg.model.wording import cut_end
from vmapdbg.page.format import format_bytes, format_share, round_count
from vmapdbg.page.graph.dot import TooSlow, clean_text, draw_dots, write_dot
from vmapdbg.page.graph.items import DrawnPair, DrawnSchedule
from vmapdbg.page.graph.kernels import build_kernel_graph
from vmapdbg.page.graph.model import BUFFER_KINDS, Graph, GraphError, GraphNode
from vmapdbg.page.html.nodes import NodeKey, list_sides
from vmapdbg.page.html.parts import DrawnPart, plan_parts
from vmapdbg.page.overview import KernelRow, group_kernels
from vmapdbg.page.view import View

_MOST_SCHEDULES, _MOST_PAIRS = 6, 3
"""So many schedules of one run are drawn, those with the most work; of two runs, those with the largest change."""
_SECONDS = 15.0
_LONGEST_NAME = 28
_FOLDED_LINES = ("with ", "also reads ")
"""How the lines begin that folding adds to a kernel."""
_MARKS = {
    "changed": "changed",
    "fused-from": "changed",
    "split-into": "changed",
    "only-before": "gone",
    "only-after": "new",
}
"""The CSS class of a box, by the status of its kernel."""


@dataclass(frozen=True)
class PicturePart:
    """One drawing. `svg` is empty if it could not be made; `note` says why, or what is folded."""

    title: str
    svg: str
    note: str


@dataclass(frozen=True)
class Picture:
    """The drawing of a schedule: `parts` has the whole first, then what is inside its boxes. `side` is `before` or
    `after` on a page of two runs, else empty."""

    schedule: int
    title: str
    parts: tuple[PicturePart, ...]
    side: str = ""


@dataclass(frozen=True)
class PicturePair:
    """Pictures beside each other: before and after, or one."""

    pictures: tuple[Picture, ...]

    @property
    def title(self) -> str:
        """`schedule 3`; `schedule 3, before 2` if the number has changed, `schedule 3, only after` of one side."""
        last = self.pictures[-1]
        if not last.side:
            return last.title
        if len(self.pictures) == 1:
            return f"{last.title}, only {last.side}"
        first = self.pictures[0].schedule
        return last.title if first == last.schedule else f"{last.title}, before {first}"

    def list_nodes(self) -> list[str]:
        """Returns the names of the nodes that its boxes show."""
        svg = "".join(part.svg for picture in self.pictures for part in picture.parts)
        return re.findall(r'data-node="(b?\d+:\d+)"', svg)


def draw_view(
    view: View, rows: Sequence[tuple[int, KernelRow]], name_node: Callable[[str, NodeKey], str]
) -> tuple[list[PicturePair], int]:
    """Returns the drawings of a page, and how many more schedules could be drawn.

    `rows` are the rows of kernels with their numbers, the most important first. `name_node` names a node of a side.
    """
    chosen, undrawn = _choose_schedules(view, rows)
    drawers = [_Drawer("after", view, rows, name_node)]
    if view.is_pair:
        drawers.insert(0, _Drawer("before", view, rows, name_node))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:

        def start(pair: ScheduleDiff) -> list[Future[Picture]]:
            """Starts the layouts of a pair of schedules: each is a process."""
            indexes = [(drawer, getattr(pair, drawer.name)) for drawer in drawers]
            return [pool.submit(drawer.draw, index) for drawer, index in indexes if index is not None]

        started = [start(pair) for pair in chosen]
        drawings = [PicturePair(tuple(picture.result() for picture in pictures)) for pictures in started]
    return drawings, undrawn


def _choose_schedules(view: View, rows: Sequence[tuple[int, KernelRow]]) -> tuple[list[ScheduleDiff], int]:
    """The schedules to draw, each kind once, and how many are left out."""
    if not view.is_pair:
        distinct = find_distinct(view.after)
        every = [pair for pair in view.schedules if pair.after in distinct and pair.kernels]
        every.sort(key=lambda pair: -sum(side.kernel.executed_ops for change in pair.kernels for side in change.after))
        return every[:_MOST_SCHEDULES], len(every[_MOST_SCHEDULES:])
    by_change: dict[tuple[str, ...], ScheduleDiff] = {}
    for _, row in rows:
        pair = row.places[0].pair
        names = tuple(side.kernel.name for change in pair.kernels for side in (*change.before, *change.after))
        by_change.setdefault(names, pair)
    return list(by_change.values())[:_MOST_PAIRS], 0


class _Drawer:
    """Draws the schedules of a side. `rows` are the rows of the page that have a kernel, by its schedule and number."""

    def __init__(
        self,
        name: str,
        view: View,
        rows: Sequence[tuple[int, KernelRow]],
        name_node: Callable[[str, NodeKey], str],
    ) -> None:
        self.name, self.name_node = name, name_node
        self.shown_name = name if view.is_pair else ""
        self.capture = view.before if name == "before" else view.after
        self.again = {} if view.is_pair else find_distinct(self.capture)
        self.rows: dict[tuple[int, int], list[tuple[int, KernelRow]]] = {}
        for number, row in rows:
            for place in row.places:
                for side, schedule, kernels in list_sides(place):
                    if side == name:
                        for kernel in kernels:
                            self.rows.setdefault((schedule, kernel.number), []).append((number, row))
        # the rows of this side alone
        programs = group_kernels(View.of_one(self.capture))
        self.programs = {(place.schedule, place.position): row for row in programs for place in row.places}
        self.total = sum(row.after.ops for row in programs)

    def draw(self, index: int) -> Picture:
        """Returns the drawing of the schedule with an index."""
        title = f"schedule {index}"
        if again := len(self.again.get(index, ())):
            title += f" and {again} like it"
        schedule = next(each for each in self.capture.schedules if each.index == index)
        try:
            drawn = DrawnSchedule(self.capture, schedule)
            parts = plan_parts(build_kernel_graph(DrawnPair.of_one(drawn), 0, title), drawn)
            made = draw_dots([write_dot(self._label_nodes(part.graph, schedule)) for part in parts], _SECONDS)
        except (GraphError, TooSlow) as error:
            note = str(error)
            if isinstance(error, TooSlow):
                note = f"not drawn: the layout took more than {_SECONDS:g} seconds"
            return Picture(index, title, (PicturePart("", "", note),), self.shown_name)
        shown = [
            PicturePart(part.title, clean_svg(svg, self._list_attributes(part, index)), part.note)
            for part, svg in zip(parts, made, strict=True)
        ]
        return Picture(index, title, tuple(shown), self.shown_name)

    def _label_nodes(self, graph: Graph, schedule: Schedule) -> Graph:
        nodes = tuple(replace(node, lines=tuple(self._label(node, schedule))) for node in graph.nodes)
        return replace(graph, title="", nodes=nodes)

    def _label(self, node: GraphNode, schedule: Schedule) -> list[str]:
        if node.kind == "kernel":
            number = int(node.id.removeprefix("kernel"))
            row = self.programs[schedule.index, number]
            work = f"{round_count(row.kernel.executed_ops)} ops"
            if len(row.places) > 1:
                work += f", {len(row.places)} times"
            name = cut_end(row.kernel.name, _LONGEST_NAME)
            added = [line for line in node.lines if line.startswith(_FOLDED_LINES)]
            return [f"#{number} {name}", f"{work}  {format_share(row.after.ops, self.total)}", *added]
        if node.kind in BUFFER_KINDS:
            made = index_of(schedule).find_kept(node.members[0])
            size = "" if made is None else f"  {format_bytes(made.bytes)}"
            return [cut_end(node.lines[0], _LONGEST_NAME) + size]
        return [*node.lines]

    def _rows_of(self, index: int, name: str) -> tuple[tuple[int, ...], str]:
        """The numbers of the page's rows that have a kernel, and the mark of its box."""
        rows = self.rows.get((index, int(name.removeprefix("kernel"))), [])
        mark = next((_MARKS.get(row.change.status, "") for _, row in reversed(rows)), "")
        return tuple(number for number, _ in rows), mark

    def _list_attributes(self, part: DrawnPart, index: int) -> dict[str, dict[str, str]]:
        """Returns the SVG attributes of each box: its classes, its text for a screen reader, and its links."""
        found: dict[str, dict[str, str]] = {}
        for node in part.graph.nodes:
            names = part.hidden.get(node.id, [node.id] if node.kind == "kernel" else [])
            linked = [self._rows_of(index, name) for name in names]
            mark = next((mark for _, mark in linked if mark), "")
            shade = f"w{round(node.weight * _SHADES)}" if node.kind in ("kernel", "folded") else ""
            classes = ["box", node.kind, "alert" if node.alert else "", mark, shade]
            attributes = {"class": " ".join(filter(None, classes)), "tabindex": "0", "role": "button"}
            said = "; ".join(node.lines)
            if node.id not in part.hidden:
                said = f"{'kernel' if node.kind == 'kernel' else 'buffer'} {node.lines[0]}"
            attributes["aria-label"] = clean_text(said)
            if numbers := dict.fromkeys(str(number) for some, _ in linked for number in some):
                attributes["data-kernels"] = " ".join(numbers)
            if node.id in part.opens:
                attributes["data-opens"] = str(part.opens[node.id])
            if node.kind in BUFFER_KINDS and node.members:
                attributes["data-node"] = self.name_node(self.name, (index, node.members[0]))
            found[node.id] = attributes
        return found


# *** SVG

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
# the page's style says this for every text
_USUAL = {("text-anchor", "start"), ("font-size", "10.00")}
_FRACTION = re.compile(r"-?\d+\.\d+")
_NUMBERS = re.compile(r"[-+.,\d\sA-Za-z]*")


def clean_svg(svg: str, attributes: Mapping[str, dict[str, str]]) -> str:
    """Returns a new SVG with Graphviz' shapes and texts and the attributes of each node, without colours."""
    root = ElementTree.fromstring(svg)
    top = root.find(f"{_SVG}g")
    assert top is not None, "Graphviz puts all that it draws into one group"
    box = root.get("viewBox", "0 0 100 100")
    made = ElementTree.Element("svg", {"viewBox": box, "data-box": box, "class": "graph", "role": "group"})
    layer = ElementTree.SubElement(made, "g", {"transform": top.get("transform", "")})
    for part in top.findall(f"{_SVG}g"):
        kind = part.get("class")
        if kind == "edge":
            _copy_shapes(part, ElementTree.SubElement(layer, "g", {"class": "edge"}))
        elif kind == "node":
            _copy_shapes(part, ElementTree.SubElement(layer, "g", attributes[part.get("id", "")]))
    return ElementTree.tostring(made, encoding="unicode")


def _copy_shapes(part: ElementTree.Element, into: ElementTree.Element) -> None:
    for element in part.iter():
        tag = element.tag.removeprefix(_SVG)
        if tag not in _TAKEN:
            continue
        given = ((name, element.get(name, "")) for name in _TAKEN[tag])
        taken = {name: _round(text) for name, text in given if _NUMBERS.fullmatch(text) and (name, text) not in _USUAL}
        if tag == "polygon":
            # a polygon closes itself: the first corner is not needed again at the end
            first, *others = taken["points"].split()
            if others[-1:] == [first]:
                others.pop()
            taken["points"] = " ".join([first, *others])
        copied = ElementTree.SubElement(into, tag, taken)
        if tag == "text":
            copied.text = element.text


def _round(text: str) -> str:
    """Rounds coordinates to a tenth of a point: a smaller step cannot be seen."""
    return _FRACTION.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), text)
