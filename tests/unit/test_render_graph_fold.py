"""Folding loses no node without counting it, and never folds what the user must see."""

from __future__ import annotations

from typing import Any

import pytest
from captures import lost_range, make_capture, make_node, make_schedule
from hypothesis import given, settings
from hypothesis import strategies as st

from vmapdbg.diff.nodes import match_nodes
from vmapdbg.model.capture import Bufferize, Capture, Node, Realized
from vmapdbg.model.vocabulary import Outcome
from vmapdbg.page.graph.items import LEVELS, DrawnPair, DrawnSchedule, Folding, collect_items
from vmapdbg.page.graph.model import Graph, sort_names
from vmapdbg.page.graph.tensor import build_tensor_graph

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


def test_movement_ops_join_to_the_last() -> None:
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


def test_constants_are_named_by_their_readers() -> None:
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


def test_constant_that_is_the_output_is_drawn() -> None:
    assert keys(fold([make_node(0, "CONST", (), arg="1")])) == [["0"]]


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


def test_kept_buffer_of_index_arithmetic_is_drawn() -> None:
    nodes = [
        make_node(0, "CONST", (), arg="1"),
        make_node(1, "REDUCE_AXIS", src=(0,)),
        make_node(2, "ADD", src=(1,), realized=REALIZED),
    ]
    assert ["2"] in keys(fold(nodes, 0, keep(2)))


def draw_layers(nodes: list[Node]) -> Graph:
    graph = build_tensor_graph(side_of(nodes), 1, "title")
    assert len(graph.nodes) + sum(graph.folded.values()) == len(nodes)
    return graph


def test_repeated_layers_are_drawn_once() -> None:
    graph = draw_layers(layers(10))
    (repeat,) = [node for node in graph.nodes if node.kind == "repeat"]
    assert repeat.lines == ("layers 2-10: the same as layer 1", "27 nodes, 4 to 30")
    assert len([node for node in graph.nodes if node.kind == "reduce"]) == 1
    # the weights of the folded layers are folded with them; the weight of the first layer is drawn
    assert len([node for node in graph.nodes if node.kind == "input"]) == 2


def test_layers_of_a_gradient_are_folded_too() -> None:
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
def test_every_node_is_drawn_or_counted(nodes: list[Node], level: int, kept: bool) -> None:
    buffers = [keep(node.id, "kept" if kept else "removed") for node in nodes if node.realized is not None]
    check_sums(fold(nodes, level, *buffers), len(nodes))


@settings(deadline=None, max_examples=60)
@given(graphs(), st.sampled_from(LEVELS))
def test_folding_makes_no_circle(nodes: list[Node], level: int) -> None:
    """A group must come after all that it reads: else no layout has outputs below inputs."""
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
    heads: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    tails: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        heads[edge.tail].append(edge.head)
        tails[edge.head].append(edge.tail)
    place = {name: number for number, name in enumerate(sort_names(tails, heads))}
    assert all(place[edge.tail] < place[edge.head] for edge in graph.edges)


@pytest.mark.parametrize("level", LEVELS)
def test_sums_of_a_real_graph(level: int) -> None:
    capture: Capture = lost_range()
    pair = DrawnPair.of_one(DrawnSchedule(capture, capture.schedules[0]))
    check_sums(Folding(collect_items(pair), level), len(capture.schedules[0].nodes))


def test_equal_nodes_match_in_order_whatever_their_ids() -> None:
    before = [make_node(0, "BUFFER"), make_node(1, "ADD", src=(0,)), make_node(2, "ADD", src=(0,))]
    after = [make_node(5, "BUFFER"), make_node(6, "ADD", src=(5,)), make_node(9, "ADD", src=(5,))]
    assert match_nodes(make_schedule(nodes=tuple(before)), make_schedule(nodes=tuple(after))) == {0: 5, 1: 6, 2: 9}
    other = make_schedule(nodes=(make_node(0, "BUFFER", (3,)),))
    assert match_nodes(make_schedule(nodes=tuple(before)), other) == {}
