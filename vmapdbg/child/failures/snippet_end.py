"""How the snippet's process ends: by an error, by an exit, or by its death. Runs in the child."""

import contextlib
import functools
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from vmapdbg.child.failures.diagnose import KnownNodes, explain_error
from vmapdbg.child.listen.guard import watching
from vmapdbg.child.listen.launches import PlannedLaunch, watch_launches
from vmapdbg.child.listen.user_lines import find_user_file, make_absolute
from vmapdbg.install.overlay import overlay_dir
from vmapdbg.install.system import IS_LINUX, fork_unseen
from vmapdbg.model.capture import SnippetError

_FREE, _SHARE = 0.1, 0.02  # the copies of the process may take so many seconds, or this share of the snippet's time
_NONE = -1


# *** errors and exits


def explain_exit(ended: SystemExit) -> SnippetError | None:
    """Returns the error of an exit with another status than 0."""
    status = ended.code
    if status in (None, 0):
        return None
    # as Python does: a message goes to stderr, and the status is 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    return SnippetError("SystemExit", str(status), None)


def report_error(error: BaseException, nodes: KnownNodes) -> SnippetError:
    """Prints the snippet's traceback; returns the error, with what tinygrad was doing. `nodes`: the last schedule's."""
    print_traceback(error)
    places = [(frame.f_code.co_filename, number) for frame, number in traceback.walk_tb(error.__traceback__)]
    lines = [f"{file}:{number}" for file, number in places if find_user_file(file) is not None and not _is_ours(file)]
    # the innermost line; tinygrad compiles code without a file, too
    lines.sort(key=lambda line: not line.startswith("<"))
    if isinstance(error, SyntaxError) and error.filename is not None:
        lines.append(f"{error.filename}:{error.lineno}")
    return explain_error(error, nodes, next(reversed(lines), None))


def print_traceback(error: BaseException) -> None:
    """Prints the traceback as Python does, without the frames of the tool."""
    whole = traceback.TracebackException.from_exception(error)
    todo: list[Any] = [whole]
    for one in todo:
        # Python prints the innermost 1,000 frames
        frames = [frame for frame in one.stack if not _is_ours(frame.filename)][-1000:]
        one.stack = traceback.StackSummary.from_list(frames) if frames else None  # else no head
        todo += filter(None, [one.__cause__, one.__context__])
    print("".join(whole.format()), end="", file=sys.stderr)


@functools.cache
def _is_ours(file: str) -> bool:
    folders = (Path(__file__).parents[2], overlay_dir())
    return make_absolute(file).startswith(tuple(f"{folder.resolve()}{os.sep}" for folder in folders))


# *** death


class Shadow:
    """A copy of the snippet's process that reports what was captured if the process dies: by a segmentation fault in a
    kernel, by `os._exit`, or killed. The process forks a new copy before each schedule runs. The copy is no child of
    it, so `os.wait()` does not find it. If forking takes long, it stops, and the report says that a later schedule is
    missing. Only on Linux: elsewhere a copy of a process with threads or a GPU may not go on. `file` gets the copy's
    process id, `report` the end of a sentence about what ran, and writes the capture. Kernels are for `target`."""

    def __init__(self, target: str, file: Path, report: Callable[[str], None]) -> None:
        self.target, self.file, self.report = target, file, report
        self.owner = os.getpid()
        self.copy = 0
        self.started, self.spent = time.monotonic(), 0.0
        self.begun = 0  # how many schedules have begun to run
        self.steps: Sequence[PlannedLaunch] = ()  # the launches of the last
        # numbers of the current schedule and its launch, shared with the copy
        self.place = memoryview(mmap.mmap(-1, 16)).cast("q")
        self.note(_NONE)

    def watch(self, tensor_module: ModuleType) -> None:
        """Starts to copy when schedules run. Raises UnknownShape."""
        if not IS_LINUX:
            return
        self.process = os.pidfd_open(self.owner)
        with watching("what ran last") as changes:
            watch_launches(changes, tensor_module, self)

    def note(self, launch: int) -> None:
        """Notes the current launch for the copy."""
        self.place[0], self.place[1] = self.begun, launch

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

    def renew(self) -> None:
        """Replaces the copy by a new copy."""
        # in CPU time, which no other process prolongs
        begins = time.process_time()
        # a process that the snippet forks has no report of its own
        if os.getpid() != self.owner or self.spent > max(_FREE, _SHARE * (time.monotonic() - self.started)):
            return
        copy = fork_unseen(self.process, lambda: self.report(self.describe_place()))
        self.file.write_text(str(copy), encoding="utf-8")
        self.stop()
        self.copy = copy
        self.spent += time.process_time() - begins

    def stop(self) -> None:
        """Ends the copy: the process reports itself."""
        if self.copy and os.getpid() == self.owner:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.copy, signal.SIGKILL)
            self.copy = 0

    def describe_place(self) -> str:
        """Returns what ran when the process died: ` while kernel r_4_4 ran`, ` after its schedules had run`."""
        begun, launch = self.place
        if begun != self.begun:
            return f" in schedule {begun - 1}, which ran later than what is shown"
        if launch == _NONE:
            return ""
        from vmapdbg.child.program.programs import render_program

        ast = self.steps[launch].ast
        try:
            name = f"kernel {render_program(ast, self.target).compiled.name}"
        except Exception:  # a copy between devices, or a kernel without a program
            name = ast.op.name
        return f" while launch {launch} of its last schedule ran, {name}"
