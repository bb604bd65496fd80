"""`check` computes while the snippet runs: what it reports if the snippet dies meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tool import find_processes, run_tool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are listed in /proc only on Linux")

# a wrong value among kernels of which there are too many to be packed before it is known as wrong, and a schedule later
MANY = """
from tinygrad import Tensor
rows = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
wrong = rows.relu().unsqueeze(0).expand(2, 2, 3).flatten().sum()
others = [(rows.float() @ Tensor.ones(3, n).contiguous()).softmax(1) for n in (4, 5)]
Tensor.realize(wrong, *others)
(rows + 1).realize()
"""
BIG = """
from tinygrad import Tensor
Tensor.manual_seed(3)
rows = Tensor.rand(200, 200).realize()
(rows @ rows).sin().softmax(1).realize()
import os
os.kill(os.getpid(), 9)
"""


def check(cwd: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs `check --json`; what it leaves among temporary files is in `tmp`."""
    (cwd / "tmp").mkdir()
    return run_tool("check", "--json", "snippet.py", *options, cwd=cwd, TMPDIR=str(cwd / "tmp"))


def test_the_origin_of_a_fault_is_reported_if_the_snippet_dies(tmp_path: Path) -> None:
    """The child packs the kernels while the fault is present."""
    (tmp_path / "snippet.py").write_text(f"{MANY}import os\nos._exit(3)\n", encoding="utf-8")
    done = check(tmp_path, "--tinygrad", "0.12.0")
    assert done.returncode == 4, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert "code generation made the fault" in finding["message"]


@pytest.mark.slow
def test_nothing_is_left_of_a_snippet_that_is_killed_while_it_is_compared(tmp_path: Path) -> None:
    """It dies right after it has written what takes long to compare."""
    (tmp_path / "snippet.py").write_text(BIG, encoding="utf-8")
    done = check(tmp_path)
    assert done.returncode == 4
    assert done.stderr == "vmapdbg: snippet.py was killed by SIGKILL\n"
    assert len(json.loads(done.stdout)["schedules"]) == 2
    assert [name for name in os.listdir(tmp_path / "tmp") if name.startswith("vmapdbg")] == []
    assert find_processes(str(tmp_path / "tmp")) == []
