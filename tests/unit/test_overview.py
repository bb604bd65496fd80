"""The overview of a long run: what it counts, what it ranks, when it is shown, and what a selection leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captures import long_graph, make_capture, make_kernel, make_node, make_schedule, many_schedules
from rendered import flatten, print_to_text

from vmapdbg.diff.result import ScheduleDiff
from vmapdbg.lint import lint_capture
from vmapdbg.model.capture import Bufferize, Capture, Decision, Measured, Realized, Reason
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import find_distinct, is_line
from vmapdbg.page.overview import count_lines, count_methods, count_rules, group_kernels, is_long
from vmapdbg.page.text.run import print_capture, print_overview
from vmapdbg.page.view import View, select_kernels, select_line
from vmapdbg.page.why import explain

MATMUL = make_kernel("r_64", key="aa", executed_ops=900, bytes=100, lines=("net.py:3",), nodes=(2, 3), outputs=(3,))
MOVE = make_kernel(
    "E_64", key="bb", executed_ops=50, bytes=700, lines=("net.py:3", "net.py:9"), nodes=(5,), outputs=(5,)
)


def realized(rule: str, **changes: object) -> Realized:
    return Realized((0,), "consumers-disagree", "", (Reason(rule, **changes),))  # type: ignore[arg-type]


def buffer(node: int, outcome: str, rule: str, size: int) -> Bufferize:
    return Bufferize(node, ("r0",), (), size, 4 * size, "GLOBAL", outcome, "", decided=Reason(rule))  # type: ignore[arg-type]


NODES = (
    make_node(2, "MUL", line="net.py:3"),
    make_node(3, "REDUCE", line="net.py:3", realized=realized("ending-ranges")),
    make_node(5, "ADD", line="net.py:9", realized=realized("output")),
    make_node(6, "ADD", line="net.py:9", realized=realized("output")),
)
BUFFERS = (buffer(3, "removed", "few-buffers", 8), buffer(5, "kept", "output", 16), buffer(6, "kept", "output", 16))


def network() -> Capture:
    """Two equal layers in one schedule, and the second once more in another."""
    first = make_schedule(0, kernels=(MATMUL, MOVE, MATMUL), nodes=NODES, bufferizes=BUFFERS)
    return make_capture(first, make_schedule(1, kernels=(replace(MATMUL, launches=3),)))


def show_overview(capture: Capture, width: int = 80) -> str:
    return print_to_text(lambda console: print_overview(View.of_one(capture), console, "more"), width)


def test_equal_kernels_are_one_and_count_together() -> None:
    first, second = group_kernels(View.of_one(network()))
    assert (first.kernel.name, first.after.launches, first.after.ops, first.after.bytes) == ("r_64", 5, 2700, 300)
    assert [(place.schedule, place.position) for place in first.places] == [(0, 0), (0, 2), (1, 0)]
    assert (second.kernel.name, second.after.ops, list(second.lines)) == ("E_64", 50, ["net.py:3", "net.py:9"])
    # kernels of one name and two programs are two
    other = replace(MATMUL, key="cc")
    assert len(group_kernels(View.of_one(make_capture(make_schedule(kernels=(MATMUL, other)))))) == 2


def test_a_kernel_counts_for_each_of_its_lines() -> None:
    counted = {row.name: row.after for row in count_lines(View.of_one(network()))}
    assert (counted["net.py:3"].kernels, counted["net.py:3"].ops, counted["net.py:3"].realized) == (4, 2750, 1)
    assert (counted["net.py:9"].kernels, counted["net.py:9"].bytes, counted["net.py:9"].realized) == (1, 700, 2)


def test_a_kernel_counts_for_each_method_that_it_computes_a_value_of() -> None:
    """A reshape computes nothing: a kernel is not counted for it."""
    nodes = (
        make_node(1, "RESHAPE", line="net.py:2", method="reshape"),
        make_node(2, "MUL", line="net.py:3", method="linear"),
        make_node(3, "REDUCE", line="net.py:4", method="linear", realized=realized("ending-ranges")),
        make_node(5, "ADD", line="net.py:9", method="softmax"),
        make_node(6, "ADD", line="net.py:9"),
    )
    both = replace(MOVE, nodes=(1, 3, 5, 6))
    capture = make_capture(make_schedule(kernels=(MATMUL, both), nodes=nodes))
    methods = [(row.name, row.after) for row in count_methods(View.of_one(capture))]
    counted = [(name, c.kernels, c.ops, c.bytes, c.realized, [*c.lines]) for name, c in methods]
    assert counted == [("linear", 2, 950, 800, 1, ["net.py:3", "net.py:4"]), ("softmax", 1, 50, 700, 0, ["net.py:9"])]
    shown = flatten(show_overview(capture, 200))
    assert "Methods 2 methods" in shown
    assert "linear 2 950 100% 800 B 100% 1 net.py:3, 4" in shown
    # a capture that was saved before has none
    assert "Methods" not in show_overview(network())


def test_realized_nodes_are_counted_by_rule_with_what_became_of_their_buffers() -> None:
    counts = [row.after for row in count_rules(View.of_one(network()))]
    counted = [(count.rule, count.nodes, count.kept, count.bytes, count.example) for count in counts]
    assert counted == [("output", 2, 2, 128, 5), ("ending-ranges", 1, 0, 0, 3)]


def test_decisions_without_a_rule_are_distinguished_by_their_place() -> None:
    places = [Decision("schedule/indexing.py", line, "f", "return True", ()) for line in (7, 8, 7)]
    nodes = tuple(make_node(n, "ADD", realized=realized("decided-at", at=at)) for n, at in enumerate(places))
    counted = count_rules(View.of_one(make_capture(make_schedule(nodes=nodes))))
    assert [row.after.nodes for row in counted] == [2, 1]
    assert "decided at indexing.py:7: return True" in flatten(show_overview(make_capture(make_schedule(nodes=nodes))))


def test_the_page_ranks_by_work() -> None:
    text = show_overview(network())
    assert text.index("r_64") < text.index("E_64")
    assert "2 schedules, 4 kernels (2 distinct), 2,750 ops executed, 1000 B moved" in flatten(text)
    assert "r_64 5 2,700 98% 300 B 30%" in flatten(text)
    assert text.rstrip().endswith("more")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    assert max(map(len, show_overview(network(), width).splitlines())) <= width


def test_only_findings_of_the_capture_are_printed() -> None:
    """A comment on the user's line has taken out the others."""
    wasteful = replace(MATMUL, executed_ops=90_000, redundancy=64.0)
    capture = make_capture(make_schedule(kernels=(wasteful,)))
    assert "Findings" not in show_overview(capture)
    found = lint_capture(capture)
    assert [finding.code for finding in found] == ["VD104"]
    assert "VD104 redundant work, 1 times; first: " in flatten(show_overview(replace(capture, findings=found)))


