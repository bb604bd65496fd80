"""Long work on a terminal: it says how far it is, and Ctrl-C ends all of it.

The tool runs on a pseudo-terminal of its own, and gets the key as a person types it.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tool import HANGS, ROOT, find_path, wait_until

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")

CTRL_C, SHOW_CURSOR = b"\x03", b"\x1b[?25h"
# makes the pseudo-terminal the one whose keys go to the tool. What the tests themselves run under may ignore
# signals, as nohup and a shell's & do, and hand that on.
START = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "[signal.signal(s, signal.SIG_DFL) for s in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)];"
    "os.execv(sys.executable, [sys.executable, '-m', 'vmapdbg', *sys.argv[1:]])"
)
SLEEPS = "import time\ntime.sleep(300)\n"
THREE_SCHEDULES = """
from tinygrad import Tensor
for i in range(3): (Tensor.empty(3) * 0 + i).realize()
"""
# a sitecustomize.py: the comparison of the last schedule takes long
SLOW_COMPARISON = """
import sys, threading, time

def make_slow():
    name = "vmapdbg.child.compare.schedule_checker"
    while not hasattr(sys.modules.get(name), "ScheduleChecker"):
        time.sleep(0.001)
    checker = sys.modules[name].ScheduleChecker
    check = checker.check

    def check_slowly(self, *arguments):
        if self.evidence.schedule == 2:
            time.sleep(600)
        return check(self, *arguments)

    checker.check = check_slowly

if any("vmapdbg.child.compare" in argument for argument in sys.orig_argv):
    threading.Thread(target=make_slow, daemon=True).start()
"""
# nothing runs, so that all there is to wait for are the kernels
MANY_KERNELS = """
from tinygrad import Tensor
lazy = [Tensor.empty(2, i + 2).sum(1) for i in range(150)]
"""


class Terminal:
    """A tool that runs on a terminal, and what it has written there."""

    def __init__(self, process: subprocess.Popen[bytes], master: int):
        self.process, self.master, self.shown = process, master, b""

    def read(self) -> bool:
        """Waits for what comes next; False at the end."""
        ready, _, _ = select.select([self.master], [], [], HANGS)
        assert ready, f"nothing more was shown after {self.shown[-500:]!r}"
        try:
            more = os.read(self.master, 4096)
        except OSError:  # the other end is closed
            return False
        self.shown += more
        return bool(more)

    def wait_for(self, words: bytes) -> None:
        while words not in self.shown:
            assert self.read(), f"it ended with {self.process.wait(HANGS)}: {self.shown!r}"

    def wait(self) -> int:
        end = time.monotonic() + HANGS
        while self.read():
            # what still shows how far it is would be read for ever
            assert time.monotonic() < end, "it does not end"
        return self.process.wait(HANGS)


@contextlib.contextmanager
def run_on_terminal(
    *arguments: str, folder: Path, to_stdout: Path = Path(os.devnull), **variables: str
) -> Iterator[Terminal]:
    """Runs the tool with stdin and stderr on a terminal, stdout to a file, and its temporary files in FOLDER/tmp.
    `variables` are added to the environment."""
    (folder / "tmp").mkdir(exist_ok=True)
    master, slave = pty.openpty()
    ours = {"PYTHONPATH": find_path(), "TMPDIR": str(folder / "tmp"), "TERM": "xterm", "COLUMNS": "100"}
    with to_stdout.open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-c", START, *arguments],
            cwd=folder,
            env={**os.environ, **ours, **variables},
            stdin=slave,
            stdout=stdout,
            stderr=slave,
            start_new_session=True,
        )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def running_in(folder: Path) -> list[str]:
    """The processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder.resolve() and (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.fixture
def slow_comparison(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The PYTHONPATH with which the comparison of the last schedule takes long."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(SLOW_COMPARISON, encoding="utf-8")
    return os.pathsep.join([str(folder), str(ROOT)])


def left_in(folder: Path) -> list[str]:
    """What the tool left among the temporary files; tinygrad has locks of devices there."""
    return [file.name for file in folder.iterdir() if file.suffix != ".lock"]


@pytest.mark.parametrize(
    ("arguments", "text", "shown"),
    [
        (["check", "slow.py"], THREE_SCHEDULES, b"comparing slow.py with the numpy reference: schedule"),
        (["bisect", "slow.py", "--reduce", "-o", "small.py"], SLEEPS, b"bisecting slow.py"),
        (["lint", "slow.py", "--format", "json"], SLEEPS, b"running slow.py twice"),
    ],
    ids=["check", "bisect", "lint"],
)
def test_ctrl_c_leaves_no_process_and_no_file(
    arguments: list[str], text: str, shown: bytes, tmp_path: Path, slow_comparison: str
) -> None:
    (tmp_path / "slow.py").write_text(text, encoding="utf-8")
    with run_on_terminal(*arguments, folder=tmp_path, PYTHONPATH=slow_comparison) as terminal:
        terminal.wait_for(shown)
        os.write(terminal.master, CTRL_C)
        assert terminal.wait() == 130
    assert terminal.shown.rstrip().endswith(b"vmapdbg: interrupted")
    assert SHOW_CURSOR in terminal.shown
    assert running_in(tmp_path) == []
    assert left_in(tmp_path / "tmp") == []
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != ".vmapdbg") == ["slow.py", "tmp"]


def test_a_stopped_tool_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    """What `timeout` and `kill` send."""
    (tmp_path / "slow.py").write_text("open('started', 'w')\n" + SLEEPS, encoding="utf-8")
    with run_on_terminal("check", "slow.py", folder=tmp_path) as terminal:
        wait_until((tmp_path / "started").exists, "the snippet did not start")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM
    assert running_in(tmp_path) == []
    assert left_in(tmp_path / "tmp") == []


@pytest.mark.slow
def test_the_number_of_kernels_is_shown_once_the_snippet_is_done(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(MANY_KERNELS, encoding="utf-8")
    with run_on_terminal("show", "many.py", folder=tmp_path) as terminal:
        assert terminal.wait() == 0
    assert b"150 kernels" in terminal.shown
    assert SHOW_CURSOR in terminal.shown


@pytest.mark.slow
def test_ctrl_c_shows_the_comparisons_so_far(tmp_path: Path, slow_comparison: str) -> None:
    (tmp_path / "slow.py").write_text(THREE_SCHEDULES, encoding="utf-8")
    with run_on_terminal(
        "check", "slow.py", folder=tmp_path, to_stdout=tmp_path / "out", PYTHONPATH=slow_comparison
    ) as terminal:
        terminal.wait_for(b"schedule 3 of 3")
        os.write(terminal.master, CTRL_C)
        assert terminal.wait() == 130
    shown = (tmp_path / "out").read_text(encoding="utf-8")
    assert re.match(r"slow\.py  2 of 3 outputs compared, none wrong; 1 not compared: .*\n  stopped: 1 of 3", shown), (
        shown
    )
    assert terminal.shown.rstrip().endswith(b"vmapdbg: interrupted")
    assert running_in(tmp_path) == []
    assert left_in(tmp_path / "tmp") == []
