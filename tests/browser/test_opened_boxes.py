"""Boxes of several kernels in a report's drawing: opened by mouse and by keyboard, linked, and closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from captures import make_capture, make_kernel, make_node, make_schedule, training_step
from opened import Opened

from vmapdbg.model.capture import Capture
from vmapdbg.page.html.page import render_report
from vmapdbg.page.html.source import SourceFile
from vmapdbg.page.view import View

pytestmark = pytest.mark.browser
FOLDED = ".part:not([hidden]) .box.folded"


def open_page(browser: Any, folder: Path, capture: Capture, **options: Any) -> Opened:
    path = folder / "report.html"
    path.write_text(render_report(View.of_one(capture), [SourceFile("net.py", "x = y\n" * 60)]), encoding="utf-8")
    opened = Opened(browser, path, **options)
    opened.page.set_default_timeout(5000)
    return opened


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    report = open_page(browser, tmp_path, training_step())
    yield report
    assert report.said == []
    report.page.close()


def open_box(report: Opened, words: str) -> None:
    """Clicks it while the whole drawing is in view."""
    report.page.click("#fit")
    report.page.locator(FOLDED, has_text=words).click()


def count_boxes(report: Opened) -> int:
    return report.page.locator(".part:not([hidden]) .box").count()


def test_the_first_view_has_few_boxes_that_can_be_read(opened: Opened) -> None:
    assert count_boxes(opened) <= 60
    assert opened.page.evaluate("document.querySelector('.graph').viewBox.baseVal.width") < 1300
    assert "click opens it" in opened.text("figcaption >> nth=0")


def test_a_box_opens_and_marks_its_contents(opened: Opened) -> None:
    open_box(opened, "30 of each of 2 kinds")
    assert opened.text(".part:not([hidden]) .trail").startswith("all \u203a ")
    assert 30 < count_boxes(opened) <= 60
    assert "of 30 that are alike" in opened.text(".part:not([hidden]) figcaption")
    # boxes that are alike are in rows
    _, _, width, height = map(float, opened.page.get_attribute(".part:not([hidden]) .graph", "viewBox").split())
    assert width < 900 < 4 * height
    kernels = opened.page.locator("details.kernel.lit")
    assert kernels.count() == 60
    assert opened.page.locator("tr.lit").count() == 2
    assert opened.page.locator("#why .from button").count() == 60
    # a kernel of it is selected as any other
    opened.page.locator("#why .from button").first.click()
    assert opened.page.locator("details.kernel.chosen").count() == 1
    assert "#kernel=" in opened.page.url
    assert opened.page.locator(".part:not([hidden]) .trail").count() == 1, "it is inside of what is open"


def test_a_box_is_opened_and_closed_by_keyboard(opened: Opened) -> None:
    before = count_boxes(opened)
    opened.page.locator(FOLDED, has_text="30 of each of 2 kinds").focus()
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.textContent") == "all"
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.closest('.part:not([hidden])') !== null")
    opened.page.keyboard.press("Shift+Tab")
    opened.page.keyboard.press("Enter")
    assert count_boxes(opened) == before
    assert "30 of each of 2 kinds" in opened.page.evaluate("document.activeElement.getAttribute('aria-label')")


def test_a_kernel_inside_of_a_box_lights_the_box_up(opened: Opened) -> None:
    lines = opened.page.evaluate("JSON.parse(document.getElementById('data').textContent).lines")
    opened.click_line([line[0] for line in lines].index("net.py:31"))
    label = opened.page.get_attribute(".part:not([hidden]) .box.folded.lit", "aria-label")
    assert "30 of each of 2 kinds" in label


def test_a_selection_outside_of_the_open_box_is_shown_in_the_whole_drawing(opened: Opened) -> None:
    open_box(opened, "30 of each of 2 kinds")
    opened.click_line(0)
    assert opened.page.locator(".part:not([hidden]) .trail").count() == 0
    assert opened.page.locator(".part:not([hidden]) .box.lit").count() > 0


def test_the_whole_is_shown_by_the_trail(opened: Opened) -> None:
    before = count_boxes(opened)
    open_box(opened, "30 of each of 2 kinds")
    opened.page.click(".part:not([hidden]) .trail button")
    assert count_boxes(opened) == before
    assert not opened.page.locator(".trail").first.is_visible()


def test_a_repeated_layer_is_opened(browser: Any, tmp_path: Path) -> None:
    """It shows one of several equal layers."""
    nodes = tuple(make_node(n, "MUL" if n % 2 else "ADD", src=(n - 1,) * (n > 0), line="net.py:3") for n in range(24))
    names = ("r_8", "E_8")
    kernels = tuple(
        make_kernel(names[n % 2], key=names[n % 2], nodes=(n,), outputs=(n,), lines=("net.py:3",)) for n in range(24)
    )
    report = open_page(browser, tmp_path, make_capture(make_schedule(nodes=nodes, kernels=kernels)))
    report.page.click("#fit")
    report.page.locator(".part:not([hidden]) .box.repeat").click()
    assert report.page.locator(".part:not([hidden]) .box.kernel").count() == 2
    assert report.page.locator("details.kernel.lit").count() == 2
    assert report.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 2560])
def test_the_graph_alone_is_as_wide_as_the_page(scheme: str, width: int, browser: Any, tmp_path: Path) -> None:
    report = open_page(browser, tmp_path, training_step(), color_scheme=scheme)
    report.page.set_viewport_size({"width": width, "height": 900})
    report.page.check("#wide")
    graph = ".part:not([hidden]) .graph"
    assert report.page.locator(".part:not([hidden]) .sheet").bounding_box()["width"] > 0.95 * width
    assert not report.page.locator("#kernels").is_visible()
    # letters of at least 8 pixels
    scale = f"document.querySelector('{graph}').getScreenCTM().a"
    assert report.page.evaluate(scale) * 10 >= 8
    report.page.uncheck("#wide")
    assert report.page.locator("#kernels").is_visible()
    assert report.said == []
