"""What the tool does where Linux's own means are missing: `vmapdbg/install/system.py` without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tool import ROOT, run_tool, wait_until, write

from vmapdbg.install import system
from vmapdbg.model.failure import Failure

TEXT = "from tinygrad import Tensor\n(Tensor.ones(12).contiguous() + 1).realize()\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PYTHONPATH with which no process has Linux's own functions."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import os\ndel os.pidfd_open, os.sched_getaffinity\n", encoding="utf-8")
    return f"{folder}{os.pathsep}{ROOT}"


def test_a_program_is_shown_as_on_linux(path: str, tmp_path: Path) -> None:
    name = write(tmp_path, TEXT)
    here, there = run_tool("show", name, cwd=tmp_path), run_tool("show", name, cwd=tmp_path, PYTHONPATH=path)
    assert (there.returncode, there.stdout, there.stderr) == (0, here.stdout, here.stderr)


def test_of_a_program_that_dies_only_its_end_is_known(path: str, tmp_path: Path) -> None:
    name = write(tmp_path, TEXT + "import os\nos._exit(3)\n")
    done = run_tool("show", name, cwd=tmp_path, PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"vmapdbg: {name} ended the process with status 3 before it could report\n"


def test_values_are_checked(path: str, tmp_path: Path) -> None:
    done = run_tool("check", write(tmp_path, TEXT), "--json", cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0
    assert [check["failed"] for check in json.loads(done.stdout)["schedules"]] == [None]


def test_a_tool_that_is_killed_leaves_no_child(path: str, tmp_path: Path) -> None:
    text = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nwhile True: time.sleep(0.1)\n"
    command = [sys.executable, "-P", "-m", "vmapdbg", "show", write(tmp_path, text)]
    tool = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    noted = tmp_path / "pid"
    try:
        wait_until(lambda: noted.exists() and noted.read_text() != "", "the program never started")
    finally:
        tool.kill()
        tool.wait()
    child = Path("/proc", noted.read_text())
    wait_until(lambda: not child.exists() or "State:\tZ" in (child / "status").read_text(), "the child goes on")


def test_on_windows_it_says_where_programs_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system.os, "name", "nt")
    with pytest.raises(Failure, match="programs run on Linux and macOS; on Windows they run in WSL"):
        system.start_group(["python"], {}, 3, None, None, None)
