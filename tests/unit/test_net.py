"""The net of tests/net: what it takes out of outputs, and which differences it prints together."""

from __future__ import annotations

from tests.net.differences import compare_texts, describe_group, group_equal
from tests.net.views import BEFORE, STATES, list_programs, list_views
from tests.net.worker import scrub


def test_scrub() -> None:
    text = "vmapdbg 0.1.0, tinygrad 0.12.0, saved 2025-01-31 12:59, in /tmp/net-1/a.py"
    assert scrub(text, "/tmp/net-1") == "vmapdbg VERSION, tinygrad 0.12.0, saved DATE, in WORK/a.py"
    assert scrub('"vmapdbg": "1.20.3"', "/tmp/net-1") == '"vmapdbg": "VERSION"'


def test_equal_differences_are_one_group_and_a_long_line_is_compared_by_pieces() -> None:
    found = [
        compare_texts("a/all/show.80", "x\nkept: an output\n", "x\nkept: output\n"),
        compare_texts("b/all/show.80", "1 ADD\n", "2 ADD\n"),
        compare_texts("b/none/show.80", "y\nkept:\n  an output\nz\n", "y\nkept: output\nz\n"),
    ]
    groups = group_equal(found)
    assert list(map(len, groups)) == [2, 1]
    assert describe_group(groups[0]).splitlines()[-1] == "  the same in 1 other outputs: b/none/show.80"
    line = ",".join(map(str, range(200)))
    lines = compare_texts("a", line, line.replace(",77,", ",x,")).lines
    assert [text for text in lines if text[0] in "-+"] == ["-77,", "+x,"]


def test_views() -> None:
    assert set(BEFORE) < set(STATES)
    assert [view.name for view in list_views("stock", ["check"])] == ["check.80"]
    assert "diff.stock.80" in {view.name for view in list_views("none", ["diff.stock"])}
    assert [file.stem for file in list_programs(["xsum"])] == ["xsum"]
