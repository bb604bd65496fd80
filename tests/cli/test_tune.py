"""`vmapdbg tune` runs a program, finds the edit that helps, proves it, and writes it.

If these tests fail, an edit in an imported module is not found, not measured, or written although it changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from rendered import flatten
from tool import run_tool

# the sine is computed in the loops of the matmul, for each of its columns
SNIPPET = """from tinygrad import Tensor
from waves import wave
x = Tensor([i % 97 / 97 for i in range(64 * 128)]).reshape(64, 128).realize()
w = Tensor([i % 89 / 89 for i in range(128 * 512)]).reshape(128, 512).realize()
y = (wave(x) @ w).realize()
"""
MODULE = """def wave(x):
    \"\"\"Returns the exponential of the sine of an ä.\"\"\"
    return x.sin().exp()
"""
SUM = "from tinygrad import Tensor\ny = Tensor([1.0, 2.0, 3.0]).realize().sum().realize()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("s.py", SNIPPET), ("waves.py", MODULE), ("sum.py", SUM), ("fails.py", "raise ValueError(3)\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_program_is_measured_even_if_nothing_is_tried(folder: Path) -> None:
    """With no time for a try, the report says what was not tried, and the document is valid."""
    done = run_tool("tune", "s.py", "--patches", "none", "--budget", "1e-9", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    schema = json.loads(run_tool("schema", "tune", cwd=folder).stdout)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(document)] == []
    assert (document["proposals"], document["tried"], document["runs"]) == ([], [], 2)
    first = document["untried"][0]["edits"][0]
    assert (first["line"], first["label"]) == ("waves.py:3", ".contiguous() on x.sin().exp()")
    assert document["number"] > 0


def test_a_program_that_fails_is_not_tuned(folder: Path) -> None:
    done = run_tool("tune", "fails.py", cwd=folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("ValueError: 3\n")


@pytest.mark.slow
def test_an_edit_of_a_module_is_found_proven_and_written(folder: Path) -> None:
    done = run_tool("tune", "s.py", "--patches", "none", "--budget", "90", "--write", "--json", cwd=folder)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    proposal = next(one for one in document["proposals"] if one["diff"])
    before, after = proposal["executed_ops"]
    assert after < before / 4
    assert proposal["kernels"] == [1, 2]
    assert proposal["compared"] >= 1
    assert "+    return x.sin().exp().contiguous()" in proposal["diff"]
    assert done.stderr.endswith("vmapdbg: wrote waves.py\n")
    assert (folder / "waves.py").read_text(encoding="utf-8") == MODULE.replace(".exp()", ".exp().contiguous()")
    assert (folder / "s.py").read_text(encoding="utf-8") == SNIPPET
    # what was proposed is what the written file does
    shown = json.loads(run_tool("show", "s.py", "--patches", "none", "--json", cwd=folder).stdout)
    kernels = [kernel for schedule in shown["schedules"] for kernel in schedule["kernels"]]
    assert sum(kernel["executed_ops"] for kernel in kernels) == after


@pytest.mark.slow
def test_nothing_is_proposed_where_nothing_helps(folder: Path) -> None:
    done = run_tool("tune", "sum.py", "--patches", "none", "--budget", "90", cwd=folder)
    assert done.returncode == 0, done.stderr
    said = flatten(done.stdout)
    assert "sum.py no edit that was tried helps" in said
    assert "of the time in kernels is r_3" in said
