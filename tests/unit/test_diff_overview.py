"""The overview of a long diff: what it counts and ranks, when it is shown, and what a selection leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captures import lost_range, make_capture, make_kernel, make_node, make_schedule
from rendered import flatten, print_to_text

from vmapdbg.diff.captures import diff_captures
from vmapdbg.model.capture import Capture, Kernel, Measured, Node, Realized, Reason
from vmapdbg.model.failure import Failure
from vmapdbg.page.overview import count_lines, count_rules, group_kernels, is_long, sum_kernels
from vmapdbg.page.text.run import print_diff, print_overview
from vmapdbg.page.view import View, select_kernels, select_line, select_schedules

LAYERS = 3


def realized(rule: str) -> Realized:
    return Realized((0,), "consumers-disagree", "", (Reason(rule),))  # type: ignore[arg-type]


def kernel(number: int, name: str, key: str, line: str, **changes: int) -> Kernel:
    source = f"void {name}(float* a) {{\n  *a = {key};\n}}\n"
    return make_kernel(name, source, key=key, nodes=(number,), outputs=(number,), lines=(line,), **changes)


def network(wide: str, ops: int, rule: str, file: str = "net.py") -> Capture:
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


BEFORE, AFTER = network("64", 900, "ending-ranges"), network("16", 300, "output")


def compare(before: Capture = BEFORE, after: Capture = AFTER, lines: dict[str, str] | None = None) -> View:
    return View.of_two(before, after, diff_captures(before, after, same_lines=lines))


def show(comparison: View, width: int = 80) -> str:
    return print_to_text(lambda console: print_overview(comparison, console, "more"), width)


def test_equal_changes_of_layers_are_one_and_count_together() -> None:
    (only,) = group_kernels(compare())
    assert (only.change.status, len(only.places)) == ("changed", LAYERS)
    assert (only.before.ops, only.after.ops, only.before.bytes, only.after.bytes) == (2700, 900, 300, 300)
    assert list(only.lines) == ["net.py:3"]


def test_the_largest_change_comes_first() -> None:
    """Of time where both sides were timed, else of work, whichever way it goes."""
    before = make_schedule(kernels=(kernel(0, "a", "a", "x:1", executed_ops=100), kernel(1, "b", "b", "x:2")))
    after = make_schedule(kernels=(kernel(0, "a2", "a2", "x:1", executed_ops=110), kernel(1, "b2", "b2", "x:2")))
    nodes = tuple(make_node(n, "ADD", arg=str(n)) for n in range(2))

    def rank(times: tuple[float, float, float, float] | None) -> list[str]:
        sides: list[Capture] = []
        for number, side in enumerate((before, after)):
            kernels = list(side.kernels)
            kernels[1] = replace(kernels[1], executed_ops=(900, 300)[number])
            if times is not None:
                pair = times[2 * number : 2 * number + 2]
                kernels = [replace(k, measured=Measured(1, t, t, t)) for k, t in zip(kernels, pair, strict=True)]
            sides.append(make_capture(replace(side, nodes=nodes, kernels=tuple(kernels))))
        return [group.change.after[0].kernel.name for group in group_kernels(compare(sides[0], sides[1]))]

    assert rank(None) == ["b2", "a2"]
    assert rank((1e-3, 1e-3, 9e-3, 1e-3)) == ["a2", "b2"]


def test_lines_are_ranked_by_how_much_their_cost_changed() -> None:
    (only,) = count_lines(compare())
    assert (only.name, only.before.ops, only.after.ops) == ("net.py:3", 2700, 900)


def test_a_line_that_moved_is_one_line() -> None:
    after = network("16", 300, "output", "new.py")
    lines = {"net.py:3": "new.py:3", "net.py:9": "new.py:9"}
    assert [row.name for row in count_lines(compare(after=after, lines=lines))] == ["new.py:3"]
    assert len(count_lines(compare(after=after))) == 4


def test_rules_are_counted_on_both_sides() -> None:
    counted = {row.why.split(":")[0]: (row.before.nodes, row.after.nodes) for row in count_rules(compare())}
    assert counted == {"an output of the schedule": (0, 3), "ranges end at it": (3, 0)}


def test_the_text_of_the_page() -> None:
    text = flatten(show(compare(), 200))
    assert text.startswith("3 of 6 kernels changed, executed ops 2,850 -> 1,050 (0.37x)")
    assert "Overview 1 schedule: 1 changed nodes: 3 changed, 3 the same" in text
    assert "Kernels 1 change, the largest of work first" in text
    assert "~ r_64 -> r_16 3 2,700 -> 900 (0.33x) 300 B net.py:3" in text
    assert "~ net.py:3 3 2,700 -> 900 (0.33x) 300 B 3" in text
    assert "3 -> 0 0 0 B ranges end at it" in text
    assert text.endswith("more")


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


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    assert max(map(len, show(compare(), width).splitlines())) <= width


def test_a_failed_side_is_shown_with_its_captured_part() -> None:
    from captures import failed_snippet

    text = flatten(show(compare(after=failed_snippet(AFTER.schedules[0]))))
    assert "RAISED" in text
    assert "executed ops 2,850 -> 1,050" in text


# *** when


def many(count: int, source_lines: int = 1) -> View:
    nodes = tuple(make_node(n, "ADD", arg=str(n)) for n in range(count))

    def side(word: str) -> Capture:
        source = f"{word}\n" * source_lines
        kernels = (
            make_kernel(f"E_{n}", f"{source}{n}", key=f"{word}{n}", nodes=(n,), outputs=(n,)) for n in range(count)
        )
        return make_capture(make_schedule(nodes=nodes, kernels=tuple(kernels)))

    return compare(side("old"), side("new"))


def test_a_long_diff_has_many_programs_or_many_nodes_or_much_source() -> None:
    assert not is_long(many(12))
    assert is_long(many(13))
    assert is_long(many(2, source_lines=260))
    assert not is_long(many(2, source_lines=240))
    before, after = (
        make_capture(make_schedule(nodes=tuple(make_node(n, "ADD", ranges=(name,)) for n in range(251))))
        for name in ("r0", "(r0*2)")
    )
    assert is_long(compare(before, after))


def test_what_did_not_change_makes_no_diff_longer() -> None:
    view = compare(BEFORE, BEFORE)
    assert not is_long(view)
    assert len(group_kernels(view, unchanged=True)) == 2
    assert not group_kernels(view)


# *** a part


def test_a_kernel_is_selected_on_either_side() -> None:
    view = compare()
    for name in ("r_64", "r_16"):
        (selected,) = select_kernels(view, name, None)
        assert len(selected.kernels) == LAYERS
        assert [item.after.id for item in selected.nodes] == [0, 2, 4]
    (selected,) = select_kernels(view, "1", 0)
    assert [change.after[0].kernel.name for change in selected.kernels] == ["E_64"]
    with pytest.raises(Failure, match="there is no kernel r_99: r_64, r_16, E_64"):
        select_kernels(view, "r_99", None)


def test_a_line_is_selected_with_its_nodes_and_kernels() -> None:
    (selected,) = select_line(compare(), "net.py:9", None)
    assert {change.after[0].kernel.name for change in selected.kernels} == {"E_64"}
    assert [item.after for item in selected.same_nodes] == [1, 3, 5]
    with pytest.raises(Failure, match=r"no node is made at net\.py:90"):
        select_line(compare(), "net.py:90", None)


def test_an_unknown_schedule_is_refused() -> None:
    assert len(select_schedules(compare(), 0)) == 1
    with pytest.raises(Failure, match="there is no schedule 7: 1 before, 1 after"):
        select_schedules(compare(), 7)


def test_a_part_names_nodes_as_the_whole_does() -> None:
    """The sentences contain names of other kernels and nodes."""
    view = compare(lost_range(fixed=False), lost_range())
    selected = select_kernels(view, "0", None)
    text = print_to_text(lambda console: print_diff(view.diff, console, selected=selected))
    assert "== schedule 0" in text
    assert "?" not in text
