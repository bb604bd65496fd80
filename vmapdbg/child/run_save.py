"""`vmapdbg run --save` in the program's processes: saves what each test schedules, schedule by schedule.

`vmapdbg.commands.run` is the tool's side. The file of a test is written again after each schedule, because the end of
a test is not known, and workers end without exit handlers.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

from vmapdbg.child.listen.records import PassRecord, ScheduleRecord
from vmapdbg.child.live import ScheduleFeed, build_live_capture, listen
from vmapdbg.model.data import build_data
from vmapdbg.model.store import StoreError, dump_compact, write_atomically
from vmapdbg.suite.saved import (
    FAILED,
    AskedSchedule,
    SavedRun,
    SavedTest,
    name_test,
    save_schedule,
    start_run,
)

SAVE_VARIABLE = "VMAPDBG_SAVE"
"""JSON with the `folder` of the run and the `run` itself, as `run.json` has it."""
MOST_ASKED = 256
"""How many schedules a file of a test has: it is written again for each of them."""
OUTSIDE = "(outside of the tests)"
"""The name for schedules that pytest makes while it collects tests."""

_PHASE = re.compile(r" \((setup|call|teardown)\)$")


def save_this_process() -> None:
    """Saves what this process schedules."""
    asked = json.loads(os.environ[SAVE_VARIABLE])
    listen(RunWriter(Path(asked["folder"]), build_data(SavedRun, asked["run"])))


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
            part = replace(part, schedules=add_asked(part.schedules, AskedSchedule(name, line)))
        self._part = part
        try:
            files = start_run(self.folder, self.run)
            write_atomically(
                files / "tests" / f"{name_test(test)}-{self._token}-{self._number}.json", dump_compact(part)
            )
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


def add_asked(asked: tuple[AskedSchedule, ...], new: AskedSchedule) -> tuple[AskedSchedule, ...]:
    """Returns the entries with a new entry; if it equals the last entry, that is counted once more."""
    if asked and replace(asked[-1], count=1) == new:
        return (*asked[:-1], replace(new, count=asked[-1].count + 1))
    return (*asked, new)


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
