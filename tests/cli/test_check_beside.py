"""`check` computes while the snippet runs if there are enough cores. That changes nothing in its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tool import HANGS, ROOT, find_path, name_device

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a process gets one core here only on Linux")

# the tool, on as many cores as its first argument says
START = (
    "import os, runpy, sys; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv.pop(1))]);"
    "sys.argv[0] = 'vmapdbg'; runpy.run_module('vmapdbg', run_name='__main__')"
)
# values that differ only by rounding, an assign, a replay of TinyJit that is not compared, a schedule that changes the
# memory of another, and a schedule without anything to compare
SNIPPET = """
from tinygrad import Tensor, TinyJit
Tensor.manual_seed(3)
rows = Tensor.rand(64, 64).realize()
for _ in range(3):
  rows = (rows @ rows - rows.mean(1, keepdim=True)).softmax(1).realize()
(rows.sum(1) - 1).realize()
state = Tensor.zeros(8).contiguous().realize()
state.assign(state + rows[0, :8]).realize()

@TinyJit
def step(x):
  state.assign(state * 0.5 + x.sum(1)).realize()
  return (state.sum() + x).realize()

for i in range(6): step(Tensor.full((8, 4), float(i)).contiguous().realize())
(Tensor([1, 2, 3]) // Tensor([1, 0, 2])).realize()
"""
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


def check(cores: int, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs `check --json` on so many cores; what it leaves among temporary files is in `tmp`."""
    (cwd / "tmp").mkdir(exist_ok=True)
    environment = {**name_device(), **os.environ, "PYTHONPATH": find_path(), "TMPDIR": str(cwd / "tmp")}
    command = [sys.executable, "-c", START, str(cores), "check", "--json", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=HANGS, check=False)


def needs_cores() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core here")


@pytest.mark.parametrize(
    ("snippet", "options"),
    [
        pytest.param("snippet.py", ["--tinygrad", "0.12.0"], marks=pytest.mark.slow),
        (str(ROOT / "samples" / "lost_range.py"), ["--patches", "all,-ambient-ranges"]),
        pytest.param("many.py", ["--tinygrad", "0.12.0"], marks=pytest.mark.slow),
    ],
    ids=["observed", "wrong", "many kernels"],
)
def test_the_report_is_the_same_if_both_processes_run_at_once(snippet: str, options: list[str], tmp_path: Path) -> None:
    needs_cores()
    (tmp_path / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    (tmp_path / "many.py").write_text(MANY, encoding="utf-8")
    alone, beside = (check(cores, snippet, *options, cwd=tmp_path) for cores in (1, 2))
    assert beside.stdout == alone.stdout
    assert (beside.returncode, beside.stderr) == (alone.returncode, alone.stderr)
    assert json.loads(beside.stdout)["schedules"]


@pytest.mark.parametrize("cores", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_origin_of_a_fault_is_reported_if_the_snippet_dies(cores: int, tmp_path: Path) -> None:
    """The child packs the kernels while the fault is present."""
    needs_cores()
    (tmp_path / "snippet.py").write_text(f"{MANY}import os\nos._exit(3)\n", encoding="utf-8")
    done = check(cores, "snippet.py", "--tinygrad", "0.12.0", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert "code generation made the fault" in finding["message"]


@pytest.mark.slow
def test_nothing_is_left_of_a_snippet_that_is_killed_while_it_is_compared(tmp_path: Path) -> None:
    """It dies right after it has written what takes long to compare."""
    needs_cores()
    (tmp_path / "snippet.py").write_text(BIG, encoding="utf-8")
    alone, beside = (check(cores, "snippet.py", cwd=tmp_path) for cores in (1, 2))
    assert beside.stdout == alone.stdout
    assert beside.returncode == alone.returncode == 4
    assert beside.stderr == alone.stderr == "vmapdbg: snippet.py was killed by SIGKILL\n"
    assert len(json.loads(beside.stdout)["schedules"]) == 2
    assert [name for name in os.listdir(tmp_path / "tmp") if name.startswith("vmapdbg")] == []
    assert find_processes(str(tmp_path / "tmp")) == []


def find_processes(word: str) -> list[str]:
    """Returns the commands of the processes that have a word on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
        except OSError:  # it has ended
            continue
        if word.encode() in command:
            found.append(command.decode(errors="replace"))
    return found
