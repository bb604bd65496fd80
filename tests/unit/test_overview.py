"""The overview of a long run and of a long diff: what it counts and ranks, when it is shown, what is selected."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from captures import (
    failed_snippet,
    long_graph,
    lost_range,
    make_capture,
    make_kernel,
    make_node,
    make_schedule,
    many_schedules,
)
from rendered import flatten, print_to_text

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.result import ScheduleDiff
from vmapdbg.lint import lint_capture
from vmapdbg.model.capture import Bufferize, Capture, Decision, Kernel, Measured, Node, Realized, Reason
from vmapdbg.model.failure import Failure
from vmapdbg.model.schedule_index import find_distinct, is_line
from vmapdbg.page.overview import (
    count_costs,
    count_rules,
    group_kernels,
    is_long,
    is_long_part,
    say_trivial,
    sum_kernels,
)
from vmapdbg.page.text.run import print_capture, print_diff, print_overview, print_part
from vmapdbg.page.text.why import print_explanations
from vmapdbg.page.view import View, select_kernels, select_line, select_schedules
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


def show(view: View, width: int = 80) -> str:
    return print_to_text(lambda console: print_overview(view, console, "more"), width)


def show_overview(capture: Capture, width: int = 80) -> str:
    return show(View.of_one(capture), width)


def test_equal_kernels_are_one_and_count_together() -> None:
    first, second = group_kernels(View.of_one(network()))
    assert (first.kernel.name, first.after.launches, first.after.ops, first.after.bytes) == ("r_64", 5, 2700, 300)
    assert [(place.pair.index, place.change.after[0].number) for place in first.places] == [(0, 0), (0, 2), (1, 0)]
    assert (second.kernel.name, second.after.ops, list(second.lines)) == ("E_64", 50, ["net.py:3", "net.py:9"])
    # kernels of one name and two programs are two
    other = replace(MATMUL, key="cc")
    assert len(group_kernels(View.of_one(make_capture(make_schedule(kernels=(MATMUL, other)))))) == 2


def test_lines_and_rules_are_counted_with_their_kernels_and_buffers() -> None:
    counted = {row.name: row.after for row in count_costs(View.of_one(network()), "line")}
    assert (counted["net.py:3"].kernels, counted["net.py:3"].ops, counted["net.py:3"].kept) == (4, 2750, 0)
    assert (counted["net.py:9"].kernels, counted["net.py:9"].bytes, counted["net.py:9"].kept) == (1, 700, 2)
    counts = [row.after for row in count_rules(View.of_one(network()))]
    counted = [(count.why, count.nodes, count.kept, count.bytes, count.example) for count in counts]
    rule = "ranges end at it: a reduce, or a reader with loops of its own"
    assert counted == [("an output of the schedule", 2, 2, 128, "0/5"), (rule, 1, 0, 0, "0/3")]


def test_the_page_says_how_many_ops_have_no_line() -> None:
    assert "no line" not in show_overview(network())
    lost = replace(MATMUL, key="dd", lines=())
    capture = make_capture(make_schedule(kernels=(MATMUL, MATMUL, MATMUL, lost)))
    assert "no line share of the ops: 25%" in flatten(show_overview(capture))


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
    kept = (buffer(3, "kept", "output", 16),)
    capture = make_capture(make_schedule(kernels=(MATMUL, both), nodes=nodes, bufferizes=kept))
    methods = [(row.name, row.after) for row in count_costs(View.of_one(capture), "method")]
    counted = [(name, c.kernels, c.ops, c.bytes, c.kept, [*c.lines]) for name, c in methods]
    assert counted == [("linear", 2, 950, 800, 1, ["net.py:3", "net.py:4"]), ("softmax", 1, 50, 700, 0, ["net.py:9"])]
    shown = flatten(show_overview(capture, 200))
    assert "methods share of the ops: linear 100%, softmax 5%" in shown
    # a capture that was saved before has none
    assert "methods" not in show_overview(network())


def test_decisions_without_a_rule_are_distinguished_by_their_place() -> None:
    places = [Decision("schedule/indexing.py", line, "f", "return True", ()) for line in (7, 8, 7)]
    nodes = tuple(make_node(n, "ADD", realized=realized("decided-at", at=at)) for n, at in enumerate(places))
    counted = count_rules(View.of_one(make_capture(make_schedule(nodes=nodes))))
    assert [row.after.nodes for row in counted] == [2, 1]
    assert "decided at indexing.py:7: return True" in flatten(show_overview(make_capture(make_schedule(nodes=nodes))))


def test_the_page_ranks_by_work_unless_times_were_measured() -> None:
    text = show_overview(network())
    assert text.index("r_64") < text.index("E_64")
    assert "2 schedules, 4 kernels (2 distinct), 2,750 ops executed, 1000 B moved" in flatten(text)
    assert "r_64 5 2,700 98% 300 B 30%" in flatten(text)
    assert text.rstrip().endswith("more")
    slow = replace(MOVE, measured=Measured(2, 0.005, 0.004, 0.006))
    quick = replace(MATMUL, measured=Measured(3, 0.00002, 0.00001, 0.00003))
    text = show_overview(make_capture(make_schedule(kernels=(quick, slow))), 120)
    assert text.index("E_64") < text.index("r_64")
    assert "5.00 ms" in text
    assert "20.0 us" in text
    assert "predicted" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    assert max(map(len, show_overview(network(), width).splitlines())) <= width
    assert max(map(len, show(compare(), width).splitlines())) <= width


def test_only_findings_of_the_capture_are_printed() -> None:
    """A comment on the user's line has taken out the others."""
    wasteful = replace(MATMUL, executed_ops=90_000, redundancy=64.0)
    capture = make_capture(make_schedule(kernels=(wasteful,)))
    assert "Findings" not in show_overview(capture)
    found = lint_capture(capture)
    assert [finding.code for finding in found] == ["VD104"]
    assert "VD104 redundant work: " in flatten(show_overview(replace(capture, findings=found)))


