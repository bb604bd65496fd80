"""What `vmapdbg diff` finds: only what changed, all that changed, and by what is computed, not by names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
from captures import ALL_ON, lost_range, make_capture, make_kernel, make_node, make_schedule
from diff_captures import diff_pair, disguise_capture, draw_capture, mutate_capture
from hypothesis import given
from hypothesis import strategies as st

from vmapdbg.bisect.outcome import Outcomes
from vmapdbg.diff import pairing
from vmapdbg.diff.captures import diff_captures, leave_unstable
from vmapdbg.diff.nodes import match_nodes, match_schedules
from vmapdbg.diff.pairing import find_opcodes
from vmapdbg.diff.result import CaptureDiff
from vmapdbg.diff.source import align_sources, canonize_source, keep_near
from vmapdbg.diff.values import compare_printed
from vmapdbg.install.job import Run
from vmapdbg.model.capture import (
    Bufferize,
    Capture,
    Kernel,
    Node,
    Output,
    Range,
    Realized,
    Reason,
    Schedule,
    SnippetError,
)
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import dump_compact, load_capture

GOLDEN = Path(__file__).parent.parent / "golden"
SEEDS = st.integers(0, 10**6)


def kernels_of(diff: CaptureDiff) -> list[tuple[str, list[int], list[int]]]:
    return [
        (item.status, [side.number for side in item.before], [side.number for side in item.after])
        for schedule in diff.schedules
        for item in schedule.kernels
    ]


def schedule_of(*nodes: Node, **changes: Any) -> Capture:
    return make_capture(make_schedule(nodes=nodes, **changes))


def compare_kernels(before: list[Kernel], after: list[Kernel]) -> list[tuple[str, list[int], list[int]]]:
    nodes = tuple(make_node(i, "ADD", arg=str(i)) for i in range(12))
    sides = [make_capture(make_schedule(nodes=nodes, kernels=tuple(side))) for side in (before, after)]
    return kernels_of(diff_pair(sides))


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.json")), ids=lambda file: file.name)
def test_a_real_capture_does_not_differ_from_itself_by_any_name_number_or_order(file: Path) -> None:
    capture = load_capture(file)
    diff = diff_captures(capture, capture)
    assert diff.is_empty
    assert all(item.matched_by == "outputs" for schedule in diff.schedules for item in schedule.kernels)
    for seed in range(5):
        assert diff_captures(capture, disguise_capture(capture, seed)).is_empty, seed


@given(draw_capture(), SEEDS)
def test_names_numbers_and_order_are_not_a_change(capture: Capture, seed: int) -> None:
    assert diff_captures(capture, capture, ("a\n", "a\n")).is_empty
    diff = diff_captures(capture, disguise_capture(capture, seed))
    assert diff.is_empty, [item for item in diff.schedules if not item.is_empty]


@given(draw_capture(), SEEDS)
def test_added_nodes_are_removed_nodes_if_the_sides_are_swapped(capture: Capture, seed: int) -> None:
    other = mutate_capture(capture, seed)
    there, back = diff_captures(capture, other), diff_captures(other, capture)
    swap = {"only-before": "only-after", "only-after": "only-before", "fused-from": "split-into"}
    swap |= {"split-into": "fused-from"}
    count = Counter(item.status for schedule in there.schedules for item in schedule.kernels)
    mirrored = Counter(swap.get(item.status, item.status) for schedule in back.schedules for item in schedule.kernels)
    assert count == mirrored
    for side, mirror in (("nodes", "nodes"), ("nodes_only_before", "nodes_only_after"), ("vmap_map", "vmap_map")):
        found = sum(len(getattr(item, side)) for item in there.schedules)
        assert found == sum(len(getattr(item, mirror)) for item in back.schedules)
    added = sum(len(part.added_ranges) for item in there.schedules for part in item.bufferizes)
    assert added == sum(len(part.removed_ranges) for item in back.schedules for part in item.bufferizes)
    assert there.is_empty == back.is_empty


@given(draw_capture(), SEEDS)
def test_every_kernel_is_in_the_diff_and_the_same_input_gives_the_same_bytes(capture: Capture, seed: int) -> None:
    other = mutate_capture(capture, seed)
    diff = diff_captures(capture, other)
    assert dump_compact(diff) == dump_compact(diff_captures(capture, other))
    for schedule in diff.schedules:
        if schedule.before is None:
            continue
        shown = {side.number for item in schedule.kernels for side in item.before}
        assert shown == set(range(len(capture.schedules[schedule.before].kernels)))


def test_a_lost_range_is_found() -> None:
    diff = diff_captures(lost_range(fixed=False), lost_range())
    assert diff.before.patches["ambient-ranges"] is False
    schedule = diff.schedules[0]
    changed = [item for item in schedule.bufferizes if item.status != "unchanged"]
    assert [(item.op, item.added_ranges, item.removed_ranges) for item in changed] == [("ADD", ("rm1",), ())]
    assert (changed[0].lost_before, changed[0].lost_after) == (("rm1",), ())
    assert changed[0].changed == ("closed_ranges", "ambient", "size", "bytes")
    assert [item.status for item in schedule.kernels] == ["changed", "changed"]
    assert schedule.nodes == ()


# *** nodes

READ_TWICE = (make_node(0, "BUFFER"), make_node(1, "EXPAND", src=(0,)))


def test_another_decision_another_rule_and_another_kind_of_range_are_changes() -> None:
    why = Realized((0,), "ending-ranges", "r0 ends at EXPAND 1")
    nodes = (*READ_TWICE, make_node(2, "ADD", src=(0,), realized=why))
    after = (*nodes[:2], replace(nodes[2], realized=None))
    (change,) = diff_captures(schedule_of(*nodes), schedule_of(*after)).schedules[0].nodes
    assert (change.changed, change.before.realized, change.after.realized) == (("realized",), why, None)
    kept = Bufferize(1, ("r0",), (), 4, 16, "GLOBAL", "kept", "")
    reasons = (Reason("many-buffers", numbers={"buffers": 4}), Reason("reduce-reads-buffer", numbers={"reduces": 1}))
    diff = diff_pair(schedule_of(*READ_TWICE, bufferizes=(replace(kept, decided=reason),)) for reason in reasons)
    assert [item.changed for item in diff.schedules[0].bufferizes] == [("reason",)]
    node = make_node(0, "ADD", ranges=("r0",))
    sides = [schedule_of(node, ranges=(Range("r0", 4, kind, False),)) for kind in ("LOOP", "REDUCE")]
    diff = diff_pair(sides).schedules[0]
    assert [item.changed for item in diff.nodes] == [("in_ranges", "out_ranges")]
    assert [item.name for item in diff.added_ranges] == ["r0"]


def test_reasons_that_name_other_numbers_or_no_operands_are_not_a_change() -> None:
    """That a node or a range has another number on the other side is no other reason."""
    why = Realized((0,), "ending-ranges", "r0 ends at EXPAND 1", (Reason("ending-ranges", (1,), ("r0",)),))
    nodes = (*READ_TWICE, make_node(2, "ADD", src=(0,), realized=why))
    moved = (
        make_node(0, "BUFFER"),
        make_node(1, "ADD", src=(0,), realized=replace(why, reasons=(Reason("ending-ranges", (2,), ("r7",)),))),
        make_node(2, "EXPAND", src=(0,)),
    )
    before = make_schedule(nodes=nodes, ranges=(Range("r0", 4, "LOOP", False),))
    after = make_schedule(nodes=moved, ranges=(Range("r7", 4, "LOOP", False),))
    assert match_nodes(before, after) == {0: 0, 1: 2, 2: 1}
    assert diff_captures(make_capture(before), make_capture(after)).is_empty
    # it has no operands: its nodes and ranges have the numbers of their own side
    new = Realized((0,), "ending-ranges", "r0 ends at EXPAND 1", (Reason("ending-ranges", (1,), ("r0",)),))
    old = replace(new, detail="r3 ends at EXPAND 9", reasons=())
    adds = [make_node(2, "ADD", src=(0,), realized=why) for why in (old, new)]
    assert diff_pair(schedule_of(*READ_TWICE, add) for add in adds).is_empty
    stock = Realized((0,), "stock", "stock tinygrad does not say why")
    known = Realized((0,), "ending-ranges", "r0 ends")
    assert diff_pair(schedule_of(make_node(0, "ADD", realized=why)) for why in (stock, known)).is_empty


@pytest.mark.parametrize(
    "other",
    [
        Reason("ending-ranges", (0,), ("r0",)),
        Reason("ending-ranges", (1,), ("r1",)),
        Reason("consumers-disagree", (1,), ("r0",), axis=0),
    ],
)
def test_another_operand_is_another_reason(other: Reason) -> None:
    ranges = (Range("r0", 4, "LOOP", False), Range("r1", 8, "LOOP", False))
    sides = []
    for reason in (Reason("ending-ranges", (1,), ("r0",)), other):
        realized = Realized((0,), "ending-ranges", "", (reason,))
        sides.append(schedule_of(*READ_TWICE, make_node(2, "ADD", src=(0,), realized=realized), ranges=ranges))
    assert [item.changed for item in diff_captures(*sides).schedules[0].nodes] == [("realized",)]


def test_equal_nodes_are_distinguished_by_their_readers_and_then_by_their_order() -> None:
    sides = []
    for first, second in ((0, 1), (1, 0)):
        buffers = (make_node(first, "BUFFER"), make_node(second, "BUFFER"))
        nodes = (*buffers, make_node(2, "NEG", src=(first,)), make_node(3, "EXP2", src=(second,)))
        sides.append(make_schedule(nodes=nodes))
    assert match_nodes(*sides) == {0: 1, 1: 0, 2: 2, 3: 3}
    # else they match in order, whatever their ids
    before = [make_node(0, "BUFFER"), make_node(1, "ADD", src=(0,)), make_node(2, "ADD", src=(0,))]
    after = [make_node(5, "BUFFER"), make_node(6, "ADD", src=(5,)), make_node(9, "ADD", src=(5,))]
    assert match_nodes(make_schedule(nodes=tuple(before)), make_schedule(nodes=tuple(after))) == {0: 5, 1: 6, 2: 9}
    other = make_schedule(nodes=(make_node(0, "BUFFER", (3,)),))
    assert match_nodes(make_schedule(nodes=tuple(before)), other) == {}


# *** schedules


def test_schedules_are_matched_by_content_or_line() -> None:
    first, second, third = (make_schedule(i, nodes=(make_node(0, "ADD", arg=str(i)),)) for i in range(3))
    assert match_schedules([first, second, third], [third, first]) == [(1, None, ""), (2, 0, "graph"), (0, 1, "line")]
    # a schedule that was refused is matched by its line
    whole = make_schedule(0, line="a.py:3", nodes=(make_node(0, "ADD"),))
    assert match_schedules([make_schedule(0, line="a.py:3")], [whole]) == [(0, 0, "line")]


def asked_for(*places: str) -> list[Schedule]:
    """Schedules like `3A`: at line 3, with graph A. The output of each has the value of its place."""
    made: list[Schedule] = []
    for index, (line, graph) in enumerate(places):
        output = Output((1,), "float", line + graph, (float(line),))
        made.append(make_schedule(index, line=f"a.py:{line}", nodes=(make_node(0, graph),), outputs=(output,)))
    return made


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        # one release copies what is read, and another copies what is written
        (("1A", "9B"), ("1B", "9A"), [(0, 0, "line"), (1, 1, "line")]),
        # an edit that changes every node of what the line computes
        (("1A", "5B"), ("1A", "5C"), [(0, 0, "line"), (1, 1, "line")]),
        # which of the equal ones is missing is not known
        (("1A", "1A", "1A"), ("1A", "1A"), [(0, 0, "graph"), (1, 1, "graph"), (2, None, "")]),
        (("1A", "1B", "1C"), ("1A", "1C"), [(0, 0, "line"), (1, None, ""), (2, 1, "line")]),
        # equal graphs of two lines are paired, but not compared
        (("1A", "3B"), ("1A", "4B"), [(0, 0, "line"), (1, 1, "graph")]),
    ],
)
def test_only_values_of_the_same_line_and_order_are_compared(before: tuple, after: tuple, pairs: list) -> None:
    """A gradient would be compared with a weight of the same shape."""
    sides = asked_for(*before), asked_for(*after)
    assert match_schedules(*sides) == pairs
    diff = diff_pair(make_capture(*side) for side in sides)
    compared = [item.paired_by for item in diff.schedules for output in item.outputs if not output.left]
    assert compared == [by for *_, by in pairs if by == "line"]


def test_a_saved_run_of_an_edited_program_is_compared_in_order() -> None:
    """A line that is added above moves all others: an equal number is another statement."""
    before, after = (make_capture(*asked_for(*places)) for places in (("5A", "6A"), ("6A", "7A")))
    assert [item.paired_by for item in diff_captures(before, after).schedules] == ["line", "graph"]
    saved = diff_captures(before, after, names=("before.json", ""))
    assert [(item.before, item.after, item.paired_by) for item in saved.schedules] == [(0, 0, "order"), (1, 1, "order")]
    more = make_capture(*asked_for("4B", "6A", "7A"))
    saved = diff_captures(before, more, names=("before.json", "after.json"))
    assert {output.left for item in saved.schedules for output in item.outputs} == {"one-side", "not-paired"}
    # a side that ended early has fewer lines
    broken = replace(before, schedules=before.schedules[:1], error=SnippetError("ValueError", "", None))
    saved = diff_captures(broken, before, names=("before.json", ""))
    assert [item.paired_by for item in saved.schedules] == ["line", ""]


def test_outputs_are_not_compared_if_a_side_has_more_of_them() -> None:
    one, two = (Output((1,), "float", digest, (1.0,)) for digest in "ab")
    diff = diff_pair(make_capture(make_schedule(outputs=outputs)) for outputs in ((one, two), (two,)))
    assert [item.left for item in diff.schedules[0].outputs] == ["output-count"] * 2


def test_a_copy_has_the_rounding_of_what_it_copies() -> None:
    """A gradient that is summed in another order would be a change where the program reads it."""
    summed = make_schedule(0, ranges=(Range("r0", 4096, "REDUCE", False),))
    copies = [make_schedule(1, outputs=(Output((1,), "float", str(value), (value,)),)) for value in (1.0, 1.00001)]
    assert diff_pair(map(make_capture, copies)).values == "different"
    assert diff_pair(make_capture(summed, copy) for copy in copies).values == "close"


def test_a_side_that_ended_early_has_fewer_schedules_and_other_labels_are_not_a_change() -> None:
    whole = lost_range()
    broken = replace(whole, schedules=(), error=SnippetError("ChildDied", "killed by SIGSEGV", None))
    diff = diff_captures(broken, whole)
    assert not diff.is_empty
    assert [(item.before, item.after) for item in diff.schedules] == [(None, 0)]
    assert diff.before.error == broken.error
    capture = lost_range()
    other = replace(capture, patches={**ALL_ON, "close-ranges": False}, snippet="other.py")
    diff = diff_captures(capture, other)
    assert diff.is_empty
    assert not diff.same_snippet


# *** kernels


def test_the_kernels_that_became_one_are_named() -> None:
    before = [
        make_kernel("r_a", nodes=(0, 1), outputs=(1,), key="a"),
        make_kernel("r_b", nodes=(2, 3), outputs=(3,), key="b"),
        make_kernel("E_c", nodes=(4, 5), outputs=(5,), key="c"),
    ]
    after = [make_kernel("r_abc", nodes=(0, 1, 2, 3, 4, 5), outputs=(5,), key="d")]
    assert compare_kernels(before, after) == [("fused-from", [0, 1, 2], [0])]
    assert compare_kernels(after, before) == [("split-into", [0], [0, 1, 2])]
    # a value that each reader computes again is in both
    before = [
        make_kernel("r", nodes=(0,), outputs=(0,)),
        make_kernel("x", nodes=(1,), outputs=(1,)),
        make_kernel("y", nodes=(2,), outputs=(2,)),
    ]
    after = [make_kernel("x", nodes=(0, 1), outputs=(1,)), make_kernel("y", nodes=(0, 2), outputs=(2,))]
    assert compare_kernels(before, after) == [("fused-from", [0, 1], [0]), ("fused-from", [0, 2], [1])]


def test_kernels_are_matched_by_what_they_write_else_by_source_and_not_by_name() -> None:
    one, two = make_kernel("E_4", outputs=(1,), key="a"), make_kernel("E_4n1", outputs=(2,), key="b")
    swapped = [replace(two, name="E_4"), replace(one, name="E_4n1")]
    assert compare_kernels([one, two], swapped) == [("unchanged", [1], [0]), ("unchanged", [0], [1])]
    before = [make_kernel("E_4", "void E_4(float* data0_4) {\n  int alu0 = 1;\n}\n")]
    after = [make_kernel("x"), make_kernel("E_4n1", "void E_4n1(float* data0_4) {\n  int alu7 = 1;\n}\n")]
    assert compare_kernels(before, after) == [("only-after", [], [0]), ("unchanged", [0], [1])]
    # another launch of the same AST is a change
    kernel = make_kernel("r_4", outputs=(1,), key="a")
    assert compare_kernels([kernel], [replace(kernel, threads=64, global_size=(64, 1, 1))]) == [("changed", [0], [0])]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("int alu0 = val1;", "int alu3 = val0;", True),
        ("for (int Lidx0 = 0;;) f(Lidx0);", "for (int Lidx2 = 0;;) f(Lidx2);", True),
        ("r_4(data0_6)", "r_5(data1_6)", True),
        ("r_4(data0_2)", "r_5(data0_6)", False),
        ("alu0 = alu1;", "alu0 = alu0;", False),
        ("float4 val0;", "float2 val0;", False),
        ("Lidx0 = 1;", "Ridx0 = 1;", False),
    ],
)
def test_renamed_variables_are_the_same_source(before: str, after: str, same: bool) -> None:
    assert (canonize_source(before, "r_4") == canonize_source(after, "r_5")) == same
    assert all(pair.is_same for pair in align_sources(before, after, {"r_4", "r_5"})) == same


def test_marks_are_inside_the_line() -> None:
    (pair,) = align_sources("*(data0_2+0) = (val3+val0);", "*(data0_6+alu0) = (val3+val0);", ())
    assert pair.before is not None
    assert pair.after is not None
    assert [pair.before[slice(*mark)] for mark in pair.marks_before] == ["data0_2", "0"]
    assert [pair.after[slice(*mark)] for mark in pair.marks_after] == ["data0_6", "alu0"]


@given(st.text("ab01(){}\n alu_", max_size=60), st.text("ab01(){}\n alu_", max_size=60))
def test_no_line_gets_lost(before: str, after: str) -> None:
    pairs = list(align_sources(before, after, ()))
    assert [pair.before for pair in pairs if pair.before is not None] == before.strip("\n").split("\n")
    assert [pair.after for pair in pairs if pair.after is not None] == after.strip("\n").split("\n")


def test_lines_far_from_a_change_are_counted_where_they_are_left_out() -> None:
    assert list(keep_near("abcdefg", [3], 1)) == [(2, "c"), (0, "d"), (0, "e"), (2, None)]
    # two sources that differ in names only
    assert list(keep_near("abc", [], 1)) == [(3, None)]


# *** values


def compare_values(before: tuple, after: tuple, dtype: str = "float", shape: tuple[int, ...] | None = None):
    outputs = [Output(shape or (len(side),), dtype, repr(side), side) for side in (before, after)]
    diff = diff_pair(make_capture(make_schedule(outputs=(item,))) for item in outputs)
    return diff.schedules[0].outputs[0]


@pytest.mark.parametrize(
    ("before", "after", "dtype", "status"),
    [
        ((1.0, 2.0), (1.0, 2.0), "float", "equal"),
        ((1.0, 2.0), (1.0, 2.000001), "float", "close"),
        ((1.0, 2.0), (1.0, 2.000001), "double", "different"),
        ((1.0, 2.0), (1.0, 2.001), "half", "close"),
        ((1.0, "nan"), (1.000001, "nan"), "float", "close"),
        ((1.0, "inf"), (1.0, "-inf"), "float", "different"),
        ((1.0, "inf"), (1.0, "nan"), "float", "different"),
        ((1.0, 2.0), (1.0, 3.0), "int", "different"),
    ],
)
def test_values(before: tuple, after: tuple, dtype: str, status: str) -> None:
    assert compare_values(before, after, dtype).status == status


def test_the_first_different_element_is_named_if_it_is_sampled() -> None:
    found = compare_values((7.0, 19.0, 7.0, 19.0), (7.0, 15.0, 7.0, 17.0), shape=(2, 2))
    assert (found.first, found.index, found.value_before, found.value_after) == (1, (0, 1), 19.0, 15.0)
    assert (found.different, found.sampled, found.max_absolute) == (2, 4, 4.0)
    sides = [Output((4096,), "int", digest, (1.0,) * 1024) for digest in ("aa", "bb")]
    diff = diff_pair(make_capture(make_schedule(outputs=(item,))) for item in sides)
    assert diff.values == "different"
    assert diff.schedules[0].outputs[0].first is None
    one = Output((1,), "float", "aa", (1.0,))
    diff = diff_captures(make_capture(make_schedule(outputs=(one,))), make_capture(make_schedule()))
    assert (diff.values, diff.is_empty) == ("unknown", True)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [("a\nb\n", "a\nc\n", (2, "b", "c")), ("a\n", "a\nb\n", (2, None, "b")), ("", "x", (1, None, "x"))],
)
def test_printed_lines_that_differ(before: str, after: str, line: tuple) -> None:
    found = diff_captures(lost_range(), lost_range(), (before, after))
    assert not found.is_empty
    assert found.printed is not None
    assert (found.printed.line, found.printed.before, found.printed.after) == line


# *** the same program twice


def runs_of(*values: tuple[float, float]) -> list[Capture]:
    """Runs whose first and second schedule have an output with these values."""
    made: list[Capture] = []
    for run in values:
        outputs = [Output((1,), "float", str(value), (value,)) for value in run]
        made.append(make_capture(*(make_schedule(i, outputs=(output,)) for i, output in enumerate(outputs))))
    return made


def test_what_two_runs_of_before_do_differently_is_no_change() -> None:
    """A program that reads the clock would have other values than itself."""
    before, after, again = runs_of((1.0, 5.0), (2.0, 5.0), (3.0, 5.0))
    found = leave_unstable(diff_captures(before, after), diff_captures(before, again), ("1\n", "2\n", "3\n"))
    assert [item.outputs[0].left for item in found.schedules] == ["not-deterministic", ""]
    assert (found.values, found.is_empty) == ("equal", True)
    before, after, again = runs_of((1.0, 5.0), (2.0, 6.0), (3.0, 5.0))
    found = leave_unstable(diff_captures(before, after), diff_captures(before, again), ("1\n", "2\n", "3\n"))
    assert (found.values, found.is_empty) == ("different", False)
    # a schedule of every other run
    again = replace(again, schedules=(*again.schedules, make_schedule(2, nodes=READ_TWICE)))
    more = replace(before, schedules=again.schedules)
    found = leave_unstable(diff_captures(before, more), diff_captures(before, again), ("", "", ""))
    assert [item.not_deterministic for item in found.schedules] == [False, False, True]


@pytest.mark.parametrize(
    ("before", "after", "again", "line"),
    [
        ("a\n1\nb", "a\n2\nb", "a\n3\nb", None),
        ("a\n1\nb", "a\n2\nc", "a\n3\nb", 3),
        ("a\n1\nb", "c\n2\nb", "a\n3", 1),
        ("a\n1\nb", "a\n2\nc", "a\n3", None),
    ],
)
def test_a_line_that_differs_in_each_run_is_no_change(before: str, after: str, again: str, line: int | None) -> None:
    found = compare_printed(before, after, again)
    assert (found.equal, found.line, found.left) == (False, line, "not-deterministic" if line is None else "")


def test_bisect_compares_what_is_the_same_in_two_runs() -> None:
    """Each patch would be blamed for a value that is the time."""
    first, second, third, other = (Run(capture) for capture in runs_of((1.0, 5.0), (2.0, 5.0), (3.0, 5.0), (4.0, 6.0)))
    outcomes = Outcomes("values", lambda capture: capture)
    assert [outcomes.sort_in(run, lambda: second) for run in (first, third, other)] == ["A", "A", "B"]
    assert [item.summary for item in outcomes.known] == [
        "2 values, 1 not deterministic and not compared",
        "1 output differs: output 0 of schedule 1 at [0]: 6.0, in A 5.0",
    ]
    outcomes = Outcomes("values", lambda capture: capture)
    outcomes.sort_in(first, lambda: other)
    with pytest.raises(Failure, match="not deterministic"):
        outcomes.sort_in(second)


# *** long sequences


@given(*2 * [st.lists(st.sampled_from("abc"), max_size=24)])
def test_long_sequences_are_matched_as_difflib_does(before: list[str], after: list[str]) -> None:
    """A wrong stretch would mark what did not change, or pair lines that have nothing in common."""
    expected = SequenceMatcher(None, before, after, autojunk=False)
    assert list(find_opcodes(before, after)) == expected.get_opcodes()


def test_same_pattern_is_compared_once() -> None:
    """24 layers of a network would take 24 times as long."""
    pairing._compare_numbers.cache_clear()
    assert find_opcodes("xyz", "xz") == find_opcodes((7, 8, 9), (7, 9))
    assert pairing._compare_numbers.cache_info().hits == 1
