"""What is written into DOT and SVG: any text a user's names may hold, ids, tooltips, marks. Each layout takes half a
second, so that one graph holds many texts."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vmapdbg.page.graph import model
from vmapdbg.page.graph.dot import clean_text, draw_dots, style_svg, write_dot
from vmapdbg.page.graph.model import PALETTE, Graph, GraphEdge, GraphNode, LegendEntry

SVG = "{http://www.w3.org/2000/svg}"
TITLE = "{http://www.w3.org/1999/xlink}title"
NASTY = [
    "quotes \" and ' and `",
    "<b>bold</b> & &lt; &amp;amp; &#65;",
    "\\N \\G \\l \\n \\\\ \\",
    "<HTML like>",
    "a:port -> b; } // /* #",
    "\x00\x07\x1b[31m red \x7f",
    "line\nbreak\r\nand\ttab",
    "\u202eturned\u2066 \u2028",
    "\ud800 \uffff \U0001f600 \u00e4\u4e2d\u6587",
    "",
    " ",
    "x" * 3000,
    "%s {0} ${A} \\xff",
]


def make_graph(*nodes: GraphNode, **changes: Any) -> Graph:
    return replace(Graph("tensor", "t", nodes, (), (), (), {}, {}), **changes)


def draw(graph: Graph) -> ET.Element:
    svg = style_svg(draw_dots([write_dot(graph)], "svg", 30)[0].decode("utf-8"), graph)
    return ET.fromstring(svg)


def find(root: ET.Element, name: str) -> ET.Element:
    found = [part for part in root.iter(f"{SVG}g") if part.get("id") == name]
    assert len(found) == 1, name
    return found[0]


def read_lines(part: ET.Element) -> list[str]:
    return ["".join(text.itertext()) for text in part.iter(f"{SVG}text")]


def read_tooltip(part: ET.Element) -> str | None:
    return next((link.get(TITLE) for link in part.iter(f"{SVG}a")), None)


def join_spaces(text: str) -> str:
    """Graphviz makes every second of several spaces a no-break one."""
    return text.replace("\u00a0", " ")


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(max_size=30), min_size=1, max_size=30))
@example(NASTY)
def test_any_text_is_shown_as_it_is(texts: list[str]) -> None:
    """A file name with a quote or an arrow must not break the picture, nor vanish from it."""
    nodes = [GraphNode(f"node{i}", "op", (f"[{text}]",), f"[{text}]") for i, text in enumerate(texts)]
    root = draw(make_graph(*nodes, title=f"[{texts[0]}]"))
    for i, text in enumerate(texts):
        shown = clean_text(f"[{text}]")
        part = find(root, f"node{i}")
        assert join_spaces(read_tooltip(part) or "") == join_spaces(shown)
        line = clean_text(f"[{text}]".replace("\n", " ").replace("\r", " "))
        assert join_spaces("".join(read_lines(part))) == join_spaces(line)


def test_title_edges_scopes_and_legend_take_any_text() -> None:
    name = "r<1>\"&'\\N"
    nodes = (GraphNode("a", "op", (name,), scope="s"), GraphNode("b", "op", ("b",)))
    root = draw(
        make_graph(
            *nodes,
            edges=(GraphEdge("a", "b", name, name),),
            clusters=(model.GraphCluster("s", None, f"vmap {name}", name),),
            legend=(LegendEntry("op", name),),
            range_colours={name: PALETTE[0]},
        )
    )
    assert read_lines(find(root, "s"))[0] == f"vmap {name}"
    assert read_lines(find(root, "edge-0")) == [f" {name} "]
    assert read_lines(find(root, "legend-0")) == [name]


def test_ranges_are_coloured_and_not_inside_other_names() -> None:
    """`rm1` of `rm10` must not get the colour of rm1."""
    colours = {"rm1": PALETTE[0], "rm10": PALETTE[1]}
    root = draw(make_graph(GraphNode("node1", "op", ("ADD", "rm1* rm10* xrm1")), range_colours=colours))
    spans = [(span.text, span.get("fill")) for span in find(root, "node1").iter(f"{SVG}tspan")]
    assert spans == [("rm1*", colours["rm1"]), ("rm10*", colours["rm10"])]


def test_marks_have_colour_style_and_text() -> None:
    """Not everyone can see added from removed by colour alone."""
    graph = make_graph(
        GraphNode("gone", "op", ("- 1 ADD",), mark=model.REMOVED),
        GraphNode("new", "op", ("+ 2 ADD",), mark=model.ADDED),
        GraphNode("changed", "op", ("3 ADD", "- realized: a", "+ not realized")),
        edges=(GraphEdge("gone", "changed", mark=model.REMOVED), GraphEdge("new", "changed", mark=model.ADDED)),
    )
    source = write_dot(graph)
    for name, style in (("gone", "dashed"), ("new", "bold")):
        assert style in next(line for line in source.splitlines() if f"id={name}" in line)


def test_ids_of_graphviz_do_not_collide_with_node_ids() -> None:
    """`node2` in the picture is node 2 of the capture, not the second one drawn."""
    root = draw(
        make_graph(
            GraphNode("node7", "op", ("7 ADD",)),
            GraphNode("node1", "op", ("1 ADD",)),
            edges=(GraphEdge("node1", "node7"),),
            legend=(LegendEntry("op", "an op"),),
        )
    )
    names = [part.get("id") for part in root.iter(f"{SVG}g") if part.get("id")]
    assert len(names) == len(set(names))
    assert read_lines(find(root, "node1")) == ["1 ADD"]


def test_ranks_survive_a_circle_and_every_kind_is_in_the_source() -> None:
    graph = make_graph(
        GraphNode("a", "op", ("a",)), GraphNode("b", "op", ("b",)), edges=(GraphEdge("a", "b"), GraphEdge("b", "a"))
    )
    assert set(model.measure_ranks(graph)) == {"a", "b"}
    for kind in ("op", "vmapin", "kept", "removed", "repeat", "index", "input", "kernel"):
        assert f"id={kind}" in write_dot(make_graph(GraphNode(kind, kind, ("a",))))
