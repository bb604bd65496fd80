"""Two saved runs compared: the same change in many tests is one, called by what it is, and ranked by what it costs."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from captures import make_capture, make_kernel, make_node, make_schedule
from rich.console import Console

from vmapdbg.diff.result import KernelChange, KernelSide
from vmapdbg.model.capture import Kernel, Realized, Schedule, Versions
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import append_line
from vmapdbg.page.text.suite import name_change, print_suite
from vmapdbg.suite import saved
from vmapdbg.suite.compare import SuiteDiff, compare_runs, diff_test, estimate_cost, join_related
from vmapdbg.suite.saved import LoadedRun, SavedRun, load_run, name_test, prepare_folder, start_run

# a row is summed up, and divided by its sum
NODES = (
    make_node(0, "BUFFER"),
    make_node(1, "REDUCE_AXIS", src=(0,)),
    make_node(2, "MUL", src=(0, 1), realized=Realized((), "output", "output")),
)


def save_run(folder: Path, tests: dict[str, list[Schedule]], **changes: Any) -> LoadedRun:
    """Writes a saved run by the dataclasses that the program's processes use, and reads it."""
    fields: dict[str, Any] = {
        "versions": Versions("0.1.0", "0.12.0", "3.11.7"),
        "target": "c",
        "patches": {},
        "program": ("-m", "pytest"),
        **changes,
    }
    run = SavedRun(schema=saved.RUN_SCHEMA, kind="saved-run", folder="run-1", status=0, **fields)
    files = start_run(folder, run)
    for test, schedules in tests.items():
        for item in schedules:
            name = saved.save_schedule(files, make_capture(item))
            append_line(files / "tests" / f"{name_test(test)}-1-a.jsonl", saved.AskedSchedule(test, name, item.line))
    return load_run(folder)


def make_program(name: str, nodes: tuple[int, ...], **changes: Any) -> Kernel:
    """A kernel that computes some nodes, the last of which it writes; its source is like no other's."""
    source = f"void {name}() {{ {changes.pop('body', name)}; }}\n"
    return make_kernel(name, source, nodes=nodes, outputs=nodes[-1:], lines=("test_a.py:3",), key=name, **changes)


def two_kernels() -> Schedule:
    """A reduce, and an elementwise kernel that reads it."""
    reduce = replace(NODES[1], realized=Realized((), "ending-ranges", "ending-ranges"))
    kernels = (make_program("r_4", (1,)), make_program("E_4", (2,)))
    return make_schedule(nodes=(NODES[0], reduce, NODES[2]), kernels=kernels, line="test_a.py:3")


def one_kernel(**changes: Any) -> Schedule:
    """The same in one kernel."""
    return make_schedule(nodes=NODES, kernels=(make_program("r_4_4", (1, 2), **changes),), line="test_a.py:3")


def compare(tmp_path: Path, before: dict[str, list[Schedule]], after: dict[str, list[Schedule]]) -> SuiteDiff:
    return compare_runs(save_run(tmp_path / "before", before), save_run(tmp_path / "after", after))


def compare_one(tmp_path: Path, before: list[Schedule], after: list[Schedule]) -> list[str]:
    found = compare(tmp_path, {"t": before}, {"t": after})
    return [name_change(group) for group in found.groups]


# *** kinds


def test_fused_and_split_are_called_so_and_the_realize_point_that_is_gone_is_named(tmp_path: Path) -> None:
    (group,) = compare(tmp_path / "1", {"t": [two_kernels()]}, {"t": [one_kernel()]}).groups
    assert name_change(group) == "2 kernels fused into 1 (r, E -> r)"
    assert group.causes == ("-REDUCE_AXIS: ending-ranges",)
    assert compare_one(tmp_path / "2", [one_kernel()], [two_kernels()]) == ["1 kernel split into 2 (r -> r, E)"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"executed_ops": 180}, "more ops (x1.8)"),
        ({"executed_ops": 50, "threads": 4}, "fewer ops (x0.5)"),
        ({"bytes": 128}, "more bytes moved (x2)"),
        ({"launches": 2, "executed_ops": 200, "bytes": 128}, "more launches (x2)"),
        ({"local_bytes": 512}, "more LOCAL memory"),
        ({"threads": 32}, "more threads (x32)"),
        ({"global_size": (2, 1, 1)}, "same work, other launch dimensions"),
        ({"body": "other"}, "source changed, same work"),
    ],
)
def test_a_kernel_that_changed_is_called_by_what_weighs_most(change: dict[str, Any], name: str, tmp_path: Path) -> None:
    assert compare_one(tmp_path, [one_kernel()], [one_kernel(**change)]) == [name]


def test_kernels_in_another_order(tmp_path: Path) -> None:
    nodes = (NODES[0], NODES[1], replace(NODES[2], src=(0,)))
    kernels = (make_program("r_4", (1,)), make_program("E_4", (2,)))
    before = make_schedule(nodes=nodes, kernels=kernels)
    after = make_schedule(nodes=nodes, kernels=kernels[::-1])
    assert compare_one(tmp_path, [before], [after]) == ["the same kernels in another order"]


