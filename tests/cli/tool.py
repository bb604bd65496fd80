"""Runs the command line as a user does: a process of its own, outside the checkout's tinygrad folder."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from devices import choose_device

ROOT = Path(__file__).parent.parent.parent
RunSample = Callable[..., subprocess.CompletedProcess[str]]
"""The fixture `run_sample`: runs the tool on samples, or returns the output of an earlier run."""
# Seconds after which a process is taken to hang. How long something takes decides no test: the machine may be busy.
HANGS = 600
STEPS = sorted((ROOT / "tests" / "releases" / "steps").glob("*.py"))
"""Programs as users have them: an attention, and training steps."""


def run_tool(*arguments: str, cwd: Path, stdin: str | None = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `vmapdbg ARGUMENTS` in `cwd` without a terminal; `variables` are added to the environment. As for the
    command that is installed, `cwd` is not on the path. With None its stdin is closed."""
    if not stdin and not any(name.startswith("PYTHON") for name in variables):
        return start_command_line().run(arguments, cwd, find_environment(variables), stdin is not None)
    # Python reads these variables when it starts
    return run_command(sys.executable, "-P", "-m", "vmapdbg", *arguments, cwd=cwd, stdin=stdin, **variables)


def write(folder: Path, text: str, name: str = "snippet.py") -> str:
    """Writes a snippet into a folder, and returns its name."""
    (folder / name).write_text(text, encoding="utf-8")
    return name


def run_command(
    *command: str, cwd: Path, stdin: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in the environment that the tool has in tests, with a text on its stdin."""
    environment = find_environment(variables)
    return subprocess.run(
        command, cwd=cwd, env=environment, input=stdin, capture_output=True, text=True, timeout=HANGS, check=False
    )


def find_environment(variables: dict[str, str]) -> dict[str, str]:
    """Returns the environment that the tool has in tests, with some variables added."""
    return {**name_device(), **os.environ, "PYTHONPATH": find_path(), "COLUMNS": "80", **variables}


class CommandLine:
    """A process that has imported the command line and forks for each run: a run takes a quarter of a second less than
    with a Python that starts. started.py is its other side."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self.socket.settimeout(HANGS)
        self.lines = self.socket.makefile("rw")
        number = other.fileno()
        command = [sys.executable, "-P", str(Path(__file__).with_name("started.py")), str(number)]
        with other:
            self.process = subprocess.Popen(
                command, env=find_environment({}), pass_fds=[number], stdin=subprocess.DEVNULL, start_new_session=True
            )
        atexit.register(self.end)

    def end(self) -> None:
        """Ends the process."""
        self.lines.close()
        self.socket.close()
        self.process.wait()

    def run(
        self, arguments: Sequence[str], cwd: Path, environment: dict[str, str], has_stdin: bool
    ) -> subprocess.CompletedProcess[str]:
        """Runs `vmapdbg ARGUMENTS`, with pipes at its stdout and stderr. Its stdin is empty, or closed."""
        reads, writes = zip(os.pipe(), os.pipe(), strict=True)
        with ThreadPoolExecutor(2) as pool:
            try:
                socket.send_fds(self.socket, [b"."], writes)
                for number in writes:
                    os.close(number)
                run = {"arguments": arguments, "cwd": str(cwd), "environment": environment, "has_stdin": has_stdin}
                self.lines.write(json.dumps(run) + "\n")
                self.lines.flush()
                outputs = list(pool.map(read_pipe, reads, timeout=HANGS))
                status = int(self.lines.readline())
            except BaseException:
                # it hangs, or the test was stopped: the next test starts another one
                start_command_line.cache_clear()
                os.killpg(self.process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(["vmapdbg", *arguments], status, *outputs)


def read_pipe(number: int) -> str:
    with open(number, encoding="utf-8") as pipe:
        return pipe.read()


start_command_line = functools.cache(CommandLine)


def start_tool(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Starts `vmapdbg ARGUMENTS` in a session of its own, with a pipe at its stdout."""
    command, environment = [sys.executable, "-m", "vmapdbg", *arguments], {**os.environ, "PYTHONPATH": find_path()}
    return subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def name_device() -> dict[str, str]:
    """Returns the environment variable that names the device for tests. Without it, tinygrad loads the drivers of all
    devices, a third of the time of a small child. A test about that sets DEV=""."""
    return {"DEV": choose_device()}


def find_path() -> str:
    # the checkout is installed or on the path of the tests; the child runs in another folder
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


def wait_until(is_done: Callable[[], bool], otherwise: str) -> None:
    """Returns when `is_done`; fails with `otherwise` if that takes too long."""
    end = time.monotonic() + HANGS
    while not is_done():
        assert time.monotonic() < end, otherwise
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Whether a process is still there."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def find_processes(word: str) -> list[str]:
    """Returns the commands of the processes that have a word on their command line."""
    listed = subprocess.run(["ps", "-e", "-ww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if word in line]


def show_json(snippet: Path, *arguments: str, cwd: Path, **variables: str) -> tuple[dict[str, Any], str]:
    """Returns the capture of `show --json`, and what the snippet printed."""
    done = run_tool("show", str(snippet), "--json", *arguments, cwd=cwd, **variables)
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.stderr


def without_places(part: Any) -> Any:
    """Returns a part of a capture without the places in tinygrad's code that decided: each tinygrad has its own."""
    if isinstance(part, dict):
        return {key: without_places(value) for key, value in part.items() if key != "at"}
    if isinstance(part, list):
        return [without_places(item) for item in part]
    return re.sub(r" \((overlay/)?\w+\.py:\d+\)", "", part) if isinstance(part, str) else part


def share_without_line(capture: dict[str, Any]) -> float:
    """Returns the share of the executed ops of a capture that are in kernels without a line of the user, or in kernels
    with a reduce that has none."""
    without = every = 0
    for schedule in capture["schedules"]:
        nodes = {node["id"]: node for node in schedule["nodes"]}
        for kernel in schedule["kernels"]:
            every += kernel["executed_ops"]
            reduces = [nodes[i] for i in kernel["nodes"] if nodes[i]["op"].startswith("REDUCE")]
            if not kernel["lines"] or any(node["line"] is None for node in reduces):
                without += kernel["executed_ops"]
    assert every, "no kernel executes an op"
    return without / every
