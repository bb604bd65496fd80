"""What a user reads in `vmapdbg diff`: the verdict first, only what changed, at any width, in colour and in a pipe.

UPDATE_GOLDEN=1 writes the golden texts again; look at their changes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import (
    failed_snippet,
    long_graph,
    lost_range,
    make_capture,
    make_kernel,
    make_node,
    make_schedule,
    many_kernels,
)
from diff_captures import diff_pair, draw_capture, mutate_capture
from hypothesis import given, settings
from hypothesis import strategies as st
from rendered import assert_same_but_coloured, flatten, print_to_text
from rich.cells import cell_len

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.result import CaptureDiff
from vmapdbg.model.capture import Capture, Finding, Output, SnippetError
from vmapdbg.model.store import load_capture
from vmapdbg.page.sections import SECTIONS
from vmapdbg.page.text import kernels
from vmapdbg.page.text.run import print_capture, print_diff
from vmapdbg.page.text.view import ScheduleView

GOLDEN = Path(__file__).parent.parent / "golden"
PRINTED = (
    "reduce+index    [[7.0, 19.0], [7.0, 19.0], [7.0, 19.0]]\n",
    "reduce+index    [[3.0, 15.0], [5.0, 17.0], [7.0, 19.0]]\n",
)


def render(diff: CaptureDiff, width: int = 80, *, terminal: bool = False, **options: Any) -> str:
    return print_to_text(lambda console: print_diff(diff, console, **options), width, terminal=terminal)


def give_values(capture: Capture, *samples: tuple[float, ...]) -> Capture:
    outputs = tuple(Output((len(sample),), "double", repr(sample), sample) for sample in samples)
    return replace(capture, schedules=(replace(capture.schedules[0], outputs=outputs), *capture.schedules[1:]))


def make_fusion() -> CaptureDiff:
    nodes = tuple(make_node(i, "ADD", arg=str(i), line=f"a.py:{i}") for i in range(6))
    source = "void {name}(float* data0_6) {{\n  int alu0 = {number};\n}}\n"
    before = [
        make_kernel(name, source.format(name=name, number=i), nodes=(2 * i, 2 * i + 1), outputs=(2 * i + 1,), key=name)
        for i, name in enumerate(("r_a", "r_b", "E_c"))
    ]
    one = make_kernel("r_abc", source.format(name="r_abc", number=7), nodes=tuple(range(6)), outputs=(5,), threads=64)
    sides = [make_capture(make_schedule(nodes=nodes, kernels=tuple(side))) for side in (before, [one])]
    return diff_pair(sides)


def load_lost_range() -> CaptureDiff:
    sides = [load_capture(GOLDEN / f"lost_range_{side}.json") for side in ("before", "after")]
    return diff_pair(sides, PRINTED)


DIED = make_capture(error=SnippetError("ChildDied", "it was killed by SIGSEGV before it could report", None))
DIFFS = {
    "lost": diff_captures(lost_range(fixed=False), lost_range(), PRINTED),
    "real": load_lost_range(),
    "values": diff_captures(give_values(lost_range(), (7.0, 19.0)), give_values(lost_range(), (3.0, 19.0))),
    "same": diff_captures(lost_range(), lost_range(), ("a\n", "a\n")),
    "fusion": make_fusion(),
    "failed": diff_captures(failed_snippet(), lost_range()),
    "died": diff_captures(DIED, many_kernels()),
    "other": diff_captures(long_graph(), many_kernels()),
}
WIDTHS = (60, 80, 120, 200)


@pytest.mark.parametrize("width", [80, 160])
def test_golden(width: int) -> None:
    """Real captures of samples/lost_range.py; the whole text is compared."""
    file = GOLDEN / f"diff_lost_range_{width}.txt"
    output = render(DIFFS["real"], width)
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(output, encoding="utf-8")
    assert output == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("options", [{}, {"show_all": True}], ids=str)
@pytest.mark.parametrize("name", DIFFS)
@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_page_and_a_terminal_gets_the_same(
    name: str, width: int, options: dict[str, bool]
) -> None:
    output = render(DIFFS[name], width, **options)
    assert max(cell_len(line) for line in output.splitlines()) <= width
    assert all(line == line.rstrip() for line in output.splitlines())
    assert output.isascii()
    assert_same_but_coloured(render(DIFFS[name], width, terminal=True, **options), output)


@settings(max_examples=40, deadline=None)
@given(draw_capture(), st.integers(0, 10**6), st.integers(30, 200))
def test_any_diff_prints_the_same_twice_and_fits(capture: Capture, seed: int, width: int) -> None:
    diff = diff_captures(capture, mutate_capture(capture, seed))
    output = render(diff, width)
    assert output == render(diff, width)
    assert max(cell_len(line) for line in output.splitlines()) <= width


def test_the_verdict_is_the_first_line() -> None:
    first = render(DIFFS["fusion"], 200).splitlines()[0]
    assert first == "kernels 3 -> 1, executed ops 300 -> 100 (0.33x), moved 192 B -> 64 B (0.33x), threads 1 -> 64"
    values = render(DIFFS["values"], 200).splitlines()[0]
    assert values == "2 kernels the same, values different"
    output = render(DIFFS["same"])
    assert output.splitlines()[0] == "no change: 2 kernels the same"
    assert "= schedule 0  unchanged" in output
    assert "Source" not in output


@pytest.mark.parametrize("width", WIDTHS)
def test_an_added_range_is_marked(width: int) -> None:
    output = flatten(render(DIFFS["lost"], width))
    assert "(+rm1*, r2)" in output
    assert "!! before, ambient rm1 was NOT closed: only one iteration of it survived" in output


def test_findings_of_one_side_stand_under_a_heading() -> None:
    gone = Finding("VD101", "r_3", 7, "a.py:3", "kernel r_3 loses steps")
    lines = render(replace(DIFFS["lost"], findings_gone=(gone,), findings_new=())).splitlines()
    place = lines.index("Findings  1 gone")
    assert lines[place - 1] == ""
    assert lines[place + 1] == "- VD101 kernel r_3 loses steps (a.py:3)"


def test_what_did_not_change_is_one_line_and_changes_are_marked_inside_theirs() -> None:
    output = render(DIFFS["lost"])
    assert "= unchanged: 19 nodes, vmap_map, 1 BUFFERIZE" in output
    assert "VMAPOUT  (rm1, r0)" not in output
    lines = render(DIFFS["lost"]).splitlines()
    place = lines.index("-     *(data0_2+0) = (val3+val0);")
    assert lines[place + 1] == "        ^^^^^^^ ^"
    assert lines[place + 2] == "+     *(data0_6+alu0) = (val3+val0);"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fusion", ["fused from #0 r_a, #1 r_b, #2 E_c", "Kernels 3 -> 1 kernel: 1 fused"]),
        ("values", ["output 0 (2,) double: different at [0]: 7 -> 3; 1 of 2 sampled differ, by up to 4"]),
        ("other", ["different snippets: compared as far as their graphs agree"]),
        ("lost", ["Printed the first difference is in line 1 - reduce+index [[7.0, 19.0]"]),
    ],
)
def test_what_differs_is_named(name: str, words: list[str]) -> None:
    output = flatten(render(DIFFS[name]))
    assert all(part in output for part in words)
    assert "5.64M" not in output


def test_a_side_that_failed_or_died_is_shown_next_to_the_other() -> None:
    output = render(DIFFS["failed"], 200)
    first = output.splitlines()[0]
    assert first == "before RAISED ValueError before its first schedule; after made 1 schedule, 2 kernels"
    assert "!! before raised ValueError at lost_range.py:12" in output
    assert "[red](3, 4)[/red]" in output
    assert "+ schedule 0  only after  (2 kernels + 1 copy)" in output
    output = render(DIFFS["died"], 200)
    assert output.startswith("before DIED; after made 1 schedule, 24 kernels")
    assert "!! before died\n   it was killed by SIGSEGV before it could report" in output


def test_text_of_the_user_is_neither_markup_nor_an_escape() -> None:
    diff = diff_captures(lost_range(), lost_range(), ("[red]a[/red]\x1b[31m\n", "[b]\u202e\n"))
    output = render(diff)
    assert "- [red]a[/red]\\x1b[31m" in output
    assert "+ [b]\\u202e" in output


def test_long_lists_of_nodes_and_equal_changes_of_schedules_are_cut_to_a_line() -> None:
    (schedule,) = long_graph().schedules
    nodes = list(schedule.nodes)
    nodes[1::2] = [replace(node, in_ranges=(f"(r0*{node.id})",), out_ranges=("r0",)) for node in nodes[1::2]]
    diff = diff_captures(make_capture(schedule), make_capture(replace(schedule, nodes=tuple(nodes))))
    assert "more rows not shown: --all shows them" in render(diff)
    assert "more rows not shown" not in render(diff, show_all=True)
    sides = []
    for fixed in (False, True):
        (schedule,) = lost_range(fixed=fixed).schedules
        sides.append(make_capture(*(replace(schedule, index=i) for i in range(3))))
    output = render(diff_pair(sides))
    assert "~ schedules 1, 2  the changes of schedule 0 again" in output
    assert output.count("Source") == 1


def test_a_section_that_is_registered_once_is_in_show_and_diff(monkeypatch: pytest.MonkeyPatch) -> None:
    def print_lost(view: ScheduleView) -> None:
        for item in view.pair.bufferizes:
            if item.lost_before:
                after = ", ".join(item.lost_after) or "none"
                view.page.head("Lost", view.page.change(", ".join(item.lost_before), after))

    monkeypatch.setattr(kernels, "print_lost", print_lost, raising=False)
    monkeypatch.setitem(SECTIONS, "lost", "kernels:print_lost")
    before, after = lost_range(fixed=False), lost_range()
    assert "Lost  rm1\n" in print_to_text(lambda console: print_capture(before, console))
    assert "Lost  rm1 -> none\n" in render(diff_captures(before, after))
    only = print_to_text(lambda console: print_capture(before, console, only=["lost"]))
    assert "Lost  rm1" in only
    assert "Range map" not in only