def test_measured_times_stand_with_the_kernels_and_rank_them() -> None:
    slow = replace(MOVE, measured=Measured(2, 0.005, 0.004, 0.006))
    quick = replace(MATMUL, measured=Measured(3, 0.00002, 0.00001, 0.00003))
    text = show_overview(make_capture(make_schedule(kernels=(quick, slow))), 120)
    assert text.index("E_64") < text.index("r_64")
    assert "5.00 ms" in text
    assert "20.0 us" in text
    assert "predicted" not in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_predicted_and_measured_times_are_next_to_each_other(width: int) -> None:
    timed = replace(MATMUL, measured=Measured(3, 0.00002, 0.00001, 0.00003))
    capture = make_capture(make_schedule(kernels=(replace(timed, predicted=0.000015), replace(MOVE, predicted=None))))
    overview = show_overview(capture, width)
    assert max(map(len, overview.splitlines())) <= width
    # a column if it fits, else below the row
    assert ("predicted 15.0 us" in flatten(overview)) == (width == 60)
    assert ("20.0 us    15.0 us" in overview) == (width > 60)
    whole = flatten(print_to_text(lambda console: print_capture(capture, console), width))
    assert "time 20.0 us, median of 3 launches (predicted 15.0 us)" in whole
    assert whole.count("predicted") == 1
    unknown = make_capture(make_schedule(kernels=(timed, MOVE)))
    whole = flatten(print_to_text(lambda console: print_capture(unknown, console), width))
    assert "time 20.0 us, median of 3 launches" in whole
    assert "predicted" not in whole


