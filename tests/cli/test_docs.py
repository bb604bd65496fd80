"""The Python blocks of the pages in docs/ run as they stand there, in order, and print what the lines `#> ` say. What
`lint`, `check`, `why` and `why --value` are shown to print, they print.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tool import ROOT, RunSample

DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if "```python\nimport vmapdbg.patched" in page.read_text("utf-8"))
SHOWN = [
    block
    for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
    for block in re.findall(
        r"^```\n\$ vmapdbg ((?:lint|check|why|why --value|why --value \d+) samples/.*?)^```",
        page.read_text("utf-8"),
        flags=re.M | re.S,
    )
]


def test_there_are_pages() -> None:
    assert PAGES
    assert len(SHOWN) >= 2


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.split()[0])
def test_shown_output(block: str, run_sample: RunSample) -> None:
    command, _, expected = block.partition("\n")
    assert run_sample(*shlex.split(command)).stdout.startswith(expected.rstrip("\n"))


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
