"""A snippet whose process dies: what was captured before is shown, with how it died and what ran."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tool import run_tool, write

BEGINS = "from tinygrad import Tensor\n(Tensor.empty(12) + 1).realize()\n"
# a kernel of tinygrad 0.12.0 that leaves its memory: every launch from here on is one
FAULTS = """
import ctypes
import tinygrad.engine.realize as realize
realize.CompiledRunner.__call__ = lambda *arguments, **options: ctypes.string_at(0)
(Tensor.empty(15) * 3).realize()
"""
DEATHS = {
    "fault": ("import ctypes; ctypes.string_at(0)\n", "was killed by SIGSEGV"),
    "exit": ("import os; os._exit(3)\n", "ended the process with status 3"),
    "kill": ("import os; os.kill(os.getpid(), 9)\n", "was killed by SIGKILL"),
}
TREES = [[], ["--tinygrad", "0.12.0"]]


@pytest.mark.parametrize("how", DEATHS)
def test_what_was_captured_before_is_shown(how: str, tmp_path: Path) -> None:
    ends, words = DEATHS[how]
    done = run_tool("show", write(tmp_path, BEGINS + ends), "--json", cwd=tmp_path)
    assert done.returncode == 4
    assert done.stderr == f"vmapdbg: snippet.py {words}\n"
    capture = json.loads(done.stdout)
    assert [len(schedule["kernels"]) for schedule in capture["schedules"]] == [1]
    assert capture["error"] == {
        "type": "ChildDied",
        "message": f"snippet.py {words}",
        "line": "snippet.py:2",
        "crash": None,
    }


@pytest.mark.parametrize("tree", TREES, ids=" ".join)
def test_the_launch_that_it_died_in_is_named(tree: list[str], tmp_path: Path) -> None:
    done = run_tool("show", write(tmp_path, BEGINS + FAULTS), "--json", *tree, cwd=tmp_path)
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert "was killed by SIGSEGV while launch 0 of its last schedule ran, kernel E_" in error["message"]
    assert error["line"] == "snippet.py:7"


@pytest.mark.slow
def test_a_snippet_that_is_stopped_shows_what_it_had(tmp_path: Path) -> None:
    # the timeout is far longer than the schedule takes: how long that is decides nothing here
    text = BEGINS + "import time\nopen('ready', 'w').close()\ntime.sleep(600)\n"
    done = run_tool("show", write(tmp_path, text), "--json", "--timeout", "20", cwd=tmp_path)
    assert done.returncode == 4
    assert (tmp_path / "ready").exists()
    capture = json.loads(done.stdout)
    assert len(capture["schedules"]) == 1
    assert capture["error"]["message"] == "snippet.py did not end within 20 seconds and was stopped (--timeout)"


def test_nothing_is_left_of_a_snippet_that_ends_well(tmp_path: Path) -> None:
    """Its own children are all that it sees: waiting for the last of them ends."""
    text = BEGINS + "import os\nos.fork() or os._exit(5)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    done = run_tool("show", write(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("5\n")


def test_a_process_that_the_snippet_forks_reports_nothing(tmp_path: Path) -> None:
    ends = "import os\nif os.fork() == 0:\n  (Tensor.empty(9) + 1).realize()\n  os._exit(0)\nos.wait()\n"
    ends += "x = Tensor.empty(4) + 1\n"
    done = run_tool("show", write(tmp_path, BEGINS + ends), "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert [len(schedule["kernels"]) for schedule in json.loads(done.stdout)["schedules"]] == [1, 1]


def test_what_ran_before_is_checked(tmp_path: Path) -> None:
    ends, words = DEATHS["exit"]
    text = "from tinygrad import Tensor\n(Tensor([1.0, 2.0]) + 1).realize()\n(Tensor([4.0]) * 3).realize()\n"
    done = run_tool("check", write(tmp_path, text + ends), cwd=tmp_path)
    assert done.returncode == 4
    assert done.stdout.startswith("snippet.py  2 outputs, all right\n")
    assert done.stderr == f"vmapdbg: snippet.py {words}\n"
