"""The report in a real browser: it opens from disk, links, searches, zooms, and the console stays empty.

Needs Chromium (`apt install chromium`) and playwright (`pip install -e '.[browser]'`), which drives it; nothing is
downloaded. If one of them is missing, the tests are skipped with a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import long_graph, lost_range, make_capture, make_kernel, make_node, make_schedule
from opened import EVIL, Opened, check_follows_system, check_names_are_text, open_page

from vmapdbg.model.capture import Capture, Finding
from vmapdbg.page.format import list_places
from vmapdbg.page.html.page import render_report
from vmapdbg.page.html.source import SourceFile
from vmapdbg.page.view import View

pytestmark = pytest.mark.browser


def write(folder: Path, capture: Capture, *files: SourceFile) -> Path:
    path = folder / "report.html"
    # hand-built captures name lines of files that are not what they say
    text = "".join(f"x{number} = y\n" for number in range(60))
    names = dict.fromkeys(line.rpartition(":")[0] for line in list_places(capture))
    sources = files or [SourceFile(name, text) for name in names]
    path.write_text(render_report(View.of_one(capture), sources), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    with open_page(browser, write(tmp_path, lost_range(fixed=False))) as report:
        yield report


def find_line(report: Opened, ending: str) -> int:
    lines = report.page.evaluate("JSON.parse(document.getElementById('data').textContent).lines")
    return next(number for number, line in enumerate(lines) if line[0].endswith(ending))


def test_a_line_lights_up_its_kernels(opened: Opened) -> None:
    capture = lost_range(fixed=False)
    kernel = capture.schedules[0].kernels[0]
    line = find_line(opened, kernel.lines[0].rpartition("/")[2])
    opened.click_line(line)
    assert str(line) in opened.lit("tr")
    names = opened.page.eval_on_selector_all("details.kernel.lit .name", "all => all.map(e => e.textContent)")
    assert kernel.name in names
    assert opened.lit(".box.kernel")
    assert opened.page.url.endswith(f"#line={line}")


def test_a_kernel_marks_its_lines_and_says_why(opened: Opened) -> None:
    name = opened.text("details.kernel summary .name")
    opened.page.click("details.kernel summary")
    assert name in opened.text("#why h4")
    assert opened.lit("tr")
    assert opened.lit(".box.kernel")
    assert opened.page.locator("details.kernel[open] .nodes button").count() > 0
    opened.page.click("details.kernel summary")
    assert opened.page.locator("details.kernel[open]").count() == 0


def test_a_node_of_a_kernel_is_explained(opened: Opened) -> None:
    opened.page.click("details.kernel summary")
    opened.page.click(".nodes button")
    assert opened.text("#why h4").startswith("node ")
    assert "read by" in opened.text("#why")


def test_a_box_selects_its_kernel(opened: Opened) -> None:
    opened.page.locator(".box.kernel").first.focus()
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("details.kernel.chosen[open]").count() == 1


def test_search_finds_and_selects(opened: Opened) -> None:
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("r_3_2_2_2")
    assert "kernel" in opened.text("#hits")
    opened.page.keyboard.press("Tab")
    opened.page.keyboard.press("Enter")
    assert opened.text("details.kernel.chosen .name").startswith("r_3_2_2")
    opened.page.fill("#search", "no such thing")
    assert opened.text("#hits") == "nothing found"


def test_keys_select_and_clear(opened: Opened) -> None:
    opened.page.locator("tr.has td.num button").nth(1).focus()
    opened.page.keyboard.press("Enter")
    lit = opened.lit("tr.chosen")
    assert lit == [opened.page.eval_on_selector_all("tr.has", "all => all[1].dataset.line")]
    opened.page.keyboard.press("Escape")
    assert opened.lit(".lit") == []


def test_zoom(opened: Opened) -> None:
    def width() -> float:
        return opened.page.locator("svg.graph").first.bounding_box()["width"]

    before = width()
    opened.page.click("#in")
    assert width() > before
    opened.page.click("#out")
    opened.page.click("#out")
    assert width() < before
    opened.page.click("#fit")
    sheet = "document.querySelector('.sheet')"
    assert opened.page.evaluate(f"{sheet}.scrollWidth <= {sheet}.clientWidth")
    assert opened.page.evaluate(f"{sheet}.scrollHeight <= {sheet}.clientHeight")


def test_text_stays_in_its_box(opened: Opened) -> None:
    """Boxes are as wide as Courier is: every monospace font of a browser is about that."""
    script = """boxes => boxes.flatMap(box => {
      const frame = box.querySelector("polygon, path").getBBox(), end = frame.x + frame.width + 1;
      return [...box.querySelectorAll("text")].map(t => t.getBBox()).filter(at => at.x + at.width > end);
    }).length"""
    assert opened.page.eval_on_selector_all(".box", script) == 0


def test_an_address_opens_at_its_place(browser: Any, tmp_path: Path) -> None:
    path = write(tmp_path, lost_range())
    report = Opened(browser, path)
    report.page.goto(path.as_uri() + "#kernel=0")
    report.page.reload()
    assert report.page.locator("details.kernel.chosen").count() == 1
    assert report.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 2560])
def test_the_page_follows_the_system(scheme: str, width: int, browser: Any, tmp_path: Path) -> None:
    check_follows_system(browser, write(tmp_path, long_graph()), scheme, width)


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    finding = Finding("VD101", EVIL, 3, f"{EVIL}:1", EVIL, 0, 0, 1, EVIL)
    kernel = make_kernel(EVIL, EVIL, nodes=(3,), outputs=(3,), lines=(f"{EVIL}:1",))
    node = make_node(3, EVIL, arg=EVIL, line=f"{EVIL}:1")
    schedule = make_schedule(nodes=(node,), kernels=(kernel,))
    capture = replace(make_capture(schedule), snippet=EVIL, findings=(finding,))
    report = Opened(browser, write(tmp_path, capture, SourceFile(EVIL, EVIL)))
    report.click_line(0)
    check_names_are_text(report)
