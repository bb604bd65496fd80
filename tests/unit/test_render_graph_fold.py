"""Folding loses no node without counting it, and never folds what the user must see.

A training step is folded into the user's functions without a circle.
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

from vmapdbg.model.capture import Bufferize, Function, Node, Realized
from vmapdbg.model.vocabulary import Outcome, StageName
from vmapdbg.page.graph.fold import Folded, Subject, fold_graph, name_far_sources
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
    assert repeat.lines[:2] == ("layers 2-10", "the same 2 nodes as layer 1")
    assert set(repeat.members) == set(range(4, 31))
    assert len([node for node in graph.nodes if node.kind == "reduce"]) == 1
    # the weights of the folded layers are folded with them; the weight of the first layer is drawn
    assert len([node for node in graph.nodes if node.kind == "input"]) == 2
    nodes = layers(10)
    for _ in range(8):
        last = nodes[-1].id
        nodes += [make_node(last + 1, "SQRT", src=(last,)), make_node(last + 2, "ADD", src=(last + 1, 0))]
    repeats = [node.lines[0] for node in draw_layers(nodes).nodes if node.kind == "repeat"]
    assert repeats == ["layers 2-10", "layers 2-8"]


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


# *** functions as boxes


Way = tuple[str, int]
"""The phase of a node, and the line that makes it: lines 1 to 9 are of `main`, 10 to 19 of `layer`; main calls it."""


def make_graph(ways: Sequence[Way], edges: Sequence[tuple[int, int]], **kinds: str) -> tuple[Graph, Subject]:
    """Nodes `n0`, `n1`, ... with the arrows between them. Nodes of one line and phase are equal."""
    made: list[Node] = []
    for number, (phase, line) in enumerate(ways):
        function = None if line == 0 else line // 10
        place = f"net.py:{line}" if line else None
        made.append(make_node(number, "ADD", phase=phase or None, line=place, function=function))
    nodes = tuple(GraphNode(f"n{n}", kinds.get(f"n{n}", "op"), (f"{n} op",), "", (n,)) for n in range(len(ways)))
    arrows = tuple(GraphEdge(f"n{a}", f"n{b}") for a, b in edges)
    functions = (Function("main", "net.py", None), Function("layer", "net.py", 0))
    capture = replace(make_capture(make_schedule(nodes=tuple(made))), functions=functions)
    pair = DrawnPair.of_one(DrawnSchedule(capture, capture.schedules[0]))
    subject = Subject(
        pair,
        lambda node: made[node.members[-1]],
        lambda node: ways[int(node.id[1:])],
        lambda nodes: [f"{len(nodes)} here"],
    )
    return Graph("tensor", "t", nodes, arrows, (), (), {}, {}), subject


def chain(count: int) -> list[tuple[int, int]]:
    return [(number, number + 1) for number in range(count - 1)]


def inside(folded: Folded) -> list[list[int]]:
    """The numbers of the nodes of each box of several."""
    return sorted(sorted(int(name[1:]) for name in names) for names in folded.members.values())


def say(folded: Folded) -> list[str]:
    return [node.lines[0] for node in folded.graph.nodes]


FORWARD: list[Way] = [("forward", 2), *[("forward", 12), ("forward", 13)] * 4, ("forward", 4)]
STEP: list[Way] = [*FORWARD, *[("backward", 13), ("backward", 12)] * 4, *[("optimizer", 5)] * 8]
STEP_EDGES = [*chain(18), *((10 + n, 18 + n) for n in range(8)), *((n, 10 + n) for n in range(1, 9))]


def test_boxes_are_functions_and_the_optimizer_is_one_box() -> None:
    """Forward, backward and the updates of a network: a picture with few boxes has the functions, as the tree has."""
    folded = fold_graph(*make_graph(STEP, STEP_EDGES), most=6)
    assert say(folded) == ["0 op", "layer (x4)", "9 op", "layer (x4)", "the optimizer"]
    assert [node.lines[1:3] for node in folded.graph.nodes if node.kind == "folded"] == [
        ("8 nodes, forward", "8 here"),
        ("8 nodes, backward", "8 here"),
    ]
    assert inside(folded) == [[*range(1, 9)], [*range(10, 18)], [*range(18, 26)]]


def test_a_function_is_opened_if_there_is_room_and_its_layers_are_drawn_once() -> None:
    folded = fold_graph(*make_graph(STEP, STEP_EDGES), most=20)
    assert say(folded) == [
        "0 op",
        "1 op",
        "2 op",
        "layer layers 2-4",
        "9 op",
        "10 op",
        "11 op",
        "layer layers 2-4",
        "the optimizer",
    ]
    assert folded.graph.nodes[3].lines[1] == "the same 2 nodes as layer 1"
    # opened, the box shows one of the layers
    assert folded.contents["n8"] == ["n7", "n8"]
    # the layers and the optimizer are boxes in every drawing that is folded
    assert say(fold_graph(*make_graph(STEP, STEP_EDGES))) == say(folded)
    # the inside of a box is opened in its turn
    ways = [("optimizer", 5)] * 4
    assert say(fold_graph(*make_graph(ways, chain(4)))) == ["0 op", "1 op", "2 op", "3 op"]


def test_a_function_that_is_left_and_entered_again_is_two_boxes() -> None:
    """Else a box would read what reads it."""
    ways = [("forward", line) for line in (12, 13, 2, 12, 13)]
    folded = fold_graph(*make_graph(ways, chain(5)), most=3)
    assert say(folded) == ["layer", "2 op", "layer"]
    # a line that does not wait for what is between is in the first box
    assert inside(fold_graph(*make_graph(ways, [(0, 1), (1, 2), (3, 4)]), most=2)) == [[0, 1, 3, 4]]


def test_of_a_function_with_too_many_parts_those_that_follow_each_other_are_boxes() -> None:
    ways = [("forward", 1 + int(digit) % 9) for digit in str(3**130)[:60]]
    folded = fold_graph(*make_graph(ways, chain(60)), most=12)
    assert 6 <= len(folded.graph.nodes) <= 12
    boxes = [node.lines[0] for node in folded.graph.nodes if node.kind == "folded"]
    assert any("," in line for line in boxes)
    assert all(line.startswith("net.py:") and line.endswith(" main") for line in boxes)
    check_no_circle(folded.graph)


def test_a_buffer_is_in_the_box_of_the_node_that_makes_it_else_of_its_first_reader() -> None:
    """A weight that forward and backward read is not from forward: no arrow says so."""
    ways = [("", 0), ("forward", 12), ("", 0), ("forward", 12), ("backward", 12), ("backward", 12)]
    edges = [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5)]
    folded = fold_graph(*make_graph(ways, edges, n0="input", n2="kept"), most=2)
    assert inside(folded) == [[0, 1, 2, 3], [4, 5]]
    assert folded.graph.edges == ()
    # a drawing that is not full shows each buffer
    assert len(fold_graph(*make_graph(ways, edges, n0="input", n2="kept")).graph.edges) == len(edges)


def test_nodes_with_findings_and_of_one_side_stay_alone_and_a_far_arrow_is_named_by_its_target() -> None:
    graph, subject = make_graph([("forward", 12)] * 12, chain(12))
    marked = tuple(replace(n, mark="added" if n.id == "n9" else n.mark, alert=n.id == "n5") for n in graph.nodes)
    found = inside(fold_graph(replace(graph, nodes=marked), subject, most=5))
    assert found == [[0, 1, 2, 3, 4], [6, 7, 8], [10, 11]]
    graph, _ = make_graph([("", 0)] * 9, [*chain(9), (0, 8), (1, 8), (6, 8)])
    far = name_far_sources(graph)
    assert len(far.edges) == len(graph.edges) - 2
    assert far.nodes[8].lines[-1] == "also reads 0, 1"
    assert far.nodes[:8] == graph.nodes[:8]


def boxed_graphs() -> st.SearchStrategy[tuple[Graph, Subject]]:
    phases = st.sampled_from(["forward", "backward", "optimizer", ""])
    ways = st.lists(st.tuples(phases, st.sampled_from([0, 2, 3, 12, 13])), min_size=2, max_size=50)
    kinds = st.lists(st.sampled_from(["op", "op", "buffer", "kept", "vmapin"]), min_size=50, max_size=50)

    def build(ways: list[Way], kinds: list[str], steps: list[tuple[int, int]]) -> tuple[Graph, Subject]:
        pairs = {(max(head - step, 0), head) for step, head in steps if 0 < head < len(ways)}
        named = {f"n{number}": kind for number, kind in enumerate(kinds)}
        return make_graph(ways, sorted(pair for pair in pairs if pair[0] != pair[1]), **named)

    return st.builds(build, ways, kinds, st.lists(st.tuples(st.integers(1, 20), st.integers(0, 49)), max_size=90))


@settings(deadline=None, max_examples=200)
@given(boxed_graphs(), st.sampled_from([None, 1, 3, 8, 30]))
def test_folding_makes_no_circle_and_each_node_is_in_one_box(made: tuple[Graph, Subject], most: int | None) -> None:
    graph, subject = made
    folded = fold_graph(graph, subject, most)
    check_no_circle(folded.graph)
    of = {name: box for box, names in folded.members.items() for name in names}
    alone = {
        name for node in folded.graph.nodes for name in [f"n{n}" for n in node.members] if node.id not in folded.members
    }
    assert sorted([*of, *alone]) == sorted(node.id for node in graph.nodes)
    assert all(set(names) <= set(folded.members[box]) for box, names in folded.contents.items())
    # no arrow is new
    of |= {f"n{n}": node.id for node in folded.graph.nodes for n in node.members}
    wanted = {(of[edge.tail], of[edge.head]) for edge in graph.edges}
    assert {(edge.tail, edge.head) for edge in folded.graph.edges} <= wanted


@pytest.mark.parametrize("stage", ["tensor", "kernels"])
def test_a_training_step_is_folded_to_what_one_can_look_at(stage: StageName, tmp_path: Path) -> None:
    notes = write_graph(training_step(), tmp_path / "out.svg", stage=stage)
    drawn = (tmp_path / "out.svg").read_text("utf-8").count('class="node"')
    assert drawn <= 60
    assert any("in boxes of functions" in note for note in notes)
    assert any("--around NODE" in note for note in notes)


@pytest.mark.parametrize(("stage", "last"), [("tensor", 4), ("kernels", 2)])
def test_a_box_says_how_many_there_are_and_where(stage: StageName, last: int, tmp_path: Path) -> None:
    capture = training_step()
    write_graph(capture, tmp_path / "out.json", stage=stage, fold=last)
    data: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    (box,) = [node for node in data["nodes"] if node["lines"][0] == "net.py:30"]
    assert box["lines"][1] == f"30 {'kernel' if stage == 'kernels' else 'node'}s"
    assert set(range(13, 73, 2)) <= set(box["members"])
    if stage == "tensor":
        drawn = sum(node["kind"] not in ("kept", "removed") for node in data["nodes"])
        assert sum(data["folded"].values()) + drawn == len(capture.schedules[0].nodes)
    else:
        assert box["lines"][2] == "270 ops, 42% of all"


def test_a_small_schedule_is_drawn_as_it_is(tmp_path: Path) -> None:
    for stage in ("tensor", "kernels"):
        write_graph(lost_range(), tmp_path / "small.svg", stage=stage)
        assert "in boxes of functions" not in (tmp_path / "small.svg").read_text("utf-8")
