"""A copy of the snippet's process that reports what was captured if the process dies: by a segmentation fault in a
kernel, by `os._exit`, or killed. Runs in the child.

The process forks a new copy before each schedule runs. All copies together may take a second, and then a twentieth of
the time of the snippet: the report says if it lacks a later schedule. Only on Linux: elsewhere a copy of a process
with threads, or with a GPU, may not go on.
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

_FREE, _SHARE = 1.0, 0.05
_POLL = 0.05
"""Seconds between two looks whether the process still lives."""
_NONE = -1
# the number of the current schedule, and of its launch
_PLACE = struct.Struct("qq")


class Shadow:
    """Keeps a copy of this process, and writes the copy's process id to a file. `report` gets the end of a sentence
    about what ran when the process died, and writes the capture. Kernels are for `target`."""

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
        """Starts to copy when schedules run. Raises UnknownShape."""
        if sys.platform != "linux":
            return
        with load_patching().Changes("what ran last") as changes:
            watch_launches(changes, tensor_module, self)

    def note(self, launch: int) -> None:
        """Writes the current launch to memory that the copy shares."""
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
        """Replaces the copy by a new copy."""
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
        """Waits in the copy until the process dies, and reports. Never returns."""
        try:
            # the snippet's handlers of signals are not for the copy
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
        from vmapdbg.child.program.programs import render_program

        ast = self.steps[launch].ast
        try:
            name = f"kernel {render_program(ast, self.target).compiled.name}"
        except Exception:  # a copy between devices, or a kernel without a program
            name = ast.op.name
        return f" while launch {launch} of its last schedule ran, {name}"
