"""Compares the values of a snippet with the numpy reference, in a process of its own without tinygrad.

`start` runs it. While the snippet runs, it computes the outputs of the schedule that runs now, and compares the
schedules that have run. When the snippet has ended, it compares the rest. If there is one core, it starts then.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vmapdbg.check.result import CheckReport, ScheduleCheck
from vmapdbg.child.compare.reference_values import DOUBLE, MOVED, KnownValues, ReferenceValues
from vmapdbg.child.compare.schedule_checker import ScheduleChecker
from vmapdbg.child.compare.start import lower_thread
from vmapdbg.child.evidence.folder import ASKED, EvidenceFolder, schedule_of
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.failures.snippet_end import hold
from vmapdbg.child.reduce.worker import RUNS, Worker
from vmapdbg.install.job import CheckRequest, load_request
from vmapdbg.model.data import to_data
from vmapdbg.model.store import write_atomically
from vmapdbg.model.wording import format_seconds
from vmapdbg.reference.graph import OpGraph
from vmapdbg.reference.value import RangedArray

_FREE, _SHARE = 1.0, 0.05
_SHOWN_AFTER = 2.0
"""Seconds after which the remaining time is shown."""
_PATIENCE = 60.0
"""Seconds that stock tinygrad may take for the graph of a failed schedule."""
_LOOK = 0.01
"""Seconds between two looks at what the snippet has written."""


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
    """Compares the schedules of a run."""

    def __init__(self, request: CheckRequest):
        assert request.evidence is not None
        self.request, self.folder = request, EvidenceFolder(Path(request.evidence))
        # name of the file of a schedule -> how it compares
        self.checks: dict[str, ScheduleCheck] = {}
        self.waiting: list[str] = []
        self.report = ReportFile(request)
        # the graph of the last schedule that began, its computed values by precision, the precisions to compute
        self.asked = OpGraph()
        self.known: dict[int | None, KnownValues] = {}
        self.next_precisions: list[int | None] = []
        self._read = 0

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
        with self.request.compared.open("a", encoding="utf-8") as compared:
            compared.write(f"{evidence.schedule}\n")

    def compute_asked(self, precision: int | None) -> None:
        """Computes the outputs of the last schedule that began; `precision` is explained in ReferenceValues."""
        roots = self.asked.roots
        try:
            found = ReferenceValues(self.asked, self.folder.read_data, precision).evaluate_raw(roots)
        except Exception:  # the comparison raises it again, and it is reported
            self.next_precisions = []
            return
        values = zip(roots, found, strict=True)
        self.known[precision] = {root: value for root, value in values if isinstance(value, RangedArray)}

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
        work = json.loads(self.request.over.read_text(encoding="utf-8")) if left else []
        rest = RemainingTime([work_of(file, work) for file in left if work])
        self.update_report()
        for file in left:
            evidence: Evidence = pickle.loads(file.read_bytes())
            check = self.compare(evidence)
            if evidence.failed is not None:
                check = replace(check, stock_runs=self.try_stock(evidence))
            self.checks[file.name] = check
            rest.done += 1
            self.update_report(rest.describe())

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

    def update_report(self, rest: str = "") -> None:
        """Reports the results so far, in the order of the schedules, and how far the comparison is."""
        files = self.folder.find_files()
        checks = [self.checks[file.name] for file in files if file.name in self.checks]
        left = len(files) - len(checks)
        if left:
            write_atomically(self.request.progress, f"schedule {len(checks) + 1} of {len(files)}{rest}")
        self.report.update(checks, left)


def work_of(file: Path, work: Sequence[int]) -> int:
    """Returns how much there is to compute for the evidence of a file, at least 1."""
    schedule = schedule_of(file)
    return 1 + (work[schedule] if schedule < len(work) else 0)


class RemainingTime:
    """Estimates how long the rest takes. `work` has a number for each remaining schedule; it is empty if unknown."""

    def __init__(self, work: Sequence[int]):
        self.work, self.done = list(work), 0
        self.began = time.monotonic()

    def describe(self) -> str:
        """Returns `, about 2 min left`, or nothing if too little is known."""
        took = time.monotonic() - self.began
        if not self.work or not self.done or took < _SHOWN_AFTER:
            return ""
        left = took * sum(self.work[self.done :]) / sum(self.work[: self.done])
        return f", about {format_seconds(left)} left"


class ReportFile:
    """The report so far, which is printed if the user stops the comparison. Updating it may take one second of a run,
    and later a twentieth of its time."""

    def __init__(self, request: CheckRequest):
        self.request = request
        self.began, self.spent = time.monotonic(), 0.0

    def update(self, checks: Sequence[ScheduleCheck], left: int) -> None:
        """Writes the results; `left` schedules are not compared yet. If none is left, it always writes."""
        began = time.monotonic()
        if left and self.spent > max(_FREE, _SHARE * (began - self.began)):
            return
        text = json.dumps(to_data(CheckReport(tuple(checks), left)), allow_nan=False)
        write_atomically(self.request.output, text)
        self.spent += time.monotonic() - began