def test_a_long_run_has_many_programs_or_many_nodes_without_repeated_ones() -> None:
    kernels = tuple(make_kernel(f"E_{n}", key=str(n)) for n in range(13))
    assert is_long(View.of_one(make_capture(make_schedule(kernels=kernels))))
    assert not is_long(View.of_one(make_capture(make_schedule(kernels=kernels[:12]))))
    assert not is_long(View.of_one(make_capture(make_schedule(kernels=kernels[:1] * 500))))
    assert is_long(View.of_one(long_graph()))
    nodes = tuple(make_node(n, "ADD") for n in range(200))
    schedules = [make_schedule(n, kernels=(MATMUL,), nodes=nodes) for n in range(5)]
    assert not is_long(View.of_one(make_capture(*schedules)))
    assert find_distinct(make_capture(*schedules)) == {0: [1, 2, 3, 4]}


def test_a_schedule_that_only_draws_random_numbers_is_trivial_unless_it_computes_with_them() -> None:
    drawn = [replace(make_node(n, op), phase="data") for n, op in enumerate(("THREEFRY", "MUL", "REDUCE"))]
    moved, summed = make_node(4, "RESHAPE", src=(2,)), replace(make_node(5, "REDUCE", src=(4,)), phase="forward")
    for nodes, is_trivial in (
        (drawn, True),
        ([*drawn, moved], True),
        ([*drawn, moved, summed], False),
        ([moved], False),
    ):
        assert bool(say_trivial(make_schedule(kernels=(MATMUL,), nodes=tuple(nodes)))) == is_trivial
    assert say_trivial(make_schedule(copies=2)) == "only copies"
    # nothing is said of a schedule that does not even copy
    assert not say_trivial(make_schedule())


