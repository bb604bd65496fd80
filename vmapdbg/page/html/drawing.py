"""The kernels of a schedule and their buffers as SVG, coloured by the page; a box of kernels has its own drawing."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from xml.etree import ElementTree

from vmapdbg.diff.result import ScheduleDiff
from vmapdbg.install.system import count_cores
from vmapdbg.model.schedule_index import find_distinct
from vmapdbg.model.wording import format_known
from vmapdbg.page.graph.dot import TooSlow, clean_text, draw_dots, write_dot
from vmapdbg.page.graph.items import DrawnPair, DrawnSchedule
from vmapdbg.page.graph.kernels import MOST_BOXES, MOST_FOLDED, build_kernel_graph, fold_kernels
from vmapdbg.page.graph.model import BUFFER_KINDS, Graph, GraphError, keep_nodes
from vmapdbg.page.html.nodes import NodeKey, list_sides
from vmapdbg.page.overview import KernelRow
from vmapdbg.page.view import View

_MOST_SCHEDULES, _MOST_PAIRS = 6, 3
"""So many schedules of one run are drawn, those with the most work; of two runs, those with the largest change."""
_SECONDS = 15.0
_MOST_DRAWN = 160
"""Of a drawing with more boxes, however it is folded, only those with the most work are drawn."""
_MOST_INSIDE = 400
"""So many boxes are drawn inside other boxes. Boxes beyond that cannot be opened."""
_CHANGED = dict.fromkeys(("changed", "fused-from", "split-into"), "changed")
_MARKS = _CHANGED | {"only-before": "gone", "only-after": "new"}
"""The CSS class of a box, by the status of its kernel."""


@dataclass
class DrawingPart:
    """A whole schedule, or the inside of a box of part `outer`, as SVG. `note` says what is folded or left out, or why
    the SVG is empty. For each box, `opens` has the part inside it and `hidden` its kernels."""

    note: str
    title: str = ""
    outer: int = 0
    opens: dict[str, int] = field(default_factory=dict[str, int])
    hidden: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    svg: str = ""


@dataclass(frozen=True)
class DrawnSides:
    """The drawings of a schedule by side (one run: one side without a name). The first part of a side is the whole."""

    title: str
    sides: list[tuple[str, list[DrawingPart]]]

    def list_nodes(self) -> list[str]:
        """Returns the names of the nodes that its boxes show."""
        svg = "".join(part.svg for _, parts in self.sides for part in parts)
        return re.findall(r'data-node="(b?\d+:\d+)"', svg)


def draw_view(
    view: View, rows: Sequence[KernelRow], name_node: Callable[[str, NodeKey], str]
) -> tuple[list[DrawnSides], int]:
    """Returns the drawings of a page (`rows`: the most important first), and how many more schedules could be drawn."""
    chosen, undrawn = _choose_schedules(view, rows)
    drawers = [_Drawer("after", view, rows, name_node)]
    if view.is_pair:
        drawers.insert(0, _Drawer("before", view, rows, name_node))

    def draw(pair: ScheduleDiff) -> DrawnSides:
        indexes = ((drawer, getattr(pair, drawer.name)) for drawer in drawers)
        sides = [(drawer.shown_name, drawer.draw(index)) for drawer, index in indexes if index is not None]
        return DrawnSides(_name_schedule(view, pair), sides)

    # each layout is a process
    with ThreadPoolExecutor(count_cores()) as pool:
        return list(pool.map(draw, chosen)), undrawn


def _choose_schedules(view: View, rows: Sequence[KernelRow]) -> tuple[list[ScheduleDiff], int]:
    """The schedules to draw, each kind once, and how many are left out."""
    if not view.is_pair:
        distinct = find_distinct(view.after)
        every = [pair for pair in view.schedules if pair.after in distinct and pair.kernels]
        every.sort(key=lambda pair: -sum(side.kernel.executed_ops for change in pair.kernels for side in change.after))
        return every[:_MOST_SCHEDULES], len(every[_MOST_SCHEDULES:])
    by_change: dict[tuple[str, ...], ScheduleDiff] = {}
    for row in rows:
        pair = row.places[0].pair
        names = tuple(side.kernel.name for change in pair.kernels for side in change.sides)
        by_change.setdefault(names, pair)
    return list(by_change.values())[:_MOST_PAIRS], 0


def _name_schedule(view: View, pair: ScheduleDiff) -> str:
    """Returns `schedule 3`, and of one run how many are like it; of two runs what the sides do not share."""
    title = f"schedule {pair.index}"
    if not view.is_pair:
        return title + format_known(" and {} like it", len(find_distinct(view.after)[pair.index]) or None)
    if pair.after is None or pair.before is None:
        return f"{title}, only {'before' if pair.after is None else 'after'}"
    return title + format_known(", before {}", None if pair.before == pair.after else pair.before)


class _Drawer:
    """Draws the schedules of a side. `rows` are the rows of the page that have a kernel, by its schedule and number."""

    def __init__(
        self, name: str, view: View, rows: Sequence[KernelRow], name_node: Callable[[str, NodeKey], str]
    ) -> None:
        self.name, self.name_node = name, name_node
        self.capture, self.shown_name = getattr(view, name), name if view.is_pair else ""
        self.rows: dict[tuple[int, int], list[tuple[int, KernelRow]]] = defaultdict(list)
        for number, row in enumerate(rows):
            for place in row.places:
                for side, schedule, kernels in list_sides(place):
                    if side == name:
                        for kernel in kernels:
                            self.rows[schedule, kernel.number].append((number, row))

    def draw(self, index: int) -> list[DrawingPart]:
        """Returns the parts of the schedule with an index, the whole first."""
        drawn = DrawnSchedule(self.capture, next(each for each in self.capture.schedules if each.index == index))
        pair = DrawnPair.of_one(drawn)
        try:
            planned = _plan_parts(build_kernel_graph(pair, 0, ""), pair)
            made = draw_dots([write_dot(graph) for _, graph in planned], "svg", _SECONDS)
        except GraphError as error:
            return [DrawingPart(str(error))]
        except TooSlow:
            return [DrawingPart(f"not drawn: the layout took more than {_SECONDS:g} seconds")]
        for (part, graph), svg in zip(planned, made, strict=True):
            part.svg = clean_svg(svg.decode(), self._list_attributes(part, graph, index))
        return [part for part, _ in planned]

    def _list_attributes(self, part: DrawingPart, graph: Graph, index: int) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for node in graph.nodes:
            classes, names, said = ["box", node.kind], [], f"buffer {node.lines[0]}"
            if node.kind == "kernel":
                names, said = [node.id], f"kernel {node.lines[0]}"
            elif node.id in part.hidden:
                names, said = part.hidden[node.id], "; ".join(node.lines)
            rows = [row for name in names for row in self.rows.get((index, int(name.removeprefix("kernel"))), ())]
            marks = [_MARKS[row.change.status] for _, row in rows if row.change.status in _MARKS]
            classes += ["alert"] * node.alert + marks[:1]
            if node.kind in ("kernel", "folded"):
                classes.append(f"w{round(node.weight * _SHADES)}")
            attributes = {"class": " ".join(classes), "tabindex": "0", "role": "button", "aria-label": clean_text(said)}
            if rows:
                attributes["data-kernels"] = " ".join(dict.fromkeys(str(number) for number, _ in rows))
            if node.id in part.opens:
                attributes["data-opens"] = str(part.opens[node.id])
            if node.kind in BUFFER_KINDS and node.members:
                attributes["data-node"] = self.name_node(self.name, (index, node.members[0]))
            found[node.id] = attributes
        return found


# *** boxes and their inside


def _plan_parts(graph: Graph, pair: DrawnPair) -> list[tuple[DrawingPart, Graph]]:
    """Returns the parts of a schedule with what each draws: the whole first, then the inside of boxes."""
    planned, left = list[tuple[DrawingPart, Graph]](), _MOST_INSIDE
    waiting = [("all", graph, 0)]  # title, graph and outer part of each part
    for number, (title, whole, outer) in enumerate(waiting):
        made = fold_kernels(whole, pair)
        notes = ["repeated layers, and the optimizer, are one box"] if made.members else []
        if len(made.graph.nodes) > MOST_BOXES:
            made, notes = fold_kernels(whole, pair, MOST_FOLDED), ["functions are boxes: click opens one"]
        folded = made.graph
        if len(folded.nodes) > _MOST_DRAWN:
            heaviest = sorted(folded.nodes, key=lambda node: -node.weight)[:_MOST_DRAWN]
            notes.append(f"only the {_MOST_DRAWN} of {len(folded.nodes)} boxes with the most work are drawn")
            folded = keep_nodes(folded, {node.id for node in heaviest})
        hidden = {box: [name for name in names if "kernel" in name] for box, names in made.members.items()}
        part = DrawingPart("; ".join(notes), title, outer, hidden=hidden)
        for node in folded.nodes:
            inner = keep_nodes(whole, made.contents.get(node.id, ()))
            if inner.nodes and len(inner.nodes) <= left:
                left -= len(inner.nodes)
                part.opens[node.id] = len(waiting)
                waiting.append((node.lines[0], inner, number))
        planned.append((part, folded))
    return planned


# *** SVG

_SHADES = 5
_SVG = "{http://www.w3.org/2000/svg}"
# what is taken from Graphviz: tag -> attributes
_TAKEN = {"path": "d", "polygon": "points", "polyline": "points", "ellipse": "cx cy rx ry", "text": "x y"}
_FRACTION = re.compile(r"-?\d+\.\d+")
_NUMBERS = re.compile(r"[-+.,\d\sA-Za-z]*")


def clean_svg(svg: str, attributes: Mapping[str, dict[str, str]]) -> str:
    """Returns a new SVG with Graphviz' shapes and texts and the attributes of each node, without colours."""
    root = ElementTree.fromstring(svg)
    top = root.find(f"{_SVG}g")
    assert top is not None, "Graphviz puts all that it draws into one group"
    box = root.get("viewBox", "0 0 100 100")
    made = ElementTree.Element("svg", {"viewBox": box, "width": box.split()[2], "class": "graph", "role": "group"})
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
        taken: dict[str, str] = {}
        for name in _TAKEN[tag].split():
            text = element.get(name, "")
            if _NUMBERS.fullmatch(text):
                # a step smaller than a tenth of a point cannot be seen
                taken[name] = _FRACTION.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), text)
        copied = ElementTree.SubElement(into, tag, taken)
        if tag == "text":
            copied.text = element.text
