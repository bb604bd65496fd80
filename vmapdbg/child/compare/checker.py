"""Compares the values of a snippet or a program with the numpy reference, in a process of its own without tinygrad.

For a snippet, `start` runs it. While the snippet runs, it computes the outputs of the schedule that runs now, and
compares the schedules that have run. When the snippet has ended, it compares the rest. With one core, it starts then.

For `vmapdbg run --check` this module runs with a ProgramCheckRequest. It compares the evidence of all processes of the
program (`vmapdbg.child.evidence.suite`), schedule by schedule, removes it, and adds a line to the output.
It ends when the program has ended and no evidence is left.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from vmapdbg.check.findings import CheckedSchedule
from vmapdbg.check.result import CheckReport, ScheduleCheck
from vmapdbg.child.compare.reference_values import DOUBLE, MOVED, KnownValues, ReferenceValues
from vmapdbg.child.compare.schedule_checker import ScheduleChecker
from vmapdbg.child.compare.start import lower_thread
from vmapdbg.child.evidence.evidence import ASKED, Evidence, EvidenceFolder
from vmapdbg.child.failures.snippet_end import hold
from vmapdbg.child.reduce.trial import RUNS, Worker
from vmapdbg.install.job import CheckRequest, ProgramCheckRequest, load_request
from vmapdbg.model.store import append_line, dump_compact, write_atomically
from vmapdbg.model.wording import first_line
from vmapdbg.reference.graph import OpGraph

_FREE, _SHARE = 1.0, 0.05
"""Updating the report may take one second of a run, and later a twentieth of its time."""
_PATIENCE = 60.0
"""Seconds that stock tinygrad may take for the graph of a failed schedule."""
_LOOK = 0.01
"""Seconds between two looks at what the snippet has written."""
_PROGRAM_LOOK = 0.05
"""Seconds between two looks at what the processes of a program have written."""
_MOST_SECONDS = 120
"""The most seconds for one schedule of a program."""


# *** a snippet


def main() -> None:
    request = load_request(CheckRequest, sys.argv[1])
    hold(request.lifeline)
    checker = RunChecker(request)
    # only a thread can get a lower priority for a while
    worker = threading.Thread(target=checker.work_during_run)
    worker.start()
    while not request.over.exists():
        time.sleep(_LOOK)
    # the worker may still compare a schedule
    checker.update_report()
    worker.join()
    checker.finish()


def count_cores() -> int:
    """Returns how many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class RunChecker:
    """Compares the schedules of a run. `checks` has the results by the names of the files."""

    def __init__(self, request: CheckRequest):
        assert request.evidence is not None
        self.request, self.folder = request, EvidenceFolder(Path(request.evidence))
        self.checks: dict[str, ScheduleCheck] = {}
        self.waiting: list[str] = []
        # the graph of the last schedule that began, its computed values by precision, the precisions to compute
        self.asked = OpGraph()
        self.known: dict[int | None, KnownValues] = {}
        self.next_precisions: list[int | None] = []
        self._read = 0
        # seconds that updates of the report took
        self._began, self._updates = time.monotonic(), 0.0

    def work_during_run(self) -> None:
        """Compares what the snippet has written until the snippet is done."""
        if count_cores() == 1:
            return
        lower_thread()
        while not self.request.over.exists():
            self.read_news()
            if self.waiting:
                self.compare_first()
            elif self.next_precisions:
                self.compute_asked(self.next_precisions.pop(0))
            else:
                time.sleep(_LOOK)

    def read_news(self) -> None:
        """Notes what the snippet has written since the last call."""
        names, self._read = self.folder.read_written(self._read)
        for name in names:
            # the outputs of a schedule that has ended are computed when they are compared
            self.next_precisions = []
            if name == ASKED:
                self.next_precisions = [None, DOUBLE, *MOVED]
                self.asked, self.known = pickle.loads((self.folder.path / ASKED).read_bytes()), {}
                continue
            # what is written again has more than before
            self.checks.pop(name, None)
            if name not in self.waiting:
                self.waiting.append(name)

    def compare_first(self) -> None:
        """Compares the first waiting schedule."""
        file = self.folder.path / self.waiting.pop(0)
        evidence: Evidence = pickle.loads(file.read_bytes())
        if evidence.failed is not None:
            # what it should have computed is only needed for the report
            return
        self.checks[file.name] = self.compare(evidence)

    def compute_asked(self, precision: int | None) -> None:
        """Computes the outputs of the last schedule that began; `precision` is explained in ReferenceValues."""
        roots = self.asked.roots
        try:
            found = ReferenceValues(self.asked, self.folder.read_data, precision).evaluate_all(roots)
        except Exception:  # the comparison reports it
            self.next_precisions = []
            return
        self.known[precision] = dict(zip(roots, found, strict=True))

    def compare(self, evidence: Evidence) -> ScheduleCheck:
        """Returns how a schedule compares. Values are used again if its graph is the computed graph, or extends it."""
        graph = evidence.graphs.get("asked")
        known: dict[int | None, KnownValues] = {}
        if graph is not None and graph.extends(self.asked):
            known = self.known
        return ScheduleChecker(evidence, self.folder, known).check()

    def finish(self) -> None:
        """Compares the rest, and writes the report."""
        self.read_news()
        left = [file for file in self.folder.find_files() if file.name not in self.checks]
        self.update_report()
        for file in left:
            evidence: Evidence = pickle.loads(file.read_bytes())
            check = self.compare(evidence)
            if evidence.failed is not None:
                check = replace(check, stock_runs=self.try_stock(evidence))
            self.checks[file.name] = check
            self.update_report()

    def try_stock(self, evidence: Evidence) -> bool | None:
        """Returns whether stock tinygrad computes the graph of a failed schedule; None if it cannot be tried: stock
        tinygrad has no vmap scope."""
        asked = evidence.graphs.get("asked")
        if evidence.reducer_graph is None or asked is None or asked.ranges:
            return None
        worker = Worker(replace(self.request.job, patches=frozenset()))
        contents = {name: self.folder.read_data(name) for (name,) in asked.inputs.values()}
        try:
            worker.send(evidence.reducer_graph, contents, evidence.switches)
            return worker.receive(_PATIENCE).end == RUNS
        finally:
            worker.close()

    def update_report(self) -> None:
        """Writes the results so far, in the order of the schedules, and how far the comparison is.

        The report so far is printed if the user stops the comparison. It is always written if no schedule is left."""
        files = self.folder.find_files()
        checks = [self.checks[file.name] for file in files if file.name in self.checks]
        left = len(files) - len(checks)
        if left:
            write_atomically(self.request.progress, f"schedule {len(checks) + 1} of {len(files)}")
        began = time.monotonic()
        if left and self._updates > max(_FREE, _SHARE * (began - self._began)):
            return
        write_atomically(self.request.output, dump_compact(CheckReport(tuple(checks), left)))
        self._updates += time.monotonic() - began


