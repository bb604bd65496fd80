"""Of the SVG that Graphviz writes, what a page can hold: shapes, their places and texts, no colour, link or style."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from vmapdbg.page.graph.dot import clean_text
from vmapdbg.page.graph.model import Graph, GraphNode

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
# what the page's style says of every text
_USUAL = {("text-anchor", "start"), ("font-size", "10.00")}
_FRACTION = re.compile(r"-?\d+\.\d+")
_NUMBERS = re.compile(r"[-+.,\d\sA-Za-z]*")


@dataclass(frozen=True)
class Link:
    """What a box stands for: groups of kernels, or a node, and what a reader of the screen says. `opens` is the number
    of the part that shows what is inside."""

    kernels: tuple[int, ...]
    node: str
    says: str
    mark: str = ""
    opens: int | None = None


def clean_svg(svg: str, graph: Graph, links: Mapping[str, Link]) -> str:
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


def _name_box(node: GraphNode, link: Link) -> dict[str, str]:
    classes = ["box", node.kind]
    if node.alert:
        classes.append("alert")
    if link.mark:
        classes.append(link.mark)
    if node.kind in ("kernel", "folded"):
        classes.append(f"w{round(node.weight * _SHADES)}")
    named = {"class": " ".join(classes), "tabindex": "0", "role": "button", "aria-label": clean_text(link.says)}
    if link.kernels:
        named["data-kernels"] = " ".join(map(str, link.kernels))
    if link.opens is not None:
        named["data-opens"] = str(link.opens)
    if link.node:
        named["data-node"] = link.node
    return named


def _copy_shapes(part: ElementTree.Element, into: ElementTree.Element) -> None:
    for element in part.iter():
        tag = element.tag.removeprefix(_SVG)
        if tag not in _TAKEN:
            continue
        given = ((name, element.get(name, "")) for name in _TAKEN[tag])
        taken = {name: _round(text) for name, text in given if _NUMBERS.fullmatch(text) and (name, text) not in _USUAL}
        if tag == "polygon":
            taken["points"] = _open(taken["points"])
        ElementTree.SubElement(into, tag, taken).text = element.text if tag == "text" else None


def _round(text: str) -> str:
    """Places to a tenth of a point, which nobody sees."""
    return _FRACTION.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), text)


def _open(points: str) -> str:
    """The corners without the first once more at the end: a polygon is closed anyhow."""
    first, *others = points.split()
    return " ".join([first, *(others[:-1] if others[-1:] == [first] else others)])
