"""The Python blocks of the pages in docs/ run as they stand there, in order, and print what the lines `#> ` say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if "```python\nimport vmapdbg.patched" in page.read_text("utf-8"))


def test_there_are_pages() -> None:
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page: Path, tmp_path: Path) -> None:
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), flags=re.M | re.S))
    expected = re.findall(r"^#> (.*)$", program, flags=re.M)
    (tmp_path / "page.py").write_text(program, "utf-8")
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    if expected:
        assert printed == expected
