"""A copy of the snippet's process that reports what was captured should that process die: of a segmentation fault in a
kernel, of `os._exit`, killed. Runs in the child.

The copy is made anew when a schedule is about to run, and waits. Making it costs as much as the process is large, so
that all of them together may take a second, and then a twentieth of the time that the snippet runs: a later schedule
may be missing in the report, which then says so. Only on Linux: elsewhere a copy of a process with threads, or with a
GPU, may not go on.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from vmapdbg.child.listen.launches import PlannedLaunch, watch_launches
from vmapdbg.install.overlay import load_patching

_FREE = 1.0
"""Seconds that the copies of a run may take."""
_SHARE = 0.05
"""What they may take of the time that it runs, where that is more."""
_POLL = 0.05
"""Seconds between two looks whether the process is still there."""
_NONE = -1
# the number of the schedule that runs, and that of its launch
_PLACE = struct.Struct("qq")


class Shadow:
    """Keeps the copy of the process that makes it, and the copy's process id in a file. `report` gets a sentence about
    what ran when the process died, with its place, and writes the capture, whose kernels are for `target`."""

    def __init__(self, target: str, file: Path, report: Callable[[str], None]) -> None:
        self.target, self.file, self.report = target, file, report
        self.owner = os.getpid()
        self.copy = 0
        self.started, self.spent = time.monotonic(), 0.0
        # how many schedules have begun to run, and the launches of the last
        self.begun = 0
        self.steps: Sequence[PlannedLaunch] = ()
        self.place = mmap.mmap(-1, _PLACE.size)
        self.note(_NONE)

    def watch(self, tensor_module: ModuleType) -> None:
        """Has it made when schedules run. Raises UnknownShape."""
        if sys.platform != "linux":
            return
        with load_patching().Changes("what ran last") as changes:
            watch_launches(changes, tensor_module, self)

    def note(self, launch: int) -> None:
        """Writes where the process is, where its copy sees it."""
        _PLACE.pack_into(self.place, 0, self.begun, launch)

    # *** launches

    def begins(self, steps: Sequence[PlannedLaunch]) -> None:
        self.begun += 1
        self.steps = steps
        self.note(_NONE)
        self.renew()

    def before(self, index: int, buffers: Sequence[Any]) -> None:
        self.note(index)

    def after(self, index: int, buffers: Sequence[Any], uops: Sequence[Any]) -> None:
        self.note(_NONE)

    def fails(self, index: int) -> None:
        self.note(_NONE)

    # *** the copy

    def renew(self) -> None:
        """Makes the copy, in place of the one before it."""
        begins = time.monotonic()
        # a process that the snippet forks has no report of its own
        if os.getpid() != self.owner or self.spent > max(_FREE, _SHARE * (begins - self.started)):
            return
        copy = os.fork()
        if copy == 0:
            self.wait()
        self.file.write_text(str(copy), encoding="utf-8")
        self.stop()
        self.copy = copy
        self.spent += time.monotonic() - begins

    def wait(self) -> None:
        """What the copy does, which never returns."""
        try:
            # it is not the snippet: what that wants to hear of is not for it
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            while os.getppid() == self.owner:
                time.sleep(_POLL)
            self.report(self.describe_place())
        finally:
            os._exit(0)

    def stop(self) -> None:
        """Ends the copy: the process reports itself."""
        if self.copy and os.getpid() == self.owner:
            os.kill(self.copy, signal.SIGKILL)
            os.waitpid(self.copy, 0)
            self.copy = 0

    def describe_place(self) -> str:
        """Returns what ran when the process died: ` while kernel r_4_4 ran`, ` after its schedules had run`."""
        begun, launch = _PLACE.unpack_from(self.place, 0)
        if begun != self.begun:
            return f" in schedule {begun - 1} of those that it ran, later than what is shown"
        if launch == _NONE:
            return ""
        return f" while launch {launch} of its last schedule ran, {_name(self.steps[launch].ast, self.target)}"


def _name(ast: Any, target: str) -> str:
    """Returns the name of a kernel as the report has it, or its op."""
    from vmapdbg.child.program.programs import render_program

    try:
        return f"kernel {render_program(ast, target).compiled.name}"
    except Exception:
        return ast.op.name