def test_schedules_and_copies_that_are_new(tmp_path: Path) -> None:
    other = make_schedule(nodes=(replace(NODES[0], arg="9"),), kernels=(make_program("E_9", (0,)),), line="test_a.py:9")
    assert compare_one(tmp_path / "1", [one_kernel()], [one_kernel(), other]) == ["a new schedule of 1 kernel"]
    assert compare_one(tmp_path / "2", [one_kernel(), other], [one_kernel()]) == ["a schedule of 1 kernel is gone"]
    with_copy = replace(one_kernel(), copies=1)
    assert compare_one(tmp_path / "3", [one_kernel()], [with_copy]) == ["more copies"]
    assert compare_one(tmp_path / "4", [with_copy], [one_kernel()]) == ["fewer copies"]


def test_changes_that_have_a_kernel_in_common_are_one() -> None:
    """A value that moves from kernel to kernel touches several: summed up one by one they would cost too much."""
    before = [KernelSide(number, make_program(f"r_{number}", (number + 1,))) for number in range(5)]
    after = [KernelSide(number, make_program(f"r_{number}9", (1, number + 2))) for number in range(4)]
    split = KernelChange("split-into", "nodes", (before[1],), (after[0], after[1]), ())
    other = KernelChange("split-into", "nodes", (before[3],), (after[0], after[2]), ())
    fused = KernelChange("fused-from", "nodes", (before[2], before[3]), (after[2],), ())
    alone = KernelChange("changed", "outputs", (before[4],), (after[3],), ("source",))
    assert join_related([split, fused, alone, other], {}) == [[alone], [split, fused, other]]
    # what it wrote is computed by a kernel of the other side
    gone = KernelChange("only-before", "", (before[0],), (), ())
    assert join_related([split, gone], {1: 1}) == [[split, gone]]
    assert join_related([split, gone], {1: 7}) == [[split], [gone]]


def test_names_and_lines_are_not_a_change(tmp_path: Path) -> None:
    """A process numbers its kernels by what ran before, and a test file may have got a comment."""
    kernel = make_program("r_4_4", (1, 2))
    renamed = replace(kernel, name="r_4_4n7", source=kernel.source.replace("r_4_4()", "r_4_4n7()"))
    before, after = one_kernel(), replace(one_kernel(), kernels=(renamed,), line="test_a.py:7")
    assert saved.strip_schedule(before) == saved.strip_schedule(after)
    moved = tuple(replace(node, line="test_a.py:8") for node in NODES)
    found = compare(tmp_path, {"t": [before]}, {"t": [replace(after, nodes=moved)]})
    assert (found.unchanged, found.changed, found.groups) == (1, (), ())


# *** groups and ranks


def test_one_change_in_forty_tests_is_one_entry(tmp_path: Path) -> None:
    tests = [f"test_ops.py::TestOps::test_{number}" for number in range(40)]
    found = compare(tmp_path, {t: [two_kernels()] for t in tests}, {t: [one_kernel()] for t in tests})
    (group,) = found.groups
    assert (len(group.tests), group.count, len(found.changed)) == (40, 40, 40)
    assert "test_ops.py::TestOps::test_0 and 39 others" in render(found)
    assert "test_ops.py::TestOps::test_31" in render(found, show_all=True)


def test_a_little_more_and_sixty_times_more_are_two_changes(tmp_path: Path) -> None:
    before = {"a": [one_kernel()], "b": [one_kernel()]}
    found = compare(tmp_path, before, {"a": [one_kernel(executed_ops=105)], "b": [one_kernel(executed_ops=6000)]})
    assert [name_change(group) for group in found.groups] == ["more ops (x60)", "more ops (x1.05)"]


def test_what_costs_most_is_first_and_what_saves_most_last(tmp_path: Path) -> None:
    before = {"a": [one_kernel()], "b": [two_kernels()], "c": [one_kernel()]}
    after = {"a": [one_kernel(body="new")], "b": [one_kernel()], "c": [one_kernel(launches=9)]}
    found = compare(tmp_path, before, after)
    assert [group.kind for group in found.groups] == ["more-launches", "other-source", "fused"]
    assert [test.test for test in found.changed] == ["c", "a", "b"]
    text = render(found)
    assert text.index("Costs more") < text.index("more launches") < text.index("Costs the same")
    assert text.index("Costs the same") < text.index("Costs less") < text.index("fused into 1")


def test_one_thread_that_does_all_costs_more_than_many() -> None:
    one = make_program("r_4", (1,), executed_ops=1_000_000)
    assert estimate_cost(one) == 1_001_000
    assert estimate_cost(replace(one, threads=64)) == 16_625
    assert estimate_cost(replace(one, threads=64, bytes=10_000_000)) == 101_000


# *** what is not whole


def test_tests_of_one_side_are_listed_and_not_compared(tmp_path: Path) -> None:
    found = compare(tmp_path, {"a": [one_kernel()], "b": [two_kernels()]}, {"b": [two_kernels()], "c": [one_kernel()]})
    assert (found.unchanged, found.only_before, found.only_after, found.is_empty) == (1, ("a",), ("c",), True)


