"""What `python -m docs.make_pictures --check` compares: what a picture shows, not the way of a curve."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"


def load_script():
    spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SAME = {
    "a box elsewhere": ("graph.svg", r'points="[\d.]+', 'points="7'),
    "another curve": ("graph.svg", r'd="M[\d.]+', 'd="M1'),
    "another Python": ("show.svg", r"Python(&#160;)3\.\d+\.\d+", r"Python\g<1>3.13.2"),
}
OTHER = {
    "another reason": ("graph.svg", "realized:", "made:"),
    "a box less": ("graph.svg", "<polygon", "<rect"),
    "another number": ("show.svg", "48&#160;B", "49&#160;B"),
    "another line": ("diff.svg", "ambient", "nested"),
}


@pytest.mark.parametrize("case", [*SAME, *OTHER])
def test_a_picture_is_stale_where_it_shows_something_else(case: str, tmp_path: Path) -> None:
    name, old, new = (SAME | OTHER)[case]
    text = (DOCS / name).read_text(encoding="utf-8")
    changed = re.sub(old, new, text)
    assert changed != text
    (tmp_path / name).write_text(changed, encoding="utf-8")
    assert load_script().is_same(DOCS / name, tmp_path / name) == (case in SAME)
    # a missing picture is stale
    assert not load_script().is_same(tmp_path / "missing.svg", DOCS / name)
