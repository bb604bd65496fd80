"""Folding loses no node without counting it, and never folds what the user must see.

A training step is folded into boxes of boxes without a circle.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import lost_range, make_capture, make_node, make_schedule, training_step
from hypothesis import given, settings
from hypothesis import strategies as st

from vmapdbg.model.capture import Bufferize, Node, Realized
from vmapdbg.model.vocabulary import Outcome, StageName
from vmapdbg.page.graph.fold import Box, Folded, Look, fold_graph, fold_optimizer, name_far_sources
from vmapdbg.page.graph.items import LEVELS, DrawnPair, DrawnSchedule, Folding, collect_items
from vmapdbg.page.graph.model import Graph, GraphEdge, GraphNode, sort_names
from vmapdbg.page.graph.tensor import build_tensor_graph
from vmapdbg.page.graph.write import write_graph

REALIZED = Realized((0,), "ending-ranges", "r0 ends")


def side_of(nodes: list[Node], *bufferizes: Bufferize) -> DrawnPair:
    capture = make_capture(make_schedule(nodes=tuple(nodes), bufferizes=bufferizes))
    return DrawnPair.of_one(DrawnSchedule(capture, capture.schedules[0]))


def fold(nodes: list[Node], level: int = 0, *bufferizes: Bufferize) -> Folding:
    return Folding(collect_items(side_of(nodes, *bufferizes)), level)


def keep(node: int, outcome: Outcome = "kept") -> Bufferize:
    return Bufferize(node, ("r0",), (), 2, 16, "GLOBAL", outcome, "because")


def keys(folding: Folding) -> list[list[str]]:
    return [[item.key for item in group.items] for group in folding.groups]


def check_sums(folding: Folding, count: int) -> None:
    drawn = [item for group in folding.groups for item in group.items]
    assert len(folding.groups) + sum(folding.folded.values()) == count
    assert len({item.key for item in drawn}) == len(drawn)
    assert set(folding.of) >= {item.key for item in drawn}


def check_no_circle(graph: Graph) -> None:
    heads: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    tails: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        heads[edge.tail].append(edge.head)
        tails[edge.head].append(edge.tail)
    place = {name: number for number, name in enumerate(sort_names(tails, heads))}
    assert all(place[edge.tail] < place[edge.head] for edge in graph.edges)


def test_movement_ops_join_to_the_last_and_constants_are_named_by_their_readers() -> None:
    nodes = [
        make_node(0, "BUFFER"),
        make_node(1, "RESHAPE", src=(0,)),
        make_node(2, "PERMUTE", src=(1,)),
        make_node(3, "EXPAND", src=(2,)),
        make_node(4, "ADD", src=(3,)),
    ]
    folding = fold(nodes)
    assert keys(folding) == [["0"], ["1", "2", "3"], ["4"]]
    assert folding.folded == {"joined": 2}
    nodes = [
        make_node(0, "BUFFER"),
        make_node(1, "CONST", (), arg="2.5"),
        make_node(2, "EXPAND", src=(1,)),
        make_node(3, "MUL", src=(0, 2)),
    ]
    folding = fold(nodes)
    assert keys(folding) == [["0"], ["3"]]
    assert folding.groups[1].constants == ["2.5"]
    assert folding.folded == {"constants": 2}
    # a constant that is the output is drawn
    assert keys(fold([make_node(0, "CONST", (), arg="1")])) == [["0"]]


@pytest.mark.parametrize("why", ["two readers", "realized", "kept", "other scope"])
def test_a_movement_op_with_a_finding_is_not_folded_into_an_edge(why: str) -> None:
    """A chain must not swallow a node that has a buffer, another reader, or another scope."""
    changes: dict[str, Any] = {"realized": REALIZED} if why == "realized" else {}
    nodes = [
        make_node(0, "BUFFER"),
        make_node(1, "RESHAPE", src=(0,), **changes),
        make_node(2, "EXPAND", src=(1,), ambient=("rm1",) if why == "other scope" else ()),
        make_node(3, "ADD", src=(1, 2) if why == "two readers" else (2,)),
    ]
    folding = fold(nodes, 0, *([keep(1)] if why == "kept" else []))
    assert ["1"] in keys(folding)


def test_index_arithmetic_is_one_node() -> None:
    """The user writes an arange; it is many nodes."""
    nodes = [
        make_node(0, "CONST", (), arg="1"),
        make_node(1, "EXPAND", src=(0,)),
        make_node(2, "PAD", src=(1,)),
        make_node(3, "CONST", (), arg="-1"),
        make_node(4, "REDUCE_AXIS", src=(2,)),
        make_node(5, "ADD", src=(4, 3)),
        make_node(6, "BUFFER"),
        make_node(7, "CMPNE", src=(6, 5)),
    ]
    folding = fold(nodes, 0, keep(5, "removed"))
    assert sorted(keys(folding)) == [["4", "5"], ["6"], ["7"]]
    assert folding.folded == {"constants": 4, "index arithmetic": 1}
    # a kept buffer is drawn
    nodes = [make_node(0, "CONST", (), arg="1"), make_node(1, "REDUCE_AXIS", src=(0,))]
    assert ["2"] in keys(fold([*nodes, make_node(2, "ADD", src=(1,), realized=REALIZED)], 0, keep(2)))


def draw_layers(nodes: list[Node]) -> Graph:
    graph = build_tensor_graph(side_of(nodes), 1, "title")
    assert len(graph.nodes) + sum(graph.folded.values()) == len(nodes)
    return graph


def test_repeated_layers_are_drawn_once_and_so_are_layers_of_a_gradient() -> None:
    graph = draw_layers(layers(10))
    (repeat,) = [node for node in graph.nodes if node.kind == "repeat"]
    assert repeat.lines == ("layers 2-10: the same as layer 1", "27 nodes, 4 to 30")
    assert len([node for node in graph.nodes if node.kind == "reduce"]) == 1
    # the weights of the folded layers are folded with them; the weight of the first layer is drawn
    assert len([node for node in graph.nodes if node.kind == "input"]) == 2
    nodes = layers(10)
    for _ in range(8):
        last = nodes[-1].id
        nodes += [make_node(last + 1, "SQRT", src=(last,)), make_node(last + 2, "ADD", src=(last + 1, 0))]
    repeats = [node.lines[0] for node in draw_layers(nodes).nodes if node.kind == "repeat"]
    assert repeats == ["layers 2-10: the same as layer 1", "layers 2-8: the same as layer 1"]


def layers(count: int) -> list[Node]:
    """x = sum(x * w) a layer, each with its own weight."""
    nodes = [make_node(0, "BUFFER")]
    for _ in range(count):
        last = nodes[-1].id
        nodes += [
            make_node(last + 1, "BUFFER"),
            make_node(last + 2, "MUL", src=(last, last + 1)),
            make_node(last + 3, "REDUCE_AXIS", src=(last + 2,)),
        ]
    return nodes


def graphs() -> st.SearchStrategy[list[Node]]:
    ops = st.sampled_from(["ADD", "MUL", "RESHAPE", "EXPAND", "REDUCE_AXIS", "CONST", "BUFFER", "VMAPIN", "CAST"])
    return st.lists(st.tuples(ops, st.integers(1, 9), st.integers(1, 9), st.booleans()), max_size=60).map(build)


def build(rows: list[tuple[str, int, int, bool]]) -> list[Node]:
    nodes: list[Node] = []
    for number, (op, first, second, realized) in enumerate(rows):
        near = [number - first] if op in ("RESHAPE", "EXPAND", "VMAPIN", "CAST") else [number - first, number - second]
        src = tuple(source for source in near if source >= 0) if op not in ("CONST", "BUFFER") else ()
        nodes.append(make_node(number, op, src=src, realized=REALIZED if realized and src else None))
    return nodes


@settings(deadline=None, max_examples=60)
@given(graphs(), st.sampled_from(LEVELS), st.booleans())
def test_every_node_is_drawn_or_counted_and_no_circle_is_made(nodes: list[Node], level: int, kept: bool) -> None:
    """A group must come after all that it reads: else no layout has outputs below inputs."""
    buffers = [keep(node.id, "kept" if kept else "removed") for node in nodes if node.realized is not None]
    check_sums(fold(nodes, level, *buffers), len(nodes))
    folding = fold(nodes, level)
    place = {group.key: number for number, group in enumerate(folding.groups)}
    for group in folding.groups:
        for item in group.items:
            for source in item.src:
                maker = folding.of[source]
                if maker is not None and maker != group.key:
                    assert place[maker] < place[group.key]


@settings(deadline=None, max_examples=60)
@given(graphs(), st.integers(2, 5), st.sampled_from(LEVELS))
def test_folding_layers_makes_no_circle_and_loses_no_node(nodes: list[Node], count: int, level: int) -> None:
    """The same graph several times, each copy reads the copy before it."""
    every: list[Node] = []
    for _ in range(count):
        start = len(every)
        for node in nodes:
            above = (start - 1,) if start else ()
            src = tuple(source + start for source in node.src) or above
            every.append(make_node(len(every), node.op, src=src))
    graph = build_tensor_graph(side_of(every), level, "title")
    assert len(graph.nodes) + sum(graph.folded.values()) == len(every)
    check_no_circle(graph)


@pytest.mark.parametrize("level", LEVELS)
def test_sums_of_a_real_graph(level: int) -> None:
    (schedule,) = lost_range().schedules
    check_sums(fold(list(schedule.nodes), level, *schedule.bufferizes), len(schedule.nodes))


# *** boxes of boxes


def make_graph(kinds: Sequence[str], edges: Sequence[tuple[int, int]]) -> Graph:
    nodes = tuple(GraphNode(f"n{i}", kind, (f"{i} {kind}",), "", (i,)) for i, kind in enumerate(kinds))
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
    return fold_graph(graph, look, label, "gathered", lambda boxes: boxes.gather(most))


def inside(gathered: Folded) -> list[list[int]]:
    """The numbers of the nodes of each box of several."""
    return sorted([int(name[1:]) for name in names] for names in gathered.contents.values())


def test_updates_of_parameters_are_one_box_and_so_are_buffers_with_the_same_readers() -> None:
    """Six times a gradient, its update and the buffer that it is written to."""
    kinds = ["loss"] + ["gradient", "update", "buffer"] * 6
    edges = [(0, 1 + 3 * n) for n in range(6)]
    edges += [edge for n in range(6) for edge in ((1 + 3 * n, 2 + 3 * n), (2 + 3 * n, 3 + 3 * n))]
    gathered = gather(make_graph(kinds, edges), 8)
    assert [node.lines[0] for node in gathered.graph.nodes] == ["0 loss", "18 nodes, 6 times"]
    assert [(edge.tail, edge.head) for edge in gathered.graph.edges] == [("n0", "n17")]
    kinds = ["buffer"] * 6 + ["one", "two"]
    gathered = gather(make_graph(kinds, [(n, 6 + n // 3) for n in range(6)]), 8)
    assert inside(gathered) == [[0, 1, 2], [3, 4, 5]]


def test_a_chain_is_joined_in_parts_of_one_length_and_equal_kernels_of_it_are_not() -> None:
    gathered = gather(make_graph([str(n // 8) for n in range(32)], [(n, n + 1) for n in range(31)]), 8)
    assert len(gathered.graph.nodes) == 8
    assert {len(names) for names in gathered.contents.values()} == {4}
    places = [{number // 8 for number in numbers} for numbers in inside(gathered)]
    assert set(map(len, places)) == {1}, "first what is of one place"
    # layers that are alike follow each other: they are not next to each other
    kinds = ["layer"] * 6
    gathered = gather(make_graph(kinds, [(n, n + 1) for n in range(5)]), 6)
    assert gathered.contents == {}


def test_nodes_with_findings_stay_alone_and_a_far_arrow_is_named_by_its_target() -> None:
    graph = make_graph(["alone" if n == 5 else "op" for n in range(12)], [(n, n + 1) for n in range(11)])
    added = replace(graph, nodes=tuple(replace(n, mark="added") if n.id == "n9" else n for n in graph.nodes))
    found = inside(gather(added, 2))
    assert not any({5, 9} & set(numbers) for numbers in found)
    assert [numbers for numbers in found if len(numbers) > 1] == [[0, 1, 2, 3, 4], [6, 7, 8], [10, 11]]
    graph = make_graph(["op"] * 9, [*((n, n + 1) for n in range(8)), (0, 8), (1, 8), (6, 8)])
    far = name_far_sources(graph)
    assert len(far.edges) == len(graph.edges) - 2
    assert far.nodes[8].lines[-1] == "also reads 0, 1"
    assert far.nodes[:8] == graph.nodes[:8]


def boxed_graphs() -> st.SearchStrategy[Graph]:
    kinds = st.lists(st.sampled_from(["op", "sum", "buffer", "alone"]), min_size=2, max_size=50)

    def build(kinds: list[str], steps: list[tuple[int, int]]) -> Graph:
        pairs = {(max(head - step, 0), head) for step, head in steps if 0 < head < len(kinds)}
        return make_graph(kinds, sorted(pair for pair in pairs if pair[0] != pair[1]))

    return st.builds(build, kinds, st.lists(st.tuples(st.integers(1, 20), st.integers(0, 49)), max_size=90))


@settings(deadline=None, max_examples=100)
@given(boxed_graphs(), st.integers(1, 30))
def test_gathering_makes_no_cycle_and_each_node_is_in_one_box(graph: Graph, most: int) -> None:
    gathered = gather(graph, most)
    check_no_circle(gathered.graph)
    shown = [name for node in gathered.graph.nodes for name in gathered.contents.get(node.id, (node.id,))]
    assert sorted(shown) == sorted(node.id for node in graph.nodes)
    of = {name: box for box, names in gathered.contents.items() for name in names}
    wanted = {(of.get(e.tail, e.tail), of.get(e.head, e.head)) for e in graph.edges}
    assert {(e.tail, e.head) for e in gathered.graph.edges} == {pair for pair in wanted if pair[0] != pair[1]}


def test_the_optimizer_is_one_box_and_what_the_model_reads_stays() -> None:
    """A loss, its gradients with their buffers, and the updates that write the weights."""
    kinds = ["buffer", "model", "buffer", "op", "buffer", "op", "buffer", "op", "sum", "buffer"]
    # a weight, forward, a gradient, two updates with their weights, a counter that the model reads, and its output
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (2, 5), (5, 6), (7, 8), (8, 9), (0, 3)]
    folded = fold_optimizer(make_graph(kinds, edges), lambda node: node.kind == "op", lambda nodes: ["3% of all ops"])
    assert inside(folded) == [[2, 3, 4, 5, 6]]
    (box,) = (node for node in folded.graph.nodes if node.kind == "optimizer")
    assert box.lines == ("the optimizer: 2 nodes", "3% of all ops")
    assert {(edge.tail, edge.head) for edge in folded.graph.edges} >= {("n1", box.id), ("n0", box.id), ("n0", "n1")}
    # one kernel is no box
    assert not fold_optimizer(
        make_graph(kinds[:5], edges[:4]), lambda node: node.kind == "op", lambda nodes: []
    ).contents


@settings(deadline=None, max_examples=100)
@given(boxed_graphs())
def test_a_box_of_the_optimizer_makes_no_cycle_and_loses_no_node(graph: Graph) -> None:
    folded = fold_optimizer(graph, lambda node: node.kind == "op", lambda nodes: [])
    check_no_circle(folded.graph)
    shown = [name for node in folded.graph.nodes for name in folded.contents.get(node.id, (node.id,))]
    assert sorted(shown) == sorted(node.id for node in graph.nodes)


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
    if stage == "tensor":
        drawn = sum(node["kind"] not in ("kept", "removed") for node in data["nodes"])
        assert sum(data["folded"].values()) + drawn == len(capture.schedules[0].nodes)


def test_a_small_schedule_is_drawn_as_it_is(tmp_path: Path) -> None:
    for stage in ("tensor", "kernels"):
        write_graph(lost_range(), tmp_path / "small.svg", stage=stage)
        assert "in boxes with others" not in (tmp_path / "small.svg").read_text("utf-8")
