"""`vmapdbg run --save` on the side of the program's processes: writes down what each test schedules, as it does.

`vmapdbg.commands.run_save` is the tool's side. `RunWriter` takes schedules of the model, `vmapdbg.child.feed` has them
from the overlay or observes them.

The program stays as it is: what it prints, when its tensors are freed, the names of its kernels. A test's file is
written anew after each schedule, because nobody says when a test is over, and workers end without exit handlers.
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
from typing import Any

from vmapdbg.child.feed import MadeSchedule, feed
from vmapdbg.model.data import build_data
from vmapdbg.model.store import StoreError, write_atomically
from vmapdbg.suite.folder import FAILED, name_test, start_run
from vmapdbg.suite.saved import AskedSchedule, SavedRun, SavedTest, digest, dump_record, shrink_schedule

SAVE_VARIABLE = "VMAPDBG_SAVE"
"""JSON with the `folder` of the run and the `run` itself, as `run.json` has it."""
MOST_ASKED = 256
"""How many schedules a file of a test has: it is written anew for each of them."""
OUTSIDE = "(outside of the tests)"
"""What stands for a test where pytest collects, or sets up what is none's."""

_PHASE = re.compile(r" \((setup|call|teardown)\)$")


def save_this_process() -> None:
    """Has what this process schedules saved. The overlay is installed already, unless tinygrad is observed as it is."""
    asked = json.loads(os.environ[SAVE_VARIABLE])
    writer = RunWriter(Path(asked["folder"]), build_data(SavedRun, asked["run"]))
    feed(writer)


class RunWriter:
    """Writes schedules into the folder of a run, for the test that runs. It never raises for a schedule or a file: the
    program must go on. What it cannot write it says once, on stderr, and then saves no more."""

    def __init__(self, folder: Path, run: SavedRun) -> None:
        self.folder, self.run = folder, run
        self._stopped = False
        # what tinygrad's schedule cache has: the file of the schedule, None where it could not be rendered
        self._by_key: dict[bytes, str | None] = {}
        self._written: set[str] = set()
        self._begin_process()
        os.register_at_fork(after_in_child=self._begin_process)

    def _begin_process(self) -> None:
        self._token = uuid.uuid4().hex[:12]
        self._number = 0
        self._part = SavedTest("", 0, ())

    def made(self, schedule: MadeSchedule) -> None:
        """Saves a new schedule."""
        if self._stopped or not schedule.is_whole:
            return
        try:
            built = schedule.build(self.run.target).schedules[0]
        except Exception as error:  # the target may not have what the program uses
            self._by_key[schedule.key] = None
            self._ask(None, schedule.line, f"{type(error).__name__}: {error}"[:300])
            return
        saved, kernels = shrink_schedule(built)
        name = digest(saved)[:24]
        self._by_key[schedule.key] = name
        for kernel_name, kernel in kernels.items():
            self._write_once("kernels", kernel_name, kernel)
        self._write_once("schedules", name, saved)
        self._ask(name, schedule.line)

    def asked_again(self, key: bytes, line: str | None) -> None:
        """Saves that a schedule was asked for which tinygrad has in its cache."""
        if not self._stopped:
            self._ask(self._by_key.get(key), line, "it came out of tinygrad's cache and was not saved before")

    def _ask(self, name: str | None, line: str | None, failed: str = "") -> None:
        test = find_test()
        part = self._part
        if test != part.test or len(part.schedules) + len(part.failed) >= MOST_ASKED:
            part = SavedTest(test, time.time_ns(), ())
            self._number += 1
        if name is None:
            part = replace(part, failed=(*part.failed, failed))
        else:
            part = replace(part, schedules=add_asked(part.schedules, AskedSchedule(name, line)))
        self._part = part
        self._write("tests", f"{name_test(test)}-{self._token}-{self._number}", part)

    def _write_once(self, part: str, name: str, record: Any) -> None:
        if name not in self._written:
            self._written.add(name)
            self._write(part, name, record)

    def _write(self, part: str, name: str, record: Any) -> None:
        if self._stopped:
            return
        try:
            files = start_run(self.folder, self.run)
            write_atomically(files / part / f"{name}.json", dump_record(record))
        except (OSError, StoreError) as error:
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        self._stopped = True
        print(f"vmapdbg: {error}; nothing more of this process is saved", file=sys.stderr)
        try:
            (self.folder / self.run.folder / FAILED).touch()
        except OSError:
            # the folder itself is gone or full: the tool sees that when it ends the run
            return


def add_asked(asked: tuple[AskedSchedule, ...], new: AskedSchedule) -> tuple[AskedSchedule, ...]:
    """Returns the entries with one more; one like the last is counted there."""
    if asked and replace(asked[-1], count=1) == new:
        return (*asked[:-1], replace(new, count=asked[-1].count + 1))
    return (*asked, new)


def find_test() -> str:
    """Returns the id of the test that runs; outside of pytest the program, and which of its processes this is."""
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
