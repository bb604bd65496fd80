"""`report`: a snippet is run, and becomes a page with its own source."""

from __future__ import annotations

from pathlib import Path

import pytest
from tool import ROOT, run_tool


def test_a_run_becomes_a_page(tmp_path: Path) -> None:
    """The line of the fault has its code and its finding, and the kernel is there."""
    snippet = tmp_path / "lost.py"
    snippet.write_text((ROOT / "samples" / "lost_range.py").read_text("utf-8"), "utf-8")
    broken = "all,-fuse-broadcast,-ambient-ranges"
    done = run_tool("report", "lost.py", "-o", "one.html", "--patches", broken, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    page = (tmp_path / "one.html").read_text("utf-8")
    row = next(part for part in page.split("<tr") if "reduce_index = " in part)
    assert "VD101" in row
    assert ">r_3_2_2_2<" in page


@pytest.mark.slow
def test_the_last_snippet_is_run_again(tmp_path: Path) -> None:
    snippet = tmp_path / "lost.py"
    snippet.write_text((ROOT / "samples" / "lost_range.py").read_text("utf-8"), "utf-8")
    run_tool("report", "lost.py", "-o", "one.html", "--patches", "all,-ambient-ranges", cwd=tmp_path)
    again = run_tool("report", "-o", "two.html", cwd=tmp_path)
    assert "using lost.py, from the last show" in again.stderr
    assert "reduce_index" in (tmp_path / "two.html").read_text("utf-8")