def test_a_long_run_is_one_of_many_programs_or_many_nodes() -> None:
    kernels = tuple(make_kernel(f"E_{n}", key=str(n)) for n in range(13))
    assert is_long(View.of_one(make_capture(make_schedule(kernels=kernels))))
    assert not is_long(View.of_one(make_capture(make_schedule(kernels=kernels[:12]))))
    assert not is_long(View.of_one(make_capture(make_schedule(kernels=kernels[:1] * 500))))
    assert is_long(View.of_one(long_graph()))


def test_repeated_kernels_do_not_make_a_run_long() -> None:
    nodes = tuple(make_node(n, "ADD") for n in range(200))
    schedules = [make_schedule(n, kernels=(MATMUL,), nodes=nodes) for n in range(5)]
    assert not is_long(View.of_one(make_capture(*schedules)))
    assert find_distinct(make_capture(*schedules)) == {0: [1, 2, 3, 4]}


def test_why_names_equal_schedules_once() -> None:
    nodes = tuple(make_node(n, "ADD") for n in range(4))
    capture = make_capture(*(make_schedule(n, kernels=(MATMUL,), nodes=nodes) for n in range(3)))
    (only,) = explain(capture, None, None)
    assert (only.schedule, only.again) == (0, (1, 2))
    (asked,) = explain(capture, None, 2)
    assert (asked.schedule, asked.again) == (2, ())


def test_a_kernel_is_selected_by_name_or_number() -> None:
    view = View.of_one(network())
    named = select_kernels(view, "r_64", None)
    assert [describe(item) for item in named] == [(0, [0, 2], [2, 3]), (1, [0], [])]
    assert [describe(item)[:2] for item in select_kernels(view, "1", None)] == [(0, [1])]
    assert [describe(item)[:2] for item in select_kernels(view, "0", 1)] == [(1, [0])]
    with pytest.raises(Failure, match="2 schedules have a kernel 0: choose one with --schedule"):
        select_kernels(view, "0", None)
    with pytest.raises(Failure, match="there is no kernel r_99: r_64, E_64"):
        select_kernels(view, "r_99", None)


def describe(part: ScheduleDiff) -> tuple[int, list[int], list[int]]:
    return part.index, [item.after[0].number for item in part.kernels], [item.after.id for item in part.nodes]


def test_a_line_is_selected_with_its_nodes_and_kernels() -> None:
    view = View.of_one(network())
    assert [describe(item) for item in select_line(view, "src/net.py:9", None)] == [(0, [1], [5, 6])]
    with pytest.raises(Failure, match=r"no node is made at net\.py:90"):
        select_line(view, "net.py:90", None)


@pytest.mark.parametrize(
    ("line", "asked", "same"),
    [
        ("a/net.py:3", "net.py:3", True),
        ("net.py:3", "a/net.py:3", True),
        ("net.py:3", "net.py:30", False),
        ("subnet.py:3", "net.py:3", False),
    ],
)
def test_a_line_is_selected_by_a_part_of_its_path_too(line: str, asked: str, same: bool) -> None:
    assert is_line(line, asked) is same


def test_only_the_selection_is_printed_and_its_source_is_not_folded() -> None:
    source = "void r_64() {" + " x = x + 1;" * 20 + " }"
    capture = network()
    first = replace(capture.schedules[0], kernels=(replace(MATMUL, source=source), MOVE))
    capture = replace(capture, schedules=(first,))

    def show(asked: str) -> str:
        selected = select_kernels(View.of_one(capture), asked, None)
        return print_to_text(lambda console: print_capture(capture, console, selected=selected))

    shown = show("r_64")
    assert source in shown.splitlines()
    assert "E_64" not in shown
    assert " 5  ADD" not in shown
    assert "r_64" not in show("E_64")


def test_schedules_that_have_nothing_of_a_selection_are_left_out() -> None:
    capture = many_schedules()
    selected = select_kernels(View.of_one(capture), "0", 2)
    shown = print_to_text(lambda console: print_capture(capture, console, selected=selected))
    assert shown.count("== schedule") == 1
