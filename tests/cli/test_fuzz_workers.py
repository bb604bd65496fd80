"""The processes that `python -m tests.fuzz`, its hunt, and `pytest tests/found` run programs in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lanes import one_of
from tool import ROOT, is_running, wait_until

from tests.fuzz.check import is_right
from tests.fuzz.hunt import twins

PROGRAM = "import pathlib, time\npathlib.Path({busy!r}).touch()\nwhile True: time.sleep(0.01)"
# each prints the id of the worker, then runs an endless program in it
STARTERS = {
    "hunt": """\
from tests.fuzz.hunt.runner import Runner
runner = Runner("patches")
runner.process = runner.start()
print(runner.process.pid, flush=True)
runner.run({program!r})
""",
    "fuzz": """\
from tests.fuzz.check import Runner
runner = Runner()
runner.start()
print(runner.process.pid, flush=True)
runner.ask({program!r})
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("on", ["patches", "0.12.0,0.13.0,0.14.0"])
def test_a_program_that_equals_its_numpy_twin_is_not_accused(on: str) -> None:
    assert twins.main(["--programs", "10", "--on", on]) == 0


@pytest.mark.parametrize("name", STARTERS)
def test_a_worker_ends_with_its_parent(name: str, tmp_path: Path) -> None:
    """It was at a program of its own then, and went on for ever."""
    busy = tmp_path / "busy"
    starter = STARTERS[name].format(program=PROGRAM.format(busy=str(busy)))
    process = subprocess.Popen([sys.executable, "-c", starter], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    wait_until(busy.exists, "the program never began")
    process.kill()
    process.wait()
    try:
        wait_until(lambda: not is_running(worker), "the worker outlived who started it")
    finally:
        if is_running(worker):
            os.kill(worker, signal.SIGKILL)


# stock sums twice what is stacked as last dimension
STACKED = """
from tinygrad import Tensor
x = Tensor.ones(2, 3).contiguous().realize()
Tensor.stack(x, x, dim={}).sum().realize()
"""


@pytest.mark.parametrize(("dim", "right"), one_of([(2, False), (0, True)], 2))
def test_a_reference_that_stock_computes_wrong_is_no_finding(dim: int, right: bool) -> None:
    assert is_right(STACKED.format(dim)) is right
