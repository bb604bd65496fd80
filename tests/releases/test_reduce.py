"""`bisect --reduce` on releases as they are: a program that `check` finds wrong, or that raises, gets smaller."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from release_trees import ROOT, find_tree
from tool import run_tool, write

FOUND = ROOT / "tests" / "found" / "programs"


@pytest.mark.parametrize("version", ["0.13.0", "0.14.0"])
@pytest.mark.parametrize(
    ("name", "status"), [("times_zero_bitcast", 1), ("half_equals_its_max", 1), ("bool_index_crash", 3)]
)
def test_a_fault_of_a_release_is_reduced_and_the_file_shows_it(
    name: str, status: int, version: str, tmp_path: Path
) -> None:
    tree = ("--tinygrad", str(find_tree(version)))
    done = run_tool("bisect", str(FOUND / f"{name}.py"), "--reduce", "-o", "small.py", *tree, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    counts = re.search(r"wrote small.py: (\d+) nodes to (\d+)", done.stderr)
    assert counts is not None, done.stderr
    assert int(counts[2]) <= int(counts[1])
    assert run_tool("check", "small.py", *tree, cwd=tmp_path).returncode == status


def test_nothing_is_reduced_if_nothing_is_wrong_and_a_fault_that_is_not_reduced_is_no_success(tmp_path: Path) -> None:
    tree = ("--reduce", "--tinygrad", str(find_tree("0.14.0")))
    right = write(tmp_path, "from tinygrad import Tensor\nprint((Tensor([1.0, 2.0]) + 1).tolist())\n")
    done = run_tool("bisect", right, *tree, cwd=tmp_path)
    assert (done.returncode, "no single schedule fails or has wrong values" in done.stderr) == (0, True)
    fails = write(tmp_path, "raise ValueError('not of a graph')\n", "fails.py")
    done = run_tool("bisect", fails, *tree, cwd=tmp_path)
    assert (done.returncode, "nothing was reduced" in done.stderr) == (1, True)
    done = run_tool("bisect", right, "--by", "kernels", *tree, cwd=tmp_path)
    assert (done.returncode, "--by values and crash" in done.stderr) == (2, True)
