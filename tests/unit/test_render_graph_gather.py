"""Boxes of boxes: a training step is folded without a circle, and no node is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import lost_range, training_step
from hypothesis import given, settings
from hypothesis import strategies as st

from vmapdbg.model.vocabulary import StageName
from vmapdbg.page.graph.fold import Box, Folded, Look, fold_graph, name_far_sources
from vmapdbg.page.graph.model import Graph, GraphEdge, GraphNode, sort_names
from vmapdbg.page.graph.write import write_graph


def make_graph(kinds: Sequence[str], edges: Sequence[tuple[int, int]]) -> Graph:
    nodes = tuple(
        GraphNode(f"n{number}", kind, (f"{number} {kind}",), "", (number,)) for number, kind in enumerate(kinds)
    )
    return Graph("tensor", "t", nodes, tuple(GraphEdge(f"n{a}", f"n{b}") for a, b in edges), (), (), {}, {})


def look(node: GraphNode) -> Look:
    if node.kind == "alone":
        return Look()
    if node.kind == "buffer":
        return Look(None, node.kind, node.kind, node.mark, passive=True)
    return Look(node.id, node.kind, node.kind, node.mark)


def label(box: Box, nodes: Sequence[GraphNode]) -> GraphNode:
    return replace(nodes[-1], id=box.key, kind="folded", lines=(f"{len(nodes)} nodes, {box.times} times",))


def gather(graph: Graph, most: int) -> Folded:
    return fold_graph(graph, look, label, "gathered", most)


def inside(gathered: Folded) -> list[list[int]]:
    """The numbers of the nodes of each box of several."""
    return sorted([int(name[1:]) for name in names] for names in gathered.contents.values())


def test_updates_of_parameters_are_one_box() -> None:
    """Six times a gradient, its update and the buffer that it is written to."""
    kinds = ["loss"] + ["gradient", "update", "buffer"] * 6
    edges = [(0, 1 + 3 * n) for n in range(6)]
    edges += [edge for n in range(6) for edge in ((1 + 3 * n, 2 + 3 * n), (2 + 3 * n, 3 + 3 * n))]
    gathered = gather(make_graph(kinds, edges), 8)
    assert [node.lines[0] for node in gathered.graph.nodes] == ["0 loss", "18 nodes, 6 times"]
    assert [(edge.tail, edge.head) for edge in gathered.graph.edges] == [("n0", "n17")]


def test_kernels_that_read_each_other_are_not_gathered() -> None:
    """Layers that are alike follow each other: they are not next to each other."""
    kinds = ["layer"] * 6
    gathered = gather(make_graph(kinds, [(n, n + 1) for n in range(5)]), 6)
    assert gathered.contents == {}


def test_buffers_are_alike_where_the_same_boxes_read_them() -> None:
    kinds = ["buffer"] * 6 + ["one", "two"]
    gathered = gather(make_graph(kinds, [(n, 6 + n // 3) for n in range(6)]), 8)
    assert inside(gathered) == [[0, 1, 2], [3, 4, 5]]


def test_a_chain_is_joined_in_parts_that_are_about_as_long() -> None:
    gathered = gather(make_graph([str(n // 8) for n in range(32)], [(n, n + 1) for n in range(31)]), 8)
    assert len(gathered.graph.nodes) == 8
    assert {len(names) for names in gathered.contents.values()} == {4}
    assert all(len({number // 8 for number in numbers}) == 1 for numbers in inside(gathered)), (
        "first what is of one place"
    )


def test_nodes_with_findings_stay_alone() -> None:
    graph = make_graph(["alone" if n == 5 else "op" for n in range(12)], [(n, n + 1) for n in range(11)])
    added = replace(graph, nodes=tuple(replace(n, mark="added") if n.id == "n9" else n for n in graph.nodes))
    found = inside(gather(added, 2))
    assert not any({5, 9} & set(numbers) for numbers in found)
    assert [numbers for numbers in found if len(numbers) > 1] == [[0, 1, 2, 3, 4], [6, 7, 8], [10, 11]]


def test_a_far_arrow_is_named_by_its_target() -> None:
    graph = make_graph(["op"] * 9, [*((n, n + 1) for n in range(8)), (0, 8), (1, 8), (6, 8)])
    far = name_far_sources(graph)
    assert len(far.edges) == len(graph.edges) - 2
    assert far.nodes[8].lines[-1] == "also reads 0, 1"
    assert far.nodes[:8] == graph.nodes[:8]


def graphs() -> st.SearchStrategy[Graph]:
    kinds = st.lists(st.sampled_from(["op", "sum", "buffer", "alone"]), min_size=2, max_size=50)

    def build(kinds: list[str], steps: list[tuple[int, int]]) -> Graph:
        pairs = {(max(head - step, 0), head) for step, head in steps if 0 < head < len(kinds)}
        return make_graph(kinds, sorted(pair for pair in pairs if pair[0] != pair[1]))

    return st.builds(build, kinds, st.lists(st.tuples(st.integers(1, 20), st.integers(0, 49)), max_size=90))


@settings(deadline=None, max_examples=100)
@given(graphs(), st.integers(1, 30))
def test_gathering_makes_no_cycle_and_each_node_is_in_one_box(graph: Graph, most: int) -> None:
    gathered = gather(graph, most)
    heads: dict[str, set[str]] = {node.id: set() for node in gathered.graph.nodes}
    tails: dict[str, set[str]] = {node.id: set() for node in gathered.graph.nodes}
    for edge in gathered.graph.edges:
        heads[edge.tail].add(edge.head)
        tails[edge.head].add(edge.tail)
    place = {name: number for number, name in enumerate(sort_names(tails, heads))}
    assert all(place[edge.tail] < place[edge.head] for edge in gathered.graph.edges)
    shown = [name for node in gathered.graph.nodes for name in gathered.contents.get(node.id, (node.id,))]
    assert sorted(shown) == sorted(node.id for node in graph.nodes)
    of = {name: box for box, names in gathered.contents.items() for name in names}
    wanted = {(of.get(e.tail, e.tail), of.get(e.head, e.head)) for e in graph.edges}
    assert {(e.tail, e.head) for e in gathered.graph.edges} == {pair for pair in wanted if pair[0] != pair[1]}


# *** of a schedule


@pytest.mark.parametrize("stage", ["tensor", "kernels"])
def test_a_training_step_is_folded_to_what_one_can_look_at(stage: StageName, tmp_path: Path) -> None:
    notes = write_graph(training_step(), tmp_path / "out.svg", stage=stage)
    drawn = (tmp_path / "out.svg").read_text("utf-8").count('class="node"')
    assert drawn <= 60
    assert any("in boxes with others" in note for note in notes)
    assert any("--around NODE" in note for note in notes)


@pytest.mark.parametrize(("stage", "last"), [("tensor", 4), ("kernels", 2)])
def test_a_box_says_how_many_there_are_and_where(stage: StageName, last: int, tmp_path: Path) -> None:
    capture = training_step()
    write_graph(capture, tmp_path / "out.json", stage=stage, fold=last)
    data: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    (box,) = [node for node in data["nodes"] if node["kind"] == "folded" and "net.py:30" in str(node["lines"])]
    assert "30 of each of 2 kinds" in box["lines"]
    assert set(range(13, 73)) <= set(box["members"])
    total = sum(data["folded"].values())
    drawn = sum(node["kind"] not in ("kept", "removed") for node in data["nodes"]) if stage == "tensor" else 0
    if stage == "tensor":
        assert total + drawn == len(capture.schedules[0].nodes)


def test_a_small_schedule_is_drawn_as_it_is(tmp_path: Path) -> None:
    capture = lost_range()
    for stage in ("tensor", "kernels"):
        write_graph(capture, tmp_path / "small.svg", stage=stage)
        assert "in boxes with others" not in (tmp_path / "small.svg").read_text("utf-8")
