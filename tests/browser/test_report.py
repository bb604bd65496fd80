"""The report in a real browser: it opens from disk, links, searches, zooms, opens boxes, and the console stays
empty.

Needs Chromium (`apt install chromium`) and playwright (`pip install -e '.[browser]'`), which drives it; nothing is
downloaded. If one of them is missing, the tests are skipped with a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import (
    long_graph,
    lost_range,
    make_capture,
    make_kernel,
    make_network,
    make_node,
    make_schedule,
    training_step,
)
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
    # the reasons are in the kernel itself, and the graph keeps its room
    assert name in opened.text("details.kernel[open] .code")
    assert "writes" in opened.text("details.kernel[open] .reasons")
    assert not opened.page.locator("#why").is_visible()
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


def test_search_finds_ops_shapes_and_methods(browser: Any, tmp_path: Path) -> None:
    nodes = (make_node(0, "ADD", (4, 5), method="gelu"), make_node(1, "MUL", (4, 5)), make_node(2, "ADD", (7,)))
    kernel = make_kernel("E_4", nodes=(0, 1, 2), outputs=(2,))
    with open_page(browser, write(tmp_path, make_capture(make_schedule(nodes=nodes, kernels=(kernel,))))) as report:
        for asked, found in (("add", 2), ("(4, 5)", 2), ("gelu", 1), ("5 add", 1), ("mul gelu", 0)):
            report.page.fill("#search", asked)
            assert report.page.locator("#hits .kind", has_text="node").count() == found, asked


def test_columns_sort_and_source_is_copied(opened: Opened) -> None:
    def list_names() -> list[str]:
        return opened.page.locator("#kernels summary .name").all_inner_texts()

    by_work = list_names()
    assert len(by_work) > 1
    opened.page.click(".sort[data-by=name]")
    assert list_names() == sorted(by_work)
    opened.page.click(".sort[data-by=name]")
    assert list_names() == sorted(by_work, reverse=True)
    opened.page.click(".sort[data-by=ops]")
    assert list_names() == by_work
    opened.page.click("details.kernel summary")
    opened.page.click("details.kernel[open] .copy")
    assert opened.text("details.kernel[open] .copy") == "copied"
    opened.page.fill("#search", "")
    opened.page.focus("#search")
    opened.page.keyboard.press("Control+v")
    assert opened.page.input_value("#search").startswith("void ")


def test_the_graph_has_most_of_the_page(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 1440, "height": 900})
    room, page = (opened.page.locator(part).bounding_box() for part in (".drawing .sheet", "main"))
    assert room["width"] > 0.4 * page["width"]
    assert room["height"] > 0.85 * page["height"]


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


# *** boxes of several kernels

FOLDED = ".part:not([hidden]) .box.folded"


@pytest.fixture
def training(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    with open_page(browser, write(tmp_path, training_step(40))) as report:
        yield report


def open_box(report: Opened, words: str) -> None:
    """Clicks it while the whole drawing is in view."""
    report.page.click("#fit")
    report.page.locator(FOLDED, has_text=words).click()


def count_boxes(report: Opened) -> int:
    return report.page.locator(".part:not([hidden]) .box").count()


def test_the_first_view_has_few_boxes_that_can_be_read(training: Opened) -> None:
    assert count_boxes(training) <= 60
    assert training.page.evaluate("document.querySelector('.graph').viewBox.baseVal.width") < 1300
    assert "click opens one" in training.text("figcaption >> nth=0")


def test_a_box_opens_and_marks_its_contents(training: Opened) -> None:
    open_box(training, "net.py:30")
    assert training.text(".part:not([hidden]) .trail").startswith("all \u203a ")
    assert 30 < count_boxes(training) <= 60
    assert "functions are boxes" in training.text(".part:not([hidden]) figcaption")
    # boxes that are alike are in rows
    _, _, width, height = map(float, training.page.get_attribute(".part:not([hidden]) .graph", "viewBox").split())
    assert width < 1000 < 4 * height
    kernels = training.page.locator("details.kernel.lit")
    assert kernels.count() == 40
    assert training.page.locator("tr.lit").count() == 1
    assert training.page.locator("#why .from button").count() == 40
    # a kernel of it is selected as any other
    training.page.locator("#why .from button").first.click()
    assert training.page.locator("details.kernel.chosen").count() == 1
    assert "#kernel=" in training.page.url
    assert training.page.locator(".part:not([hidden]) .trail").count() == 1, "it is inside of what is open"


def test_a_box_is_opened_and_closed_by_keyboard(training: Opened) -> None:
    before = count_boxes(training)
    training.page.locator(FOLDED, has_text="net.py:30").focus()
    training.page.keyboard.press("Enter")
    assert training.page.evaluate("document.activeElement.textContent") == "all"
    training.page.keyboard.press("Tab")
    assert training.page.evaluate("document.activeElement.closest('.part:not([hidden])') !== null")
    training.page.keyboard.press("Shift+Tab")
    training.page.keyboard.press("Enter")
    assert count_boxes(training) == before
    assert not training.page.locator(".trail").first.is_visible()
    assert "net.py:30" in training.page.evaluate("document.activeElement.getAttribute('aria-label')")


def test_a_kernel_inside_of_a_box_lights_the_box_up(training: Opened) -> None:
    lines = training.page.evaluate("JSON.parse(document.getElementById('data').textContent).lines")
    training.click_line([line[0] for line in lines].index("net.py:30"))
    label = training.page.get_attribute(".part:not([hidden]) .box.folded.lit", "aria-label")
    assert "net.py:30" in label


def test_a_selection_outside_of_the_open_box_is_shown_in_the_whole_drawing(training: Opened) -> None:
    open_box(training, "net.py:30")
    training.click_line(0)
    assert training.page.locator(".part:not([hidden]) .trail").count() == 0
    assert training.page.locator(".part:not([hidden]) .box.lit").count() > 0


def test_a_repeated_layer_is_opened(browser: Any, tmp_path: Path) -> None:
    """It shows one of several equal layers."""
    nodes = tuple(make_node(n, "MUL" if n % 2 else "ADD", src=(n - 1,) * (n > 0), line="net.py:3") for n in range(24))
    names = ("r_8", "E_8")
    kernels = tuple(
        make_kernel(names[n % 2], key=names[n % 2], nodes=(n,), outputs=(n,), lines=("net.py:3",)) for n in range(24)
    )
    report = Opened(browser, write(tmp_path, make_capture(make_schedule(nodes=nodes, kernels=kernels))))
    report.page.click("#fit")
    report.page.locator(".part:not([hidden]) .box.repeat").click()
    assert report.page.locator(".part:not([hidden]) .box.kernel").count() == 2
    assert report.page.locator("details.kernel.lit").count() == 2
    assert report.said == []


def test_the_page_begins_with_the_functions_and_a_click_leads_to_their_kernels(browser: Any, tmp_path: Path) -> None:
    """The way down: a function, its lines, their kernels."""
    report = Opened(browser, write(tmp_path, make_network()))
    rows = [text.split() for text in report.page.locator(".tree .fn:not(.head)").all_inner_texts()]
    assert [row[0] for row in rows] == ["<module>", "Block.__call__", "n.py:9"]
    assert rows[1][-9:] == ["800", "ms", "80%", "200", "67%", "75%", "2", "16", "B"]
    report.page.locator(".tree .to", has_text="Block.__call__").click()
    assert report.page.locator("details.kernel.lit").count() == 2
    assert report.page.locator(".tree details[open]").count() == 1, "the row stays open"
    report.page.locator(".tree .to", has_text="n.py:9").click()
    assert report.page.locator("details.kernel.lit").count() == 1
    report.page.locator(".tree summary.fn").first.click(position={"x": 4, "y": 8})
    assert not report.page.locator(".tree .to", has_text="n.py:9").is_visible()
    assert report.said == []


@pytest.mark.parametrize("width", [1280, 2560])
def test_the_graph_alone_is_as_wide_as_the_page(width: int, training: Opened) -> None:
    training.page.set_viewport_size({"width": width, "height": 900})
    training.page.check("#wide")
    graph = ".part:not([hidden]) .graph"
    assert training.page.locator(".part:not([hidden]) .sheet").bounding_box()["width"] > 0.95 * width
    assert not training.page.locator("#kernels").is_visible()
    # letters of at least 8 pixels
    scale = f"document.querySelector('{graph}').getScreenCTM().a"
    assert training.page.evaluate(scale) * 10 >= 8
    training.page.uncheck("#wide")
    assert training.page.locator("#kernels").is_visible()