def test_why_explains_equal_buffers_of_several_schedules_once() -> None:
    nodes = (make_node(3, "ADD", line="net.py:3"), make_node(5, "MUL", src=(3,)))
    reader = replace(MOVE, nodes=(5,))
    capture = make_capture(*(make_schedule(n, kernels=(MATMUL, reader), nodes=nodes) for n in range(3)))
    assert [one.name for one in explain(capture, None, None)] == ["0/3", "1/3", "2/3"]
    assert [one.name for one in explain(capture, None, 2)] == ["2/3"]
    text = flatten(print_to_text(lambda console: print_explanations(explain(capture, None, None), console), 80))
    assert text.count("not fused with") == 1
    assert "ADD 0/3 net.py:3 x3" in text
    assert "the same 1/3, 2/3" in text


def test_a_kernel_is_selected_by_name_or_number_and_a_line_with_its_nodes() -> None:
    view = View.of_one(network())
    named = select_kernels(view, "r_64", None)
    assert [describe(item) for item in named] == [(0, [0, 2], [2, 3]), (1, [0], [])]
    assert [describe(item)[:2] for item in select_kernels(view, "1", None)] == [(0, [1])]
    assert [describe(item)[:2] for item in select_kernels(view, "0", 1)] == [(1, [0])]
    with pytest.raises(Failure, match="2 schedules have a kernel 0: choose one with --schedule"):
        select_kernels(view, "0", None)
    with pytest.raises(Failure, match="there is no kernel r_99: r_64, E_64"):
        select_kernels(view, "r_99", None)
    assert [describe(item) for item in select_line(view, "src/net.py:9", None)] == [(0, [1], [5, 6])]
    with pytest.raises(Failure, match=r"no node is made at net\.py:90"):
        select_line(view, "net.py:90", None)


def describe(part: ScheduleDiff) -> tuple[int, list[int], list[int]]:
    return part.index, [item.after[0].number for item in part.kernels], [item.after.id for item in part.nodes]


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


def test_a_part_of_a_long_run_is_one_page_and_the_largest_comes_first() -> None:
    """`show --line` printed thousands of lines, schedule by schedule."""
    kernels = [
        make_kernel(f"E_{n}", f"{n};" + "x;\n" * 90, key=str(n), executed_ops=n, nodes=(n,)) for n in range(1, 40)
    ]
    kernels = [replace(one, lines=("net.py:3",), outputs=one.nodes) for one in kernels]
    nodes = tuple(make_node(n, "ADD", line="net.py:3") for n in range(1, 40))
    buffers = tuple(buffer(n, "kept", "output", 8 * (n % 20 + 1)) for n in range(1, 40))
    view = View.of_one(make_capture(make_schedule(kernels=tuple(kernels), nodes=nodes, bufferizes=buffers)))

    def show_part(selected: list[ScheduleDiff]) -> str:
        part = replace(view, schedules=tuple(selected))
        assert is_long_part(part)
        return print_to_text(lambda console: print_part(part, console, "net.py:3", "more"))

    text = show_part(select_line(view, "net.py:3", None))
    assert len(text.splitlines()) <= 60
    assert "net.py:3  39 of 39 kernels, 780 ops executed, 100% of all" in text
    assert text.index("E_39") < text.index("E_38")
    assert "Buffers  39 buffers kept, 7 of 20 kinds, " in text
    assert re.findall(r"(\d+/\d+)  ADD", text) == ["0/19", "0/18", "0/17", "0/16", "0/15", "0/14", "0/13"]
    # the source of one kernel fills the page
    text = show_part(select_kernels(view, "E_7", None))
    assert 40 < len(text.splitlines()) <= 60
    assert "lines more: --only source" in text
    small = replace(kernels[0], source="x;\n")
    assert not is_long_part(View.of_one(make_capture(make_schedule(kernels=(small,), nodes=nodes[:1]))))


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
    # schedules that have nothing of it are left out
    capture = many_schedules()
    selected = select_kernels(View.of_one(capture), "0", 2)
    shown = print_to_text(lambda console: print_capture(capture, console, selected=selected))
    assert shown.count("== schedule") == 1


# *** two runs

LAYERS = 3