def test_damaged_files_are_named_and_their_tests_left_out(tmp_path: Path) -> None:
    tests = {"a": [one_kernel()], "b": [two_kernels()], "c": [two_kernels()]}
    before = save_run(tmp_path / "before", tests)
    after = save_run(tmp_path / "after", tests)
    (asked,) = after.tests["a"]
    name = after.folder / "run-1" / "schedules" / f"{asked.schedule}.json"
    name.write_text('{"schema": 1', encoding="utf-8")
    (half,) = (after.folder / "run-1" / "tests").glob(f"{name_test('b')}-*")
    half.write_text("{", encoding="utf-8")
    found = compare_runs(before, load_run(after.folder))
    assert found.left_out == ("a",)
    assert (found.only_before, found.unchanged) == ((), 1)
    assert len(found.damaged) == 2
    assert str(name) in "".join(found.damaged)
    assert str(half) in "".join(found.damaged)


def test_other_targets_are_refused(tmp_path: Path) -> None:
    before, after = save_run(tmp_path / "a", {}), save_run(tmp_path / "b", {}, target="metal")
    with pytest.raises(Failure, match=r"for c and .* for metal"):
        compare_runs(before, after)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "it has no run.json"),
        ("{", "is not a saved run that this vmapdbg reads"),
        ("[]", "Expected `object`, got `array`"),
        ('{"kind": "saved-run", "schema": 9}', "Invalid enum value 9 - at `$.schema`"),
        ('{"kind": "saved-run", "schema": 3}', "missing required field `folder`"),
    ],
)
def test_a_folder_that_is_not_a_saved_run_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(Failure, match=re.escape(message)):
        load_run(tmp_path)


def test_foreign_files_are_never_replaced(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    for file in (thesis, tmp_path / "run.json"):
        file.write_text("{}", encoding="utf-8")
        with pytest.raises(Failure, match=r"holds thesis\.txt, which is not a saved run"):
            prepare_folder(tmp_path)
    assert thesis.exists()


def test_an_earlier_run_stays_until_the_new_one_writes(tmp_path: Path) -> None:
    earlier = save_run(tmp_path / "run", {"a": [one_kernel()]})
    prepare_folder(earlier.folder)
    new = replace(earlier.run, folder="run-2")
    assert not saved.end_run(earlier.folder, new)
    assert load_run(earlier.folder).tests.keys() == {"a"}
    start_run(earlier.folder, new)
    assert load_run(earlier.folder).tests == {}
    assert saved.end_run(earlier.folder, replace(new, status=3))
    assert load_run(earlier.folder).run.status == 3
    assert sorted(item.name for item in earlier.folder.iterdir()) == ["run-2", "run.json"]


# *** how it is shown


def render(found: SuiteDiff, *, show_all: bool = False, **options: Any) -> str:
    out = StringIO()
    settings: dict[str, Any] = {"width": 80, "color_system": None, **options}
    console = Console(file=out, highlight=False, markup=False, emoji=False, **settings)
    print_suite(found, console, show_all=show_all)
    return out.getvalue()


STRANGE = "test_a.py::test_b[\x1b[31m|`<b>*_\u202e@team " + "x" * 300 + "]"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_lines_fit_the_page_and_carry_no_control_characters(width: int, tmp_path: Path) -> None:
    found = compare(
        tmp_path, {STRANGE: [two_kernels()], "a": [one_kernel()]}, {STRANGE: [one_kernel()], "b": [one_kernel()]}
    )
    text = render(found, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_changed_checkout_is_distinguished_from_its_commit(tmp_path: Path) -> None:
    versions = Versions("0.1.0", "0.13.0", "3.11.7", "../tinygrad", "3f2a91c7d0be" + "0" * 28 + "-dirty")
    before = save_run(tmp_path / "before", {"a": [one_kernel()]}, versions=versions)
    text = render(compare_runs(before, save_run(tmp_path / "after", {"a": [one_kernel()]})), width=200)
    assert f"before  {tmp_path / 'before'}, tinygrad 0.13.0 (3f2a91c7d0be-dirty), observed" in text


def test_colours_only_on_a_terminal(tmp_path: Path) -> None:
    found = compare(tmp_path, {"a": [two_kernels()]}, {"a": [one_kernel()]})
    terminal = {"force_terminal": True, "color_system": "standard"}
    assert "\x1b[32m" in render(found, **terminal)
    assert "\x1b[3" not in render(found, **terminal, no_color=True)


def test_one_test_is_the_diff_of_its_captures(tmp_path: Path) -> None:
    before = save_run(tmp_path / "before", {"a": [two_kernels()]})
    after = save_run(tmp_path / "after", {"a": [one_kernel()]})
    found = diff_test(before, after, "a")
    assert [change.status for schedule in found.schedules for change in schedule.kernels] == ["fused-from"]
    with pytest.raises(Failure, match="has no test b"):
        diff_test(before, after, "b")
