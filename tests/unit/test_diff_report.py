"""The report of two sides: what of a diff is in the page, and that nothing of a user's is more than text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from captures import (
    NEW,
    OLD,
    failed_snippet,
    long_graph,
    lost_range,
    make_capture,
    make_kernel,
    make_node,
    make_schedule,
    sum_and_add,
)
from click.testing import CliRunner
from diff_captures import draw_capture, mutate_capture
from hypothesis import given, settings
from hypothesis import strategies as st
from test_report import EVIL, Page, check_loads_nothing, check_names_are_text, read_data

from vmapdbg.commands.cli import main
from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.pairing import match_lines
from vmapdbg.model.capture import Capture, Finding, Realized
from vmapdbg.model.store import save_capture
from vmapdbg.page.html.page import render_report
from vmapdbg.page.html.source import SourceFile
from vmapdbg.page.view import View

LINES = match_lines(OLD, NEW, ("old.py", "new.py"))
BEFORE, AFTER = sum_and_add("old.py", 3, "1.0f", 900), sum_and_add("new.py", 4, "2.0f", 300)


def render(before: Capture = BEFORE, after: Capture = AFTER, *files: SourceFile) -> str:
    comparison = View.of_two(before, after, diff_captures(before, after, same_lines=LINES))
    left, right = files or (SourceFile("old.py", OLD), SourceFile("new.py", NEW))
    return render_report(comparison, [right], files_before=[left])


def test_changes_come_first_and_equal_parts_last() -> None:
    text = render()
    check_loads_nothing(text)
    assert [kernel[0] for kernel in read_data(text)["kernels"]] == ["r_64", "E_64"]
    rows = re.findall(r'<details class="kernel (\S+)"', text)
    assert rows == ["changed", "unchanged"]
    assert "1 change, the largest first" in Page(text).text


def test_totals_have_both_sides_and_the_ratio() -> None:
    text = " ".join(Page(render()).text.split())
    assert "executed ops 1,000 → 400 (0.40x)" in text
    assert "before old.py" in text
    assert "after new.py" in text


def test_both_edits_of_a_file_are_one_listing() -> None:
    """Lines that moved are one row with both numbers, an edited one is removed and added."""
    page = Page(render())
    rows = [a for a in page.find("tr") if "data-line" in a or (a.get("class") or "") in ("added", "removed", "same")]
    kinds = [(a.get("class") or "").split()[-2:] for a in rows if "data-line" in a]
    assert kinds == [["added", "moved"], ["has", "same"]]
    assert [a.get("class") for a in rows].count("removed") == 1
    text = " ".join(page.text.split())
    assert "900 → 300 (0.33x)" in text


def test_lines_kernels_and_nodes_are_linked() -> None:
    text = render()
    data = read_data(text)
    numbers = {line[1]: number for number, line in enumerate(data["lines"])}
    assert set(numbers) == {"new.py:4", "new.py:5"}
    assert [kernel[1] for kernel in data["kernels"]] == [[numbers["new.py:4"]], [numbers["new.py:5"]]]
    first, second = (numbers["new.py:4"], [0]), (numbers["new.py:5"], [1])
    nodes = {key: (node[1], node[2]) for key, node in data["nodes"].items()}
    assert nodes == {"0:2": first, "0:3": first, "0:5": second}
    boxes = [a for tag, a in Page(text).elements if tag == "g" and "box" in (a.get("class") or "").split()]
    # both sides are drawn
    assert sorted(box.get("data-kernels") or "" for box in boxes if box.get("data-kernels")) == ["0", "0", "1", "1"]
    assert sum("changed" in (box.get("class") or "").split() for box in boxes) == 2


def test_nodes_of_the_two_sides_are_distinguished() -> None:
    extra = make_node(9, "CONTIGUOUS", src=(3,), line="old.py:3", realized=Realized((0,), "always", ""))
    schedule = BEFORE.schedules[0]
    kernels = (replace(schedule.kernels[0], nodes=(2, 3, 9), outputs=(9,)), schedule.kernels[1])
    before = replace(BEFORE, schedules=(replace(schedule, nodes=(*schedule.nodes, extra), kernels=kernels),))
    nodes = read_data(render(before))["nodes"]
    assert "b0:9" in nodes
    assert "0:9" not in nodes


def test_source_is_marked_where_it_changed() -> None:
    page = Page(render())
    assert len(page.find("span", **{"class": "mk"})) == 2
    text = " ".join(page.text.split())
    assert "1.0f +data0[1]" in text.replace("1.0f+", "1.0f +")
    assert len(page.find("div", **{"class": "pair"})) == 1


def test_source_of_a_fused_kernel_stands_beside_that_of_its_parts() -> None:
    """As `diff` has it: equal lines are next to each other, whichever part they are from."""
    schedule = BEFORE.schedules[0]
    head, *body, end = schedule.kernels[0].source.splitlines(keepends=True)
    source = "".join([head.replace("r_64", "rE_64"), *body, "  int more = 2;\n", end])
    kernel = replace(schedule.kernels[0], name="rE_64", nodes=(2, 3, 5), outputs=(5,), key="rE", source=source)
    page = render(BEFORE, replace(BEFORE, schedules=(replace(schedule, kernels=(kernel,)),)))
    rows = re.findall(r'<div class="pair( same)?">(.*?)</div>', page)
    texts = [(same, [Page(part).text.strip() for part in re.findall(r"<code.*?</code>", row)]) for same, row in rows]
    assert ("", ["// #0 r_64", ""]) in texts
    assert (" same", ["data0[0] = 1.0f+data0[1];"] * 2) in texts
    assert ("", ["", "int more = 2;"]) in texts
    assert ("", ["// #1 E_64", ""]) in texts


def test_findings_that_are_new_or_gone_stand_on_top_and_at_their_line() -> None:
    gone = replace(BEFORE, findings=(Finding("VD104", "r_64", 3, "old.py:3", "much work", 0, 0, 1, ""),))
    new = replace(AFTER, findings=(Finding("VD101", "r_64", 3, "new.py:5", "lost", 0, 0, 1, ""),))
    text = " ".join(Page(render(gone, new)).text.split())
    assert "Findings: 1 gone, 1 new" in text
    assert "no more VD104: much work" in text
    assert "new: VD101 lost" in text


def test_what_a_user_names_is_text() -> None:
    def build(name: str) -> Capture:
        kernel = make_kernel(EVIL + name, f"{EVIL}{name}\n", nodes=(3,), outputs=(3,), lines=(f"{EVIL}:3",))
        why = Realized((0,), EVIL + name, EVIL)  # type: ignore[arg-type]
        node = make_node(3, EVIL + name, arg=EVIL, dtype=EVIL, line=f"{EVIL}:3", realized=why)
        finding = Finding("VD101", EVIL, 3, f"{EVIL}:{len(name)}", EVIL, 0, 0, 1, EVIL)
        schedule = make_schedule(nodes=(node,), kernels=(kernel,))
        return replace(make_capture(schedule, snippet=EVIL + name), findings=(finding,))

    before, after = build("a"), build("bb")
    found = diff_captures(before, after, (EVIL, EVIL + "x"), names=(EVIL, EVIL + "y"))
    files = [SourceFile(EVIL, f"\n\n{EVIL}", EVIL)], [SourceFile(EVIL, f"\n{EVIL}\n", EVIL)]
    text = render_report(View.of_two(before, after, found), files[1], EVIL, files[0])
    check_names_are_text(text)


@settings(max_examples=5, deadline=None)
@given(draw_capture(), st.integers(0, 10**6))
def test_every_diff_has_a_page(capture: Capture, seed: int) -> None:
    render(capture, mutate_capture(capture, seed))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lost_range(fixed=False), lost_range()),
        (lost_range(), failed_snippet()),
        (failed_snippet(), failed_snippet()),
        (make_capture(), long_graph()),
    ],
    ids=["fixed", "failed", "both-failed", "from-nothing"],
)
def test_any_sides_have_a_page(before: Capture, after: Capture) -> None:
    data = read_data(render(before, after))
    for _, lines, title, _ in data["kernels"]:
        assert all(0 <= line < len(data["lines"]) for line in lines)
        assert 0 <= title < len(data["texts"])


def test_two_saved_captures_are_written_as_a_page(tmp_path: Path) -> None:
    for name, capture in (("a.json", BEFORE), ("b.json", AFTER)):
        save_capture(capture, tmp_path / name)
    output = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "-o", str(output)])
    assert done.exit_code == 0, done.output
    text = Page(output.read_text("utf-8")).text
    assert "a.json" in text
    assert "this file is not here" in text