def kernel(number: int, name: str, key: str, line: str, **changes: int) -> Kernel:
    source = f"void {name}(float* a) {{\n  *a = {key};\n}}\n"
    return make_kernel(name, source, key=key, nodes=(number,), outputs=(number,), lines=(line,), **changes)


def make_layers(wide: str, ops: int, rule: str, file: str = "net.py") -> Capture:
    """Layers of two kernels each in one schedule: a wide kernel, and a kernel that never changes."""
    nodes: list[Node] = []
    kernels: list[Kernel] = []
    for layer in range(LAYERS):
        first, second = 2 * layer, 2 * layer + 1
        nodes.append(make_node(first, "MUL", arg=str(first), line=f"{file}:3", realized=realized(rule)))
        nodes.append(make_node(second, "ADD", src=(first,), arg=str(second), line=f"{file}:9", realized=None))
        kernels.append(kernel(first, f"r_{wide}", wide, f"{file}:3", executed_ops=ops, bytes=100))
        kernels.append(kernel(second, "E_64", "bb", f"{file}:9", executed_ops=50, bytes=700))
    return replace(make_capture(make_schedule(nodes=tuple(nodes), kernels=tuple(kernels))), snippet=file)


BEFORE, AFTER = make_layers("64", 900, "ending-ranges"), make_layers("16", 300, "output")


def compare(before: Capture = BEFORE, after: Capture = AFTER, lines: dict[str, str] | None = None) -> View:
    return View.of_two(before, after, diff_captures(before, after, same_lines=lines))


def test_equal_changes_of_layers_are_one_and_lines_and_rules_are_counted_on_both_sides() -> None:
    (only,) = group_kernels(compare())
    assert (only.change.status, len(only.places)) == ("changed", LAYERS)
    assert (only.before.ops, only.after.ops, only.before.bytes, only.after.bytes) == (2700, 900, 300, 300)
    assert list(only.lines) == ["net.py:3"]
    (only,) = count_costs(compare(), "line")
    assert (only.name, only.before.ops, only.after.ops) == ("net.py:3", 2700, 900)
    counted = {row.why.split(":")[0]: (row.before.nodes, row.after.nodes) for row in count_rules(compare())}
    assert counted == {"an output of the schedule": (0, 3), "ranges end at it": (3, 0)}


def test_the_largest_change_comes_first() -> None:
    """Of time where both sides were timed, else of work, whichever way it goes."""
    nodes = tuple(make_node(n, "ADD", arg=str(n)) for n in range(2))

    def make_side(word: str, ops: tuple[int, int], times: tuple[float, ...]) -> Capture:
        kernels = [kernel(n, name + word, name + word, f"x:{n}", executed_ops=ops[n]) for n, name in enumerate("ab")]
        measured = [replace(k, measured=Measured(1, t, t, t)) for k, t in zip(kernels, times, strict=False)]
        return make_capture(make_schedule(nodes=nodes, kernels=(*measured, *kernels[len(times) :])))

    def rank(times_before: tuple[float, ...], times_after: tuple[float, ...]) -> list[str]:
        view = compare(make_side("", (100, 900), times_before), make_side("2", (110, 300), times_after))
        return [group.change.after[0].kernel.name for group in group_kernels(view)]

    assert rank((), ()) == ["b2", "a2"]
    assert rank((1e-3, 1e-3), (9e-3, 1e-3)) == ["a2", "b2"]


def test_a_line_that_moved_is_one_line() -> None:
    after = make_layers("16", 300, "output", "new.py")
    lines = {"net.py:3": "new.py:3", "net.py:9": "new.py:9"}
    assert [row.name for row in count_costs(compare(after=after, lines=lines), "line")] == ["new.py:3"]
    assert len(count_costs(compare(after=after), "line")) == 4


