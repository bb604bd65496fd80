"""The pictures of `graph` in a real browser, whose fonts are not the fonts that Graphviz assumed.

Each text is in its box, everything is in the picture, and columns are aligned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from captures import long_graph, lost_range, make_capture, make_kernel, make_node, make_schedule, many_kernels

from vmapdbg.model.capture import Capture
from vmapdbg.model.vocabulary import StageName
from vmapdbg.page.graph.write import write_graph

pytestmark = pytest.mark.browser

# in points of the picture: how far something is outside its place
_MEASURE = """() => {
  const root = document.documentElement, bounds = root.viewBox.baseVal, found = [];
  const place = e => {
    const box = e.getBBox(), at = e.getCTM().inverse().multiply(root.getCTM()).inverse();
    const corner = (x, y) => new DOMPoint(x, y).matrixTransform(at);
    const from = corner(box.x, box.y), to = corner(box.x + box.width, box.y + box.height);
    return {left: from.x, top: from.y, right: to.x, bottom: to.y};
  };
  const leaves = (inner, outer) => inner.left < outer.left - 1 || inner.right > outer.right + 1 ||
    inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
  const whole = {left: bounds.x, top: bounds.y, right: bounds.x + bounds.width, bottom: bounds.y + bounds.height};
  for (const part of root.querySelectorAll("text, polygon, path, ellipse, polyline"))
    if (leaves(place(part), whole)) found.push("outside of the picture: " + part.outerHTML);
  for (const box of root.querySelectorAll("g.node, g.cluster")) {
    const frames = [...box.querySelectorAll("polygon, path")].map(place);
    if (!frames.length) continue;  // a name without a frame
    const frame = {
      left: Math.min(...frames.map(f => f.left)), right: Math.max(...frames.map(f => f.right)),
      top: Math.min(...frames.map(f => f.top)), bottom: Math.max(...frames.map(f => f.bottom)),
    };
    for (const text of box.querySelectorAll("text"))
      if (leaves(place(text), frame)) found.push("outside of its box: " + text.textContent);
  }
  return found;
}"""
# where the columns of a row begin: after two spaces or more
_COLUMNS = """() => [...document.querySelectorAll("g.node text")].map(text => {
  const starts = [...text.textContent.matchAll(/(?:^|[ \\u00a0]{2,})(?=[^ \\u00a0])/g)];
  return starts.map(found => text.getStartPositionOfChar(found.index + found[0].length).x);
})"""


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1280, "height": 800})
    yield opened
    opened.close()


def open_picture(page: Any, capture: Capture, folder: Path, **options: Any) -> list[str]:
    """Draws a capture, has it shown and returns the notes."""
    path = folder / "out.svg"
    notes = write_graph(capture, path, **options)
    page.goto(path.as_uri())
    return notes


def with_strange_names() -> Capture:
    """Wide letters, letters of two characters, long names, markup."""
    names = (
        "\u6a21\u578b/\u5c64.py:12",
        "e\u0301" * 20 + ".py:3",
        "x" * 300 + ".py:4",
        "\U0001f600.py:1",
        "<&\"'>.py:1",
    )
    nodes = tuple(make_node(n, "ADD", src=(n - 1,) if n else (), line=name) for n, name in enumerate(names))
    kernel = make_kernel("\u6838" * 30, nodes=(0, 1), outputs=(1,), lines=names)
    return replace(make_capture(make_schedule(nodes=nodes, kernels=(kernel,))), snippet="\u7a0b\u5e8f" * 20 + ".py")


CAPTURES = {
    "lost": lost_range(fixed=False),
    "fixed": lost_range(),
    "long": long_graph(2000),
    "kernels": many_kernels(),
    "strange": with_strange_names(),
}


@pytest.mark.parametrize("stage", get_args(StageName))
@pytest.mark.parametrize("name", CAPTURES)
def test_texts_lie_in_their_boxes(name: str, stage: StageName, page: Any, tmp_path: Path) -> None:
    open_picture(page, CAPTURES[name], tmp_path, stage=stage)
    assert page.evaluate("document.querySelectorAll('g.node text').length") > 0
    assert page.evaluate(_MEASURE) == []


def test_a_difference_lies_in_its_boxes(page: Any, tmp_path: Path) -> None:
    open_picture(page, lost_range(), tmp_path, other=lost_range(fixed=False))
    assert page.evaluate(_MEASURE) == []


def test_columns_of_the_range_map_line_up(page: Any, tmp_path: Path) -> None:
    open_picture(page, lost_range(), tmp_path, stage="ranges")
    head, *rows = page.evaluate(_COLUMNS)
    assert len(head) == 8
    assert len(rows) > 10
    for row in rows:
        assert row[:2] == pytest.approx(head[:2], abs=0.6)
        assert all(any(abs(start - column) < 0.6 for column in head) for start in row)


def test_a_large_graph_can_be_looked_at(page: Any, tmp_path: Path) -> None:
    """And says in the picture what it leaves out, and how to have it drawn."""
    notes = open_picture(page, long_graph(5000), tmp_path, stage="ranges")
    assert page.evaluate("document.querySelectorAll('g.node').length") <= 601
    assert any("--around NODE" in note for note in notes)
    assert "--around NODE" in page.evaluate("document.documentElement.textContent")
