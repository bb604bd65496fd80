"""The processes that programs run in: one for each tinygrad, started again after a hang, a crash, or many programs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from vmapdbg.install.overlay import child_environment
from vmapdbg.install.patches import ALL, format_patches
from vmapdbg.install.trees import find_tree

PATCHES = "patches"
"""What the overlay with all its patches is called among the releases."""
PATIENCE = 15
"""A program may take so many times its processor time."""
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Outcome:
    """The result of one program on one tinygrad: `ok`, `refused`, `wrong`, `replay`, `crash` or `hang`. `trace` has
    tinygrad's frames as file:function, innermost last."""

    kind: str
    detail: str = ""
    trace: tuple[str, ...] = ()
    printed: str = ""

    @property
    def is_fault(self) -> bool:
        return self.kind not in ("ok", "refused")

    @property
    def signature(self) -> str:
        """What two programs have in common that fail for the same cause, as far as it shows before they are small."""
        if self.kind in ("crash", "hang"):
            what = self.detail.split(":")[0]
            if what == "compiler":
                return re.sub(r"\d+", "N", f"crash {self.detail}")
            trace = [place for place in self.trace if self.kind == "crash" or not place.startswith("uop/ops.py")]
            return f"{self.kind} {what} {' '.join(trace[-2:])}"
        return self.kind


class Runner:
    """Runs programs on one tinygrad: a release by its version, a folder, or `patches`."""

    def __init__(self, name: str, timeout: float = 30, programs_each: int = 400):
        self.name, self.timeout, self.programs_each = name, timeout, programs_each
        self.process: subprocess.Popen[str] | None = None
        self.served = 0
        self.stacks = tempfile.NamedTemporaryFile(suffix=".stacks")  # noqa: SIM115

    def start(self) -> subprocess.Popen[str]:
        patched = self.name == PATCHES
        tree = "" if patched else str(find_tree(self.name).folder)
        environment = child_environment(None, dict(os.environ), tree)
        spec = format_patches(ALL) if patched else "observe"
        self.served = 0
        # held open until this process ends, however that is
        lifeline, self.held = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.hunt.worker", spec, self.stacks.name, str(lifeline)],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True, pass_fds=(lifeline,),
        )  # fmt: skip
        os.close(lifeline)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"no programs can be run on {self.name}: its worker does not start")
        return process

    def stop(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            os.close(self.held)
            self.process = None

    def run(self, source: str) -> Outcome:
        """Runs a program."""
        if self.served >= self.programs_each:
            self.stop()
        if self.process is None:
            self.process = self.start()
        self.served += 1
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"source": source}) + "\n")
            process.stdin.flush()
        except OSError:
            self.stop()
            return Outcome("crash", "Died: the interpreter died")
        if not self.wait_for_answer(process):
            outcome = self.explain_hang(process)
            self.stop()
            return outcome
        line = process.stdout.readline()
        if not line:
            self.stop()
            return Outcome("crash", "Died: the interpreter died")
        answer = json.loads(line)
        return Outcome(answer["kind"], answer["detail"], tuple(answer["trace"]), answer["printed"])

    def wait_for_answer(self, process: subprocess.Popen[str]) -> bool:
        """Tells whether there is an answer; none within `timeout` seconds of processor time is a hang, as the machine
        may be busy."""
        began, end = read_seconds(process.pid), time.monotonic() + self.timeout * PATIENCE
        while time.monotonic() < end and read_seconds(process.pid) - began < self.timeout:
            assert process.stdout is not None
            if select.select([process.stdout], [], [], 0.5)[0]:
                return True
        return False

    def explain_hang(self, process: subprocess.Popen[str]) -> Outcome:
        """Reads the stack three times: the frames in all of them are the loop."""
        stacks: list[list[str]] = []
        for _ in range(3):
            Path(self.stacks.name).write_text("")
            os.kill(process.pid, signal.SIGUSR1)
            time.sleep(0.5)
            stacks.append(read_stack(Path(self.stacks.name).read_text(errors="replace")))
        common = [frame for frame in stacks[0] if all(frame in stack for stack in stacks)]
        return Outcome("hang", f"no answer in {self.timeout:.0f} s", tuple(common[-6:]))


def read_seconds(pid: int) -> float:
    """Processor time of a process so far; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_stack(text: str) -> list[str]:
    """tinygrad's frames of what faulthandler wrote, as file:function, innermost last."""
    found: list[str] = []
    for line in text.replace("\0", "").splitlines():
        parts = line.split('"')
        if len(parts) < 3 or "/tinygrad/" not in parts[1]:
            continue
        place = parts[1].rsplit("/tinygrad/", 1)[1]
        at = line.split(" line ")[1].split(" ")[0]
        # the line says which pass does not end; in a rewrite it is another one each time
        function = line.rsplit(" in ", 1)[-1] + ("" if place == "uop/ops.py" else f":{at}")
        found.append(f"{place}:{function}")
    return found[::-1]
