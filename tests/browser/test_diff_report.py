"""The report of two sides in a real browser: before and after are linked as the parts of a page of one side are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import NEW, OLD, make_capture, make_kernel, make_node, make_schedule, sum_and_add
from opened import EVIL, Opened, check_follows_system, check_names_are_text, open_page

from vmapdbg.diff.captures import diff_captures
from vmapdbg.diff.pairing import match_lines
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.page.html.page import render_report
from vmapdbg.page.html.source import SourceFile
from vmapdbg.page.view import View

pytestmark = pytest.mark.browser


def write(folder: Path, before: Capture, after: Capture, *files: SourceFile) -> Path:
    path = folder / "report.html"
    lines = match_lines(OLD, NEW, ("old.py", "new.py"))
    comparison = View.of_two(before, after, diff_captures(before, after, same_lines=lines))
    left, right = files or (SourceFile("old.py", OLD), SourceFile("new.py", NEW))
    path.write_text(render_report(comparison, [right], files_before=[left]), encoding="utf-8")
    return path


def make_sides() -> tuple[Capture, Capture]:
    """Before has a node that after does not have."""
    before = sum_and_add("old.py", 3, "1.0f", 900)
    (schedule,) = before.schedules
    nodes = (*schedule.nodes, make_node(9, "LOG2", src=(2,), line="old.py:3"))
    kernels = (replace(schedule.kernels[0], nodes=(2, 3, 9)), schedule.kernels[1])
    before = replace(before, schedules=(replace(schedule, nodes=nodes, kernels=kernels),))
    return before, sum_and_add("new.py", 4, "2.0f", 300)


SIDES = make_sides()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    with open_page(browser, write(tmp_path, *SIDES)) as report:
        yield report


def test_a_line_lights_up_its_kernel_on_both_sides(opened: Opened) -> None:
    opened.click_line(0)
    assert opened.lit("details[data-kernel]") == ["0"]
    assert opened.lit("tr[data-line]") == ["0"]
    assert opened.page.locator(".box.kernel.lit").count() == 2


def test_a_kernel_shows_what_changed_in_its_source(opened: Opened) -> None:
    opened.page.click("details.kernel summary")
    assert opened.lit("tr[data-line]") == ["0"]
    shown = opened.text("details.kernel .code")
    assert "1.0f" in shown
    assert "2.0f" in shown
    assert opened.page.locator("details.kernel .code .mk").count() == 2


def test_sides_are_next_to_each_other_if_the_page_is_wide(opened: Opened) -> None:
    opened.page.click("details.kernel summary")

    def find_places() -> list[float]:
        boxes = [opened.page.locator(f".pair:not(.same) code.{side}").first.bounding_box() for side in ("old", "fresh")]
        return [box["y"] for box in boxes]

    above, below = find_places()
    assert above < below
    opened.page.set_viewport_size({"width": 2560, "height": 900})
    assert len(set(find_places())) == 1


def find_drawing(report: Opened, side: str) -> Any:
    """The drawing of a side that is shown."""
    return report.page.locator(".drawing:not([hidden]) figure").filter(has=report.page.locator(f".side.{side}"))


def is_in_view(box: Any, graph: Any) -> bool:
    place, frame = box.bounding_box(), graph.bounding_box()
    across = frame["x"] - 1 <= place["x"] and place["x"] + place["width"] <= frame["x"] + frame["width"] + 1
    return across and frame["y"] - 1 <= place["y"] and place["y"] + place["height"] <= frame["y"] + frame["height"] + 1


@pytest.mark.parametrize(("side", "other"), [("before", "after"), ("after", "before")])
def test_a_kernel_of_one_drawing_lights_up_in_the_other(side: str, other: str, opened: Opened) -> None:
    find_drawing(opened, side).locator(".box.kernel.changed").click()
    assert opened.lit("details[data-kernel]") == ["0"]
    lit = find_drawing(opened, other).locator(".box.lit")
    assert lit.count() == 1
    assert "r_64" in lit.text_content()


def test_a_buffer_of_one_drawing_lights_up_in_the_other(opened: Opened) -> None:
    find_drawing(opened, "before").locator("[data-node='0:3']").click()
    assert find_drawing(opened, "before").locator(".lit.chosen").count() == 1
    assert find_drawing(opened, "after").locator(".lit.chosen").get_attribute("data-node") == "0:3"
    assert opened.text("#why h4").startswith("node 0/3")


@pytest.mark.parametrize("width", [500, 1280, 2560])
def test_both_drawings_are_seen_at_once(width: int, opened: Opened) -> None:
    """Beside each other; on a page that is not wide enough one below the other."""
    opened.page.set_viewport_size({"width": width, "height": 900})
    before, after = (find_drawing(opened, side).locator(".sheet").bounding_box() for side in ("before", "after"))
    assert min(before["width"], after["width"], before["height"], after["height"]) > 80
    assert before["x"] + before["width"] <= after["x"]


def test_on_a_narrow_page_the_drawings_are_stacked(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 360, "height": 900})
    before, after = (find_drawing(opened, side).bounding_box() for side in ("before", "after"))
    assert before["y"] + before["height"] <= after["y"]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360


def make_chain(file: str, count: int, number: str, last_only: int = 0) -> Capture:
    """A chain of kernels, too long to be seen whole; all of them have another source on each side."""
    # no two are alike: repeated kernels would be one box
    nodes = [make_node(i, f"OP{i}", (4 + i,), src=(i - 1,) if i else (), line=f"{file}:3") for i in range(count)]
    kernels = tuple(
        make_kernel(f"E_{i}", f"void E_{i}() {{ {number}; }}\n", key=f"{number} {i}", nodes=(i,), outputs=(i,))
        for i in range(count)
    )
    schedules = [make_schedule(nodes=tuple(nodes), kernels=kernels)]
    if last_only:
        alone = make_kernel("r_9", key=number, executed_ops=last_only)
        schedules.append(make_schedule(1, nodes=(make_node(0, "MUL", (77,)),), kernels=(alone,)))
    return make_capture(*schedules, snippet=file)


def test_what_belongs_together_comes_into_view_in_both_drawings(browser: Any, tmp_path: Path) -> None:
    report = Opened(browser, write(tmp_path, make_chain("old.py", 30, "1"), make_chain("new.py", 30, "2")))
    boxes = {side: find_drawing(report, side).get_by_label("kernel #29 E_29") for side in ("before", "after")}
    graphs = {side: find_drawing(report, side).locator(".sheet") for side in boxes}
    assert not any(is_in_view(boxes[side], graphs[side]) for side in boxes)
    # Tab brings a box into view, Enter selects it
    boxes["before"].focus()
    report.page.keyboard.press("Enter")
    for side in boxes:
        assert "lit" in boxes[side].get_attribute("class")
        assert is_in_view(boxes[side], graphs[side]), side
    # and so does a row of the kernels
    report.page.keyboard.press("Escape")
    report.page.locator("details.kernel summary").filter(has_text="E_0").first.click()
    for side in boxes:
        first = find_drawing(report, side).get_by_label("kernel #0 E_0")
        assert is_in_view(first, graphs[side]), side
    assert report.said == []


def test_a_schedule_of_one_side_alone_says_so(browser: Any, tmp_path: Path) -> None:
    report = Opened(browser, write(tmp_path, make_chain("old.py", 2, "1"), make_chain("new.py", 2, "2", last_only=900)))
    titles = report.page.locator("#schedule option").all_inner_texts()
    assert titles == ["schedule 1, only after", "schedule 0"]
    assert report.page.locator(".drawing:not([hidden]) figure").count() == 1
    report.page.select_option("#schedule", label="schedule 0")
    assert report.page.locator(".drawing:not([hidden]) figure").count() == 2
    report.page.locator("details.kernel summary").filter(has_text="r_9").click()
    assert report.page.input_value("#schedule") == "0"
    assert report.said == []


def test_a_node_of_before_alone_is_found_and_explained(opened: Opened) -> None:
    opened.page.fill("#search", "log2")
    opened.page.wait_for_selector("#hits button")
    assert "9 before" in opened.text("#hits")
    opened.page.keyboard.press("Enter")
    assert "LOG2" in opened.text("#why")
    assert opened.page.evaluate("location.hash") == "#node=b0:9"


def test_an_address_of_a_node_of_before_opens_at_its_place(browser: Any, tmp_path: Path) -> None:
    report = Opened(browser, write(tmp_path, *SIDES))
    report.page.goto((tmp_path / "report.html").as_uri() + "#node=b0:9")
    report.page.reload()
    assert "LOG2" in report.text("#why")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 2560])
def test_the_page_follows_the_system(scheme: str, width: int, browser: Any, tmp_path: Path) -> None:
    check_follows_system(browser, write(tmp_path, *SIDES), scheme, width)


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    sides: list[Capture] = []
    for name in ("a", "b"):
        finding = Finding("VD101", EVIL, 3, f"{EVIL}:{name}", EVIL, 0, 0, 1, EVIL)
        kernel = make_kernel(EVIL + name, EVIL + name, nodes=(3,), outputs=(3,), lines=(f"{EVIL}:1",))
        schedule = make_schedule(nodes=(make_node(3, EVIL, arg=name, line=f"{EVIL}:1"),), kernels=(kernel,))
        sides.append(replace(make_capture(schedule), snippet=EVIL, findings=(finding,)))
    report = Opened(browser, write(tmp_path, sides[0], sides[1], SourceFile(EVIL, EVIL), SourceFile(EVIL, EVIL)))
    check_names_are_text(report)
