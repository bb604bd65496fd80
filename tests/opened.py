"""A page that a browser shows, for tests of what Chromium makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EVIL = "</script><img src=x onerror=document.title='hacked'>"


class Opened:
    """A report that a browser shows; `said` is what its console got."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(viewport={"width": 1280, "height": 800}, **options)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def lit(self, selector: str) -> list[str]:
        """The data of the elements that are lit."""
        script = "all => all.filter(e => e.classList.contains('lit')).map(e => Object.values(e.dataset)[0])"
        return self.page.eval_on_selector_all(selector, script)

    def click_line(self, number: int) -> None:
        self.page.locator(f"tr[data-line='{number}'] td.num button").first.click()

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)


@contextmanager
def open_page(browser: Any, path: Path) -> Iterator[Opened]:
    """Opens a page, which must write nothing to the console and load nothing but itself."""
    report = Opened(browser, path)
    yield report
    assert report.said == []
    assert [url for url in report.asked if not url.startswith("file:")] == []
    report.page.close()


def check_follows_system(browser: Any, path: Path, scheme: str, width: int) -> None:
    """No part is cut off to the side, and text differs from its background."""
    report = Opened(browser, path, color_scheme=scheme)
    report.page.set_viewport_size({"width": width, "height": 900})
    shade = report.page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in shade.removeprefix("rgb(").removesuffix(")").split(","))
    assert (brightness > 380) == (scheme == "light")
    assert report.page.evaluate("document.documentElement.scrollWidth") <= width
    assert report.said == []


def check_names_are_text(report: Opened) -> None:
    """Looks for a name that is markup, with a kernel open."""
    report.page.click("details.kernel summary")
    report.page.fill("#search", "img")
    report.page.wait_for_timeout(100)
    assert report.page.locator("img").count() == 0
    assert report.page.title() != "hacked"
    assert report.said == []
