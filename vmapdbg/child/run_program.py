"""`vmapdbg run --lint` and `--save` in the program's processes: each schedule is linted or saved as soon as it is made,
because workers often end without running exit handlers. `vmapdbg.commands.run` is the tool's side.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmapdbg.child.listen import hooks
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.records import PassRecord, ScheduleRecord
from vmapdbg.child.live import build_live_capture, is_ordered
from vmapdbg.install.job import LintedSchedule
from vmapdbg.install.targets import DEFAULT_TARGET
from vmapdbg.model.store import StoreError, build_data, dump_compact, to_data, write_atomically
from vmapdbg.suite.saved import FAILED, AskedSchedule, SavedRun, SavedTest, name_test, save_schedule, start_run

LINT_VARIABLE = "VMAPDBG_LINT"
"""The folder where each process writes a file with its findings."""
TARGET_VARIABLE = "VMAPDBG_LINT_TARGET"
SAVE_VARIABLE = "VMAPDBG_SAVE"
"""JSON with the `folder` of the run and the `run` itself, as `run.json` has it."""
MOST_ASKED = 256
"""How many schedules a file of a test has: it is written again for each of them, because the end of a test is not
known."""
OUTSIDE = "(outside of the tests)"
"""The name for schedules that pytest makes while it collects tests."""

_PHASE = re.compile(r" \((setup|call|teardown)\)$")


def lint_this_process() -> None:
    """Lints what this process schedules. The overlay is installed already, unless tinygrad is observed as it is."""
    linter = Linter(Path(os.environ[LINT_VARIABLE]), os.environ.get(TARGET_VARIABLE, DEFAULT_TARGET))
    hooks.start(linter)
    atexit.register(linter.end_last)


def save_this_process() -> None:
    """Saves what this process schedules."""
    asked = json.loads(os.environ[SAVE_VARIABLE])
    hooks.start(RunWriter(Path(asked["folder"]), build_data(SavedRun, asked["run"])))


class ScheduleFeed(Recorder):
    """Passes on each schedule as soon as it is made, and forgets it."""

    def made(self, schedule: ScheduleRecord, passed: PassRecord, is_whole: bool) -> None:
        """Gets a new schedule; if it is not whole, it raised before it had kernels."""

    def asked_again(self, schedule: ScheduleRecord) -> None:
        """Gets a schedule that came from tinygrad's cache."""

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        self.end_last()
        super().schedule_asked(key, cached)
        if cached:
            self.asked_again(self.schedules[-1])
            self.forget()

    def schedule_created(self, graph: Any, created: Any) -> None:
        super().schedule_created(graph, created)
        self.end_last(is_whole=True)

    def end_last(self, is_whole: bool = False) -> None:
        """Passes on the last schedule."""
        try:
            for schedule in self.schedules[-1:]:
                if schedule.passed is not None:
                    self.made(schedule, schedule.passed, is_whole)
        finally:
            self.forget()


class Linter(ScheduleFeed):
    """Lints each schedule. It skips kernels that it knows, unless their order is wrong now."""

    def __init__(self, folder: Path, target: str) -> None:
        super().__init__()
        self.output, self.target = folder / f"{os.getpid()}.jsonl", target
        self.seen: set[bytes] = set()

    def made(self, schedule: ScheduleRecord, passed: PassRecord, is_whole: bool) -> None:
        linted = self.lint(schedule, passed)
        with self.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_data(linted)) + "\n")

    def lint(self, schedule: ScheduleRecord, passed: PassRecord) -> LintedSchedule:
        kernels = {launch.ast.key for launch in passed.kernels if launch.is_compute}
        new = kernels - self.seen
        try:
            if kernels and not new and is_ordered(passed):
                return LintedSchedule()
            self.seen |= new
            capture = build_live_capture([schedule], self.target)
        except Exception as error:  # the target may not have what the program uses; the program must go on
            return LintedSchedule(failed=f"{type(error).__name__}: {error}"[:300])
        from vmapdbg.lint import lint_capture

        # kernels with an access whose addresses are unknown
        undecided = sum(any(access.lowest is None for access in kernel.accesses or ()) for kernel in capture.kernels)
        return LintedSchedule(len(new), undecided, lint_capture(capture))


class RunWriter(ScheduleFeed):
    """Writes schedules into the folder of a run, for the current test. It never raises for a schedule or a file: the
    program must go on. After the first file that cannot be written it prints a line on stderr and saves no more."""

    def __init__(self, folder: Path, run: SavedRun) -> None:
        super().__init__()
        self.folder, self.run = folder, run
        self._stopped = False
        # for each key of tinygrad's schedule cache the name of the file, None if it could not be rendered
        self._files: dict[bytes, str | None] = {}
        self._written: set[str] = set()
        self._begin_process()
        os.register_at_fork(after_in_child=self._begin_process)

    def _begin_process(self) -> None:
        self._token = uuid.uuid4().hex[:12]
        self._number = 0
        self._part = SavedTest("", 0, ())

    def made(self, schedule: ScheduleRecord, passed: PassRecord, is_whole: bool) -> None:
        if self._stopped or not is_whole:
            return
        try:
            built = build_live_capture([schedule], self.run.target)
        except Exception as error:  # the target may not have what the program uses
            self._files[schedule.key] = None
            self._ask(None, schedule.line, f"{type(error).__name__}: {error}"[:300])
            return
        try:
            name = save_schedule(start_run(self.folder, self.run), built, self._written)
        except (OSError, StoreError) as error:
            self._stop(error)
            return
        self._files[schedule.key] = name
        self._ask(name, schedule.line)

    def asked_again(self, schedule: ScheduleRecord) -> None:
        if not self._stopped:
            name = self._files.get(schedule.key)
            self._ask(name, schedule.line, "it came out of tinygrad's cache and was not saved before")

    def _ask(self, name: str | None, line: str | None, failed: str = "") -> None:
        test = current_test()
        part = self._part
        if test != part.test or len(part.schedules) + len(part.failed) >= MOST_ASKED:
            part = SavedTest(test, time.time_ns(), ())
            self._number += 1
        if name is None:
            part = replace(part, failed=(*part.failed, failed))
        else:
            schedules, asked = part.schedules, AskedSchedule(name, line)
            if schedules and replace(schedules[-1], count=1) == asked:
                asked = replace(asked, count=schedules[-1].count + 1)
                schedules = schedules[:-1]
            part = replace(part, schedules=(*schedules, asked))
        self._part = part
        try:
            file = f"{name_test(test)}-{self._token}-{self._number}.json"
            write_atomically(start_run(self.folder, self.run) / "tests" / file, dump_compact(part))
        except (OSError, StoreError) as error:
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        self._stopped = True
        print(f"vmapdbg: {error}; nothing more of this process is saved", file=sys.stderr)
        try:
            (self.folder / self.run.folder / FAILED).touch()
        except OSError:
            # the folder is gone or full: the tool sees this at the end of the run
            return


def current_test() -> str:
    """Returns the id of the current test; outside of pytest the name of the program and of this process."""
    running = os.environ.get("PYTEST_CURRENT_TEST")
    if running is not None:
        return _PHASE.sub("", running)
    if "pytest" in sys.modules:
        return OUTSIDE
    program = sys.argv[0] if sys.argv else ""
    name = os.path.relpath(program) if os.path.isabs(program) else program or "python"
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.current_process().name == "MainProcess":
        return name
    return f"{name} ({process.current_process().name})"
