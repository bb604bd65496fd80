"""What `lint` advises is tried: doing it takes the work away, on each release."""

from __future__ import annotations

import json
from pathlib import Path

from release_trees import run_snippet

# a sine of constants alone, which each element of a matmul computes again
PROGRAM = """\
from tinygrad import Tensor
angles = Tensor.arange(64).reshape(64, 1) * (Tensor.arange(64) * 0.01)
y = angles.sin() @ Tensor.empty(64, 64)
"""


def lint(tree: Path, folder: Path, text: str) -> list[dict[str, str]]:
    done = run_snippet(tree, folder, text, "lint", "--format", "json", DEV="CPU")
    return json.loads(done.stdout)["findings"]


def test_a_value_that_is_computed_again_gets_its_buffer(tree: Path, tmp_path: Path) -> None:
    (found,) = lint(tree, tmp_path, PROGRAM)
    assert found["code"] == "VD104"
    call, _, where = found["advice"].partition(" ")
    assert where == "after the value that should be a buffer of its own"
    assert lint(tree, tmp_path, PROGRAM.replace("angles.sin()", f"angles.sin(){call}")) == []