def test_the_text_of_two_runs() -> None:
    text = flatten(show(compare(), 200))
    assert text.startswith("3 of 6 kernels changed, executed ops 2,850 -> 1,050 (0.37x)")
    assert "Overview 1 schedule: 1 changed" in text
    assert "Kernels 1 change, the largest of work first" in text
    assert "~ r_64 -> r_16 3 2,700 -> 900 (0.33x) 300 B net.py:3" in text
    assert "~ net.py:3 3 2,700 -> 900 (0.33x) 300 B" in text
    assert "3 -> 0 0 0 B ranges end at it" in text
    assert text.endswith("more")
    # a failed side has its captured part
    text = flatten(show(compare(after=failed_snippet(AFTER.schedules[0]))))
    assert "RAISED" in text
    assert "executed ops 2,850 -> 1,050" in text


def test_measured_times_are_compared() -> None:
    """A program was timed over all its launches: the three layers are two programs of six launches each."""

    def time(capture: Capture, seconds: float) -> Capture:
        kernels = tuple(replace(k, measured=Measured(6, seconds, 0, 1)) for k in capture.schedules[0].kernels)
        return replace(capture, schedules=(replace(capture.schedules[0], kernels=kernels),))

    timed = compare(time(BEFORE, 0.002), time(AFTER, 0.001))
    assert sum_kernels(timed.before).seconds == pytest.approx(0.024)
    text = flatten(show(timed, 160))
    assert "time in kernels 24.0 ms -> 12.0 ms (0.50x)" in text
    assert "the largest of time first" in text
    assert "12.0 ms -> 6.00 ms (0.50x)" in text


def many(count: int, source_lines: int = 1) -> View:
    nodes = tuple(make_node(n, "ADD", arg=str(n)) for n in range(count))

    def side(word: str) -> Capture:
        source = f"{word}\n" * source_lines
        kernels = (
            make_kernel(f"E_{n}", f"{source}{n}", key=f"{word}{n}", nodes=(n,), outputs=(n,)) for n in range(count)
        )
        return make_capture(make_schedule(nodes=nodes, kernels=tuple(kernels)))

    return compare(side("old"), side("new"))


def test_a_long_diff_has_many_changed_programs_or_nodes_or_much_source() -> None:
    assert not is_long(many(12))
    assert is_long(many(13))
    assert is_long(many(2, source_lines=260))
    assert not is_long(many(2, source_lines=240))
    before, after = (
        make_capture(make_schedule(nodes=tuple(make_node(n, "ADD", ranges=(name,)) for n in range(251))))
        for name in ("r0", "(r0*2)")
    )
    assert is_long(compare(before, after))
    # what did not change makes no diff longer
    view = compare(BEFORE, BEFORE)
    assert not is_long(view)
    assert len(group_kernels(view, unchanged=True)) == 2
    assert not group_kernels(view)


def test_a_kernel_a_line_or_a_schedule_is_selected_on_either_side() -> None:
    view = compare()
    for name in ("r_64", "r_16"):
        (selected,) = select_kernels(view, name, None)
        assert len(selected.kernels) == LAYERS
        assert [item.after.id for item in selected.nodes] == [0, 2, 4]
    (selected,) = select_kernels(view, "1", 0)
    assert [change.after[0].kernel.name for change in selected.kernels] == ["E_64"]
    with pytest.raises(Failure, match="there is no kernel r_99: r_64, r_16, E_64"):
        select_kernels(view, "r_99", None)
    (selected,) = select_line(compare(), "net.py:9", None)
    assert {change.after[0].kernel.name for change in selected.kernels} == {"E_64"}
    assert [item.after for item in selected.same_nodes] == [1, 3, 5]
    with pytest.raises(Failure, match=r"no node is made at net\.py:90"):
        select_line(compare(), "net.py:90", None)
    assert len(select_schedules(compare(), 0)) == 1
    with pytest.raises(Failure, match="there is no schedule 7: the last is 0"):
        select_schedules(compare(), 7)


def test_a_part_names_nodes_as_the_whole_does() -> None:
    """The sentences contain names of other kernels and nodes."""
    view = compare(lost_range(fixed=False), lost_range())
    selected = select_kernels(view, "0", None)
    text = print_to_text(lambda console: print_diff(view.diff, console, selected=selected))
    assert "== schedule 0" in text
    assert "?" not in text
