"""The processes that `python -m tests.fuzz hunt` and `pytest tests/found` run programs in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tool import ROOT, is_running, wait_until

# tells the worker's id, then has it run a program that does not end
STARTER = """\
from tests.fuzz.hunt.runner import Runner
runner = Runner("patches")
runner.process = runner.start()
print(runner.process.pid, flush=True)
runner.run("import pathlib, time\\npathlib.Path(FILE).touch()\\nwhile True: time.sleep(0.01)")
"""


def test_a_worker_ends_with_a_pytest_that_is_killed(tmp_path: Path) -> None:
    """It was at a program of its own then, and went on for ever."""
    busy = tmp_path / "busy"
    starter = STARTER.replace("FILE", repr(str(busy)))
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
            os.killpg(worker, signal.SIGKILL)
