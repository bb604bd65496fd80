"""The neutral view of a linear program says on each release what the kernel does: gone through step by step, it writes
every element of its output once and reads nothing outside of its inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from release_trees import HERE, NULL, run_on
from tool import run_tool

NAMES = ("softmax", "layernorm", "conv", "argmax", "logsumexp", "stack_index", "cumsum", "shared_sum", "batchnorm")
SMALL = [HERE / "programs" / f"{name}.py" for name in NAMES]


@pytest.mark.parametrize("target", ["c", "metal"])
def test_the_view_is_what_the_kernel_does(release: str, target: str) -> None:
    """The tool computes the same of the AST and of the linear program, with vectors, gates and threads of a group. If
    the program is short, tinygrad's PYTHON device computes the same, too."""
    kernels = json.loads(run_on(release, HERE / "kernels.py", target, *SMALL, **NULL))
    assert len(kernels) > 15
    for kernel in kernels:
        said, ran, name = kernel["said"], kernel["ran"], kernel["of"]
        assert sorted(map(int, said["written"])) == sorted(said["outs"]), name
        assert said["read"] == sorted(said["ins"]), name
        for slot, (elements, lowest, highest) in said["written"].items():
            size = said["sizes"][slot]
            assert (elements, lowest, highest) == (size, 0, size - 1), name
        assert said["outside"] == [], name
        assert said["open"] == [], name
        assert said["trips"] > 0, name
        assert ran["alike"], name
    by_device = [kernel["ran"]["whole"] for kernel in kernels]
    assert False not in by_device
    assert by_device.count(True) > 5


AT_A_VARIABLE = """
from tinygrad import Tensor, Variable
at = Variable("at", 0, 5).bind(2)
row, rows = Tensor.ones(1, 6).contiguous().realize(), Tensor.zeros(6, 6).contiguous().realize()
rows.shrink(((at, at + 1), None)).assign(row).realize()
"""


@pytest.mark.parametrize("command", ["lint", "show"])
def test_a_write_at_a_variable_is_read(release: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(AT_A_VARIABLE, encoding="utf-8")
    # tinygrad's own check of addresses fails on it
    done = run_tool(command, "snippet.py", "--tinygrad", release, cwd=tmp_path, CHECK_OOB="0")
    assert (done.returncode, done.stderr) == (0, "")