# *** all processes of a program


class TookTooLong(Exception):
    """The comparison of a schedule takes too long."""


def check_program() -> None:
    request = load_request(ProgramCheckRequest, sys.argv[1])
    hold(request.lifeline)
    request.output.touch()
    root = Path(request.folder)
    ready = root / "ready"
    ready.mkdir(exist_ok=True)
    signal.signal(signal.SIGALRM, _give_up)
    while True:
        is_over = (root / "over").exists()
        waiting = sorted(ready.iterdir())
        for number, folder in enumerate(waiting):
            if is_over:
                write_atomically(request.progress, f"{len(waiting) - number:,} schedules to go")
            append_line(request.output, check_folder(folder))
            shutil.rmtree(folder)
        if not waiting and is_over:
            return
        if not waiting:
            time.sleep(_PROGRAM_LOOK)


def check_folder(folder: Path) -> CheckedSchedule:
    """Returns how the schedule of a folder compares."""
    test: str
    evidence: Evidence
    test, evidence = pickle.loads((folder / "evidence.pickle").read_bytes())
    if evidence.failed is not None and evidence.schedule >= 0:
        evidence.unchecked.insert(0, f"it raised {evidence.failed}")
    if evidence.failed is not None and not evidence.is_endless:
        # a program may expect the error: what should have been computed is not reported
        evidence.graphs.clear()
        evidence.crash = None
    try:
        with limited_time():
            found = ScheduleChecker(evidence, EvidenceFolder(folder)).check()
    except Exception as error:  # the other schedules are compared all the same
        reason = f"the comparison failed: {type(error).__name__}: {first_line(error)}"
        if isinstance(error, TookTooLong):
            reason = f"it takes more than {_MOST_SECONDS} s"
        evidence.graphs.clear()
        evidence.unchecked = [reason]
        found = ScheduleChecker(evidence, EvidenceFolder(folder)).check()
    return CheckedSchedule(test, len(found.outputs), replace(found, outputs=found.wrong))


@contextlib.contextmanager
def limited_time() -> Iterator[None]:
    """Raises TookTooLong in a block that takes too long."""
    signal.alarm(_MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TookTooLong


if __name__ == "__main__":
    check_program()
