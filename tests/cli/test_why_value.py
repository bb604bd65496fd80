"""`vmapdbg why --value`: after which pass of the scheduler a value is wrong, and by which rewrite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rendered import flatten
from tool import ROOT, run_tool, write

RIGHT = """from tinygrad import Tensor
a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
b = (a.pad(((1, 0), (0, 0))).flip(1) / a.sum()).realize()
"""
# a rule that makes a sum of a product
WRONG_RULE = """from tinygrad import Tensor, dtypes
from tinygrad.schedule import rangeify
from tinygrad.uop.ops import Ops, PatternMatcher, UPat
a = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
rangeify.symbolic = (
    PatternMatcher([
        (UPat(Ops.MUL, dtype=dtypes.floats, src=[UPat.var("x"), UPat.cvar("c")]), lambda x, c: x + c),
    ])
    + rangeify.symbolic
)
b = (a * 3).sum(1).realize()
"""


def follow(folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    write(folder, text)
    done = run_tool("why", "--value", *arguments, cwd=folder)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("end", "status"), [("", 0), ("raise ValueError('no')\n", 3)], ids=["ends well", "raises"])
def test_a_right_program_is_right_after_every_pass(end: str, status: int, tmp_path: Path) -> None:
    """An error of the snippet keeps its exit code, and not everything is right."""
    code, said = follow(tmp_path, RIGHT + end, "snippet.py")
    assert code == status, said
    claimed = "2 outputs followed, none found wrong, until the" if end else "2 outputs, right after every pass"
    assert claimed in said
    assert "schedule 1  snippet.py:3  1 output right" in said


def test_the_rule_that_makes_a_value_wrong(tmp_path: Path) -> None:
    code, said = follow(tmp_path, WRONG_RULE, "snippet.py", "--json")
    assert code == 1, said
    output: dict[str, Any] = json.loads(said)["schedules"][1]["outputs"][0]
    status = {one["name"]: one["status"] for one in output["passes"]}
    assert status["apply rangeify"] == "right"
    assert status["symbolic+reduce_collapse+debuf"] == "wrong"
    assert status["the kernels as they ran"] == "wrong"
    found = output["rewrite"]
    assert found["kind"] == "rule"
    assert found["rule"].endswith("snippet.py:7")
    assert found["before"].startswith("MUL(")
    assert found["after"].startswith("ADD(")
    assert (found["difference"]["expected"], found["difference"]["got"]) == (3.0, 4.0)


@pytest.mark.slow
def test_only_the_outputs_of_a_subject(tmp_path: Path) -> None:
    text = WRONG_RULE + "c = (a + 1).realize()\n"
    code, said = follow(tmp_path, text, "snippet.py:12", "snippet.py")
    assert code == 0, said
    assert "1 output, right after every pass" in said
    assert "schedule 1" not in said


@pytest.mark.slow
def test_the_sample(tmp_path: Path) -> None:
    snippet = str(ROOT / "samples" / "lost_range.py")
    done = run_tool("why", "--value", snippet, "--patches", "all,-fuse-broadcast,-ambient-ranges", cwd=tmp_path)
    assert done.returncode == 1
    said = flatten(done.stdout)
    assert said.count("the first node that has another value by its ranges, in apply rangeify") == 3
    assert "3 of 5 outputs wrong" in said


def test_the_outputs_that_a_node_feeds(tmp_path: Path) -> None:
    """A line selects the outputs that its nodes feed."""
    code, said = follow(tmp_path, WRONG_RULE, "snippet.py:11", "snippet.py", "--json")
    assert code == 1, said
    schedules: list[dict[str, Any]] = json.loads(said)["schedules"]
    assert [len(one["outputs"]) for one in schedules] == [1]
    assert schedules[0]["outputs"][0]["rewrite"]["rule"].endswith("snippet.py:7")


@pytest.mark.slow
def test_a_node_of_the_sample(tmp_path: Path) -> None:
    snippet = str(ROOT / "samples" / "lost_range.py")
    arguments = ("--schedule", "2", "--patches", "all,-fuse-broadcast,-ambient-ranges")
    done = run_tool("why", "--value", "48", snippet, *arguments, cwd=tmp_path)
    assert done.returncode == 1
    said = flatten(done.stdout)
    assert "1 of 1 output wrong" in said
    assert "of node ADD 48" in said
    assert "lost_range.py:28]" in said


@pytest.mark.slow
def test_a_node_that_does_not_exist(tmp_path: Path) -> None:
    code, said = follow(tmp_path, RIGHT, "4711", "snippet.py")
    assert code == 2, said
    assert "there is no node 4711: schedule 1 has" in said
