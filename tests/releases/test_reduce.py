"""`bisect --reduce` on releases as they are: a program that `check` finds wrong, or that raises, gets smaller."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from release_trees import ROOT, find_tree
from tool import run_tool, write

FOUND = ROOT / "tests" / "found" / "programs"
RIGHT = "from tinygrad import Tensor\nprint((Tensor([1.0, 2.0]) + 1).tolist())\n"


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("times_zero_bitcast", "0.13.0", 1),
        ("half_equals_its_max", "0.14.0", 1),
        ("bool_index_crash", "0.14.0", 3),
        ("masked_out_overwrites", "0.12.0", 1),
        ("index_after_assign", "0.12.0", 1),
        ("arange_scatter_hang", "0.12.0", 4),
    ],
)
def test_a_fault_of_a_release_is_reduced_and_the_file_shows_it(
    name: str, version: str, status: int, tmp_path: Path
) -> None:
    tree = ("--tinygrad", str(find_tree(version)))
    program = str(FOUND / f"{name}.py")
    done = run_tool("bisect", program, "--reduce", "-o", "small.py", "--seconds", "20", *tree, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    counts = re.search(r"wrote small.py: (\d+) lines to (\d+)", done.stderr)
    assert counts is not None, done.stderr
    assert int(counts[2]) <= min(int(counts[1]), 12)
    assert run_tool("check", "small.py", *tree, cwd=tmp_path).returncode == status
    both = [find_codes("check", name, *tree, cwd=tmp_path) for name in (program, "small.py")]
    assert both[1] <= both[0]


def find_codes(*arguments: str, cwd: Path) -> set[str]:
    return {found["code"] for found in json.loads(run_tool(*arguments, "--json", cwd=cwd).stdout)["findings"]}


@pytest.mark.parametrize(
    ("text", "options", "status", "said"),
    [
        (RIGHT, (), 1, "nothing was reduced: neither does tinygrad fail, nor is a value wrong"),
        ("raise ValueError('of the program')\n", (), 1, "nothing was reduced"),
        ("x = (\n", (), 1, "nothing was reduced: it is no Python program"),
        (RIGHT, ("--by", "kernels"), 2, "--by values and crash"),
        (RIGHT, ("--by", "findings"), 2, "--by values and crash"),
    ],
)
def test_without_a_fault_of_tinygrad_nothing_is_written(
    text: str, options: tuple[str, ...], status: int, said: str, tmp_path: Path
) -> None:
    tree = ("--reduce", "-o", "small.py", "--tinygrad", str(find_tree("0.14.0")))
    done = run_tool("bisect", write(tmp_path, text), *options, *tree, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert not (tmp_path / "small.py").exists()
