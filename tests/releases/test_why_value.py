"""`why --value` on each release as it is: real faults are traced to what makes them, what is right is not accused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from release_trees import ROOT, find_tree, run_snippet

from tests.releases.test_check import LOST, RIGHT

FOUND = ROOT / "tests" / "found" / "programs"
# mended in June 2026: two nodes become one UOp while ranges are applied, and the second node gets the ranges of both
PADS = """import numpy as np
from tinygrad import Tensor
b = Tensor(np.arange(12, dtype="float32").reshape(4, 3) + 1).realize()
one = b.pad(((1, 1), (0, 0))).sum(axis=1)
other = b.pad(((1, 2), (0, 0))).shrink(((0, 6), (0, 3))).sum(axis=1)
(one + other).realize()
"""
# a rule in place of tinygrad's own
WRONG_RULE = """from tinygrad import Tensor, dtypes
from tinygrad.schedule import rangeify
from tinygrad.uop.ops import Ops, PatternMatcher, UPat
a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
wrong = PatternMatcher([
    (UPat(Ops.MUL, dtype=dtypes.floats, src=[UPat.var("x"), UPat.cvar("c")]), lambda x, c: x + c),
])
rangeify.symbolic = wrong + rangeify.symbolic
b = (a * 3).sum(1).realize()
"""


def follow(version: str, folder: Path, text: str, **settings: str) -> dict[str, Any]:
    done = run_snippet(find_tree(version), folder, text, "why", "--value", "--json", **settings)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def list_outputs(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [output for schedule in found["schedules"] for output in schedule["outputs"]]


def find_wrong(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the one output that is wrong after a pass."""
    (wrong,) = [one for one in list_outputs(found) if any(step["status"] == "wrong" for step in one["passes"])]
    return wrong


def name_first_wrong(output: dict[str, Any]) -> str:
    return next(one["name"] for one in output["passes"] if one["status"] == "wrong")


def test_right_values_are_not_accused(release: str, tmp_path: Path) -> None:
    found = follow(release, tmp_path, RIGHT)
    outputs = list_outputs(found)
    passes = [one for output in outputs for one in output["passes"]]
    assert [one for one in passes if one["status"] == "wrong"] == []
    assert [output["rewrite"] for output in outputs] == [None] * len(outputs)
    # most of it can be evaluated
    assert sum(one["status"] == "right" for one in passes) > 0.85 * len(passes)


def test_a_wrong_rule(release: str, tmp_path: Path) -> None:
    output = find_wrong(follow(release, tmp_path, WRONG_RULE))
    assert name_first_wrong(output) == "symbolic+reduce_collapse+debuf"
    assert output["rewrite"]["kind"] == "rule"
    assert output["rewrite"]["rule"].endswith("snippet.py:6")


@pytest.mark.parametrize("version", ["0.12.0", "0.13.0"])
def test_ranges_of_another_node(version: str, tmp_path: Path) -> None:
    """tinygrad fails there later, because of an INDEX that is left over; the values show why."""
    output = find_wrong(follow(version, tmp_path, PADS))
    assert name_first_wrong(output) == "apply rangeify"
    found = output["rewrite"]
    assert (found["kind"], found["line"]) == ("ranges", "snippet.py:5")
    assert found["before"].startswith("SHRINK(PAD(")
    assert found["extra"] == ["r2"]


@pytest.mark.parametrize(
    ("version", "program"),
    [
        ("0.12.0", "reader_after_assign.py"),
        ("0.12.0", "index_after_assign.py"),
        ("0.14.0", "reader_of_two_buffers_after_assign.py"),
    ],
)
def test_a_reader_that_runs_too_late(version: str, program: str, tmp_path: Path) -> None:
    """`test_order.py` tests which kernel reads too late: `lint` and `check` name it."""
    output = find_wrong(follow(version, tmp_path, (FOUND / program).read_text(encoding="utf-8")))
    assert name_first_wrong(output) == "the kernels in their order, by numpy"


def test_a_write_that_a_rule_loses(tmp_path: Path) -> None:
    output = find_wrong(follow("0.12.0", tmp_path, LOST))
    assert (output["of"], name_first_wrong(output)) == ("buffer", "earliest rewrites")
    found = output["rewrite"]
    assert found["kind"] == "write"
    assert found["before"].startswith("ASSIGN(BITCAST(")
    assert found["rule"] == "tinygrad/schedule/rangeify.py:115"


@pytest.mark.parametrize("program", ["less_itself_overwrites.py", "detach_overwrites.py"])
def test_memory_that_is_taken_for_another_buffer(program: str, tmp_path: Path) -> None:
    """0.12 numbers new buffers from the largest number that is left in the graph."""
    found = follow("0.12.0", tmp_path, (FOUND / program).read_text(encoding="utf-8"))
    (buffer,) = [one for one in list_outputs(found) if one["of"] == "buffer"]
    assert name_first_wrong(buffer) == "bufferize to store"
    assert buffer["rewrite"]["kind"] == "overwrites"
    assert buffer["rewrite"]["rule"] == "tinygrad/schedule/rangeify.py:366"
