"""`vmapdbg run --lint`, `--save` and `--check` in the program's processes: each schedule is handled as soon as it is
made, because workers often end without exit handlers. `vmapdbg.commands.run` is the tool's side."""

import atexit
import json
import mmap
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmapdbg.child.listen import hooks
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.records import PassRecord, ScheduleRecord, count_launches
from vmapdbg.child.listen.tally import Tally
from vmapdbg.child.live import build_live_capture, is_ordered
from vmapdbg.install.job import COUNTS, LintedSchedule
from vmapdbg.model.account import Left
from vmapdbg.model.capture import Versions
from vmapdbg.model.store import StoreError, append_line, dump_compact
from vmapdbg.suite.saved import FAILED, AskedSchedule, SavedRun, name_test, save_schedule, start_run

COLLECT_VARIABLE = "VMAPDBG_COLLECT"
"""JSON: what to do with schedules (`kind`), the `folder` that all processes write to, and what the kind needs."""
OUTSIDE = "(outside of the tests)"
"""The name for schedules that pytest makes while it collects tests."""

_PHASE = re.compile(r" \((setup|call|teardown)\)$")


def collect_from_this_process() -> None:
    """Lints, saves or checks what this process schedules, after the overlay is installed or tinygrad is observed."""
    asked = json.loads(os.environ[COLLECT_VARIABLE])
    folder = Path(asked["folder"])
    if asked["kind"] == "check":
        from vmapdbg.child.evidence.suite import check_this_process

        check_this_process(folder)
    elif asked["kind"] == "save":
        run = asked["run"]
        # built by hand: the interpreter of --python may not have what build_data needs
        saved = SavedRun(**{**run, "versions": Versions(**run["versions"]), "program": tuple(run["program"])})
        hooks.start(RunWriter(folder, saved))
    else:
        linter = Linter(folder, asked["target"])
        hooks.start(linter)
        atexit.register(linter.end_last)
        PublishedCounts(linter.tally, folder)


class PublishedCounts:
    """What a process counted, in a file of `COUNTS` that outlives it; mapped: the program may close all files."""

    size = 1 << 12

    def __init__(self, tally: Tally, folder: Path) -> None:
        self.tally, self.folder = tally, folder / COUNTS
        self.folder.mkdir(exist_ok=True)
        self.begin()
        tally.publish = self.write
        atexit.register(self.write)
        os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        """Begins a process: it has counted nothing."""
        self.tally.clear()
        with (self.folder / uuid.uuid4().hex).open("wb+") as file:
            # not `truncate`: without room on the disk this raises, but a write to the memory kills
            file.write(bytes(self.size))
            file.flush()
            self.memory = mmap.mmap(file.fileno(), self.size)

    def write(self) -> None:
        account = self.tally.settle()
        left = [Left("processes", 1, "it ended while kernels ran")] if self.tally.inside else []
        text = dump_compact(replace(account, left=tuple(left))).encode()
        self.memory[: len(text) + 1] = text + b"\0"


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
            self.end_last()

    def schedule_created(self, graph: Any, created: Any) -> None:
        super().schedule_created(graph, created)
        self.end_last(is_whole=True)

    def end_last(self, is_whole: bool = False) -> None:
        """Passes on the last schedule."""
        try:
            for schedule in self.schedules[-1:]:
                if schedule.cached:
                    self.asked_again(schedule)
                elif schedule.passed is not None:
                    self.made(schedule, schedule.passed, is_whole)
        finally:
            self.forget()


class Linter(ScheduleFeed):
    """Lints each schedule. It skips kernels that it knows, unless their order is wrong now."""

    def __init__(self, folder: Path, target: str) -> None:
        super().__init__()
        self.output, self.target = folder / f"{os.getpid()}.jsonl", target
        self.seen: set[bytes] = set()
        self.linted = 0  # launches of all schedules that were linted
        self.tally.count_recorded = lambda: self.linted
        self._launches: dict[bytes, int] = {}  # by the key of tinygrad's schedule cache

    def made(self, schedule: ScheduleRecord, passed: PassRecord, is_whole: bool) -> None:
        linted = self.lint(schedule, passed)
        self._launches[schedule.key] = count_launches(passed) if linted.failed is None else 0
        self.asked_again(schedule)
        append_line(self.output, linted)

    def asked_again(self, schedule: ScheduleRecord) -> None:
        self.linted += self._launches.get(schedule.key, 0)

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

        undecided = sum(kernel.is_undecided for kernel in capture.kernels)
        return LintedSchedule(len(new), undecided, lint_capture(capture))


class RunWriter(ScheduleFeed):
    """Writes schedules into the folder of a run, for the current test. It never raises for a schedule or a file: the
    program must go on. After the first file that cannot be written it prints a line on stderr and saves no more."""

    def __init__(self, folder: Path, run: SavedRun) -> None:
        super().__init__()
        self.folder, self.run = folder, run
        self._stopped = False
        # for each key of tinygrad's schedule cache the name of the file, "" if it could not be rendered
        self._files: dict[bytes, str] = {}
        self._begin_process()
        os.register_at_fork(after_in_child=self._begin_process)

    def _begin_process(self) -> None:
        self._test, self._file = "", ""

    def made(self, schedule: ScheduleRecord, passed: PassRecord, is_whole: bool) -> None:
        if self._stopped or not is_whole:
            return
        name = failed = ""
        try:
            built = build_live_capture([schedule], self.run.target)
        except Exception as error:  # the target may not have what the program uses
            failed = f"{type(error).__name__}: {error}"[:300]
        else:
            with self._stopping():
                name = save_schedule(start_run(self.folder, self.run), built)
        self._files[schedule.key] = name
        self._note(name, schedule.line, failed)

    def asked_again(self, schedule: ScheduleRecord) -> None:
        failed = "it came out of tinygrad's cache and was not saved before"
        self._note(self._files.get(schedule.key, ""), schedule.line, failed)

    def _note(self, name: str, line: str | None, failed: str) -> None:
        test = current_test()
        if test != self._test:
            self._test = test
            self._file = f"{name_test(test)}-{time.time_ns():020}-{uuid.uuid4().hex[:12]}.jsonl"  # sorted by time
        asked = AskedSchedule(test, name, line, "" if name else failed)
        if not self._stopped:
            with self._stopping():
                append_line(start_run(self.folder, self.run) / "tests" / self._file, asked)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Saves nothing more if a file of the block cannot be written."""
        try:
            yield
        except (OSError, StoreError) as error:
            self._stopped = True
            print(f"vmapdbg: {error}; nothing more of this process is saved", file=sys.stderr)
            # without the folder, or with a full disk, the tool sees it at the end of the run
            with suppress(OSError):
                (self.folder / self.run.folder / FAILED).touch()


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
    worker = "MainProcess" if process is None else process.current_process().name
    return name if worker == "MainProcess" else f"{name} ({worker})"
