"""Patches as switches in a real browser: each shows its state, by mouse and by keyboard; no other is offered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import failed_snippet, lost_range, make_capture, make_kernel, make_schedule
from opened import EVIL, Opened, open_in_notebook, open_page

from vmapdbg.install.patches import SWITCHABLE, PatchState, list_states
from vmapdbg.model.capture import Capture
from vmapdbg.page.html.page import render_states
from vmapdbg.page.html.source import SourceFile, list_lines

pytestmark = pytest.mark.browser
FAULTY, FAILED = "fuse-broadcast", "close-ranges"


def write(folder: Path, states: list[tuple[PatchState, Capture]]) -> Path:
    path = folder / "report.html"
    names = dict.fromkeys(line.rpartition(":")[0] for _, capture in states for line in list_lines(capture))
    text = "".join(f"x{number} = y\n" for number in range(60))
    path.write_text(render_states(states, [SourceFile(name, text) for name in names]), encoding="utf-8")
    return path


def make_states() -> list[tuple[PatchState, Capture]]:
    """The fault appears with no patch, and without one patch; without another patch the snippet fails."""
    broken = lost_range(fixed=False)
    found = {FAILED: failed_snippet(), FAULTY: broken}
    first = lost_range()
    return [(state, found.get(state.off, first if state.patches else broken)) for state in list_states()]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    with open_page(browser, write(tmp_path, make_states())) as report:
        yield report


def switch(report: Opened, name: str) -> Any:
    return report.page.get_by_label(name)


def find_checked(report: Opened) -> list[str]:
    script = "all => all.filter(e => e.querySelector('input').checked).map(e => e.querySelector('span').textContent)"
    return report.page.eval_on_selector_all(".switch", script)


def find_source(report: Opened) -> str:
    """The source of all kernels that the page shows."""
    return "".join(report.page.eval_on_selector_all(".code", "all => all.map(e => e.textContent)"))


def test_it_opens_with_all_patches_on(opened: Opened) -> None:
    assert find_checked(opened) == list(SWITCHABLE)
    assert opened.text("#said") == "Shown: all patches on, 2 kernels"
    assert opened.page.locator("tr.has").count() > 0
    assert opened.page.locator("figure .graph").is_visible()


def test_a_switch_shows_the_state_without_its_patch(opened: Opened) -> None:
    before = find_source(opened)
    switch(opened, FAULTY).click()
    assert find_checked(opened) == [name for name in SWITCHABLE if name != FAULTY]
    assert opened.text("#said") == f"Shown: without {FAULTY}, 2 kernels"
    assert find_source(opened) != before
    assert opened.page.locator("figure .graph").is_visible()
    switch(opened, FAULTY).click()
    assert find_checked(opened) == list(SWITCHABLE)
    assert find_source(opened) == before


def test_two_patches_are_never_off_together_but_for_none(opened: Opened) -> None:
    """Such a state was not captured."""
    switch(opened, FAULTY).click()
    switch(opened, "nested-ranges").click()
    assert find_checked(opened) == [name for name in SWITCHABLE if name != "nested-ranges"]
    switch(opened, "none").click()
    assert find_checked(opened) == ["none"]
    assert opened.text("#said") == "Shown: no patch on, 2 kernels"
    switch(opened, "nested-ranges").click()
    assert find_checked(opened) == list(SWITCHABLE)
    switch(opened, "none").click()
    switch(opened, "none").click()
    assert find_checked(opened) == list(SWITCHABLE)


def test_a_state_that_failed_shows_its_error_and_the_others_stay(opened: Opened) -> None:
    switch(opened, FAILED).click()
    assert "shape mismatch" in opened.text(".failed")
    assert opened.page.locator("details.kernel").count() == 0
    switch(opened, FAILED).click()
    assert opened.page.locator(".failed").count() == 0
    assert opened.page.locator("details.kernel").count() == 2


def test_what_is_selected_stays_so(opened: Opened) -> None:
    opened.page.locator("tr.has td.num button").last.click()
    lit = opened.text("#why h4")
    switch(opened, FAULTY).click()
    assert opened.text("#why h4") == lit
    assert opened.page.locator("tr.chosen").count() == 1
    # what another state does not have is not selected there, and the switch works on
    switch(opened, FAILED).click()
    assert opened.page.locator(".lit").count() == 0
    switch(opened, FAILED).click()
    assert opened.page.locator("details.kernel").count() == 2


def test_the_switches_are_used_by_keyboard(opened: Opened) -> None:
    switch(opened, SWITCHABLE[0]).focus()
    opened.page.keyboard.press("Tab")
    opened.page.keyboard.press("Space")
    assert find_checked(opened) == [name for name in SWITCHABLE if name != SWITCHABLE[1]]
    # the focus is still there
    opened.page.keyboard.press("Space")
    assert find_checked(opened) == list(SWITCHABLE)


def test_links_search_and_zoom_work_in_every_state(opened: Opened) -> None:
    switch(opened, FAULTY).click()
    opened.page.click("details.kernel summary")
    assert opened.lit("tr")
    assert opened.lit(".box.kernel")
    opened.page.fill("#search", "r_3_2_2_2")
    assert "kernel" in opened.text("#hits")
    opened.page.keyboard.press("Escape")
    before = opened.page.get_attribute("svg.graph", "viewBox")
    opened.page.click("#in")
    assert opened.page.get_attribute("svg.graph", "viewBox") != before


def test_an_address_opens_at_its_state_and_place(opened: Opened) -> None:
    switch(opened, FAULTY).click()
    opened.page.locator("details.kernel summary").nth(1).click()
    number = 2 + SWITCHABLE.index(FAULTY)
    assert opened.page.url.endswith(f"#state={number}&kernel=1")
    opened.page.reload()
    assert opened.text("#said").startswith(f"Shown: without {FAULTY}")
    assert opened.page.locator("details.kernel.chosen").count() == 1
    opened.page.goto(opened.page.url.partition("#")[0] + "#state=99")
    opened.page.reload()
    assert find_checked(opened) == list(SWITCHABLE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_the_switches_are_in_view(scheme: str, width: int, browser: Any, tmp_path: Path) -> None:
    report = Opened(browser, write(tmp_path, make_states()), color_scheme=scheme)
    report.page.set_viewport_size({"width": width, "height": 900})
    assert report.page.evaluate("document.documentElement.scrollWidth") <= width
    for box in report.page.locator(".switch").all():
        place = box.bounding_box()
        assert place["x"] + place["width"] <= width
        assert place["y"] + place["height"] <= 900
    assert report.said == []


def test_the_switches_work_inside_a_notebook(browser: Any, tmp_path: Path) -> None:
    """There the page has no address of its own."""
    opened, frame = open_in_notebook(browser, write(tmp_path, make_states()), tmp_path)
    address = opened.page.url
    frame.get_by_label(FAULTY).click()
    assert frame.locator("#said").inner_text().startswith(f"Shown: without {FAULTY}")
    frame.locator("details.kernel summary").first.click()
    assert frame.locator("tr.lit").count() > 0
    assert opened.page.url == address
    assert opened.said == []


def test_hostile_names_stay_text_in_every_state(browser: Any, tmp_path: Path) -> None:
    sides = [
        replace(
            make_capture(make_schedule(kernels=(make_kernel(EVIL + name, EVIL, key=name, lines=(f"{EVIL}:1",)),))),
            snippet=EVIL,
        )
        for name in "ab"
    ]
    states = [(state, sides[0] if state.patches else sides[1]) for state in list_states()]
    report = Opened(browser, write(tmp_path, states))
    for name in ("none", SWITCHABLE[0]):
        switch(report, name).click()
        report.page.click("details.kernel summary")
        assert report.page.locator("img").count() == 0
    assert report.page.title() != "hacked"
    assert report.said == []
