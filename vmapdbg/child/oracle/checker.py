"""Has oracles compute what a snippet should have got, and compares. Runs in a child of its own.

Started by `launcher` as `python -m vmapdbg.child.oracle.checker REQUEST` when the snippet is done, in a process without
the overlay: nothing of what is being checked takes part."""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from vmapdbg.check.result import BufferCheck, CheckReport, Comparison, ExpectedOutput, OutputCheck, ScheduleCheck
from vmapdbg.child.diagnosis import EndlessRewrite, Watcher
from vmapdbg.child.evidence.folder import EvidenceFolder, schedule_of
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.lifeline import hold
from vmapdbg.child.oracle.comparer import Comparer
from vmapdbg.child.oracle.expected import find_expected
from vmapdbg.child.oracle.first_wrong_buffer import Walk
from vmapdbg.child.oracle.oracle import Refused, Values
from vmapdbg.child.oracle.outputs import OutputChecker
from vmapdbg.job.job import CheckRequest, load_request
from vmapdbg.model.data import to_data
from vmapdbg.model.store import write_atomically
from vmapdbg.model.wording import format_seconds
from vmapdbg.values.numbers import Array

_FREE, _SHARE = 1.0, 0.05
_TOLD = 2.0
"""Seconds after which it is told how long the rest takes."""


def main() -> None:
    request = load_request(CheckRequest, sys.argv[1])
    hold(request.lifeline)
    assert request.evidence is not None
    folder = EvidenceFolder(Path(request.evidence))
    files = folder.find_files()
    checks: list[ScheduleCheck] = []
    # an oracle that runs on tinygrad may not end either
    Watcher(lambda text: None).start()
    rest = Rest([find_work(file, request.work) for file in files if request.work])
    written = Written(request)
    for count, file in enumerate(files, 1):
        write_atomically(request.progress, f"schedule {count} of {len(files)}{rest.describe()}")
        evidence: Evidence = pickle.loads(file.read_bytes())
        checks.append(Checker(evidence, folder, request.limit).check(request.oracles))
        rest.done = count
        written.update(checks, len(files) - count)
    if not files:
        written.update(checks, 0)


def find_work(file: Path, work: Sequence[int]) -> int:
    """Returns how much there is to compute for the evidence of a file, which is at least something."""
    schedule = schedule_of(file)
    return 1 + (work[schedule] if schedule < len(work) else 0)


class Rest:
    """How long the rest takes, by the work that is done: one number for each schedule in their order; empty where that
    is not known."""

    def __init__(self, work: Sequence[int]):
        self.work, self.done = list(work), 0
        self.began = time.monotonic()

    def describe(self) -> str:
        """Returns `, about 2 min left`, nothing where too little is known to tell."""
        took = time.monotonic() - self.began
        if not self.work or not self.done or took < _TOLD:
            return ""
        left = took * sum(self.work[self.done :]) / sum(self.work[: self.done])
        return f", about {format_seconds(left)} left"


class Written:
    """The report so far, for whoever stops the comparison. To write it again and again takes a second of a run, and
    then a twentieth of its time."""

    def __init__(self, request: CheckRequest):
        self.request = request
        self.began, self.spent = time.monotonic(), 0.0

    def update(self, checks: Sequence[ScheduleCheck], left: int) -> None:
        """Writes what was compared; `left` schedules were not yet. The last of all is always written."""
        began = time.monotonic()
        if left and self.spent > max(_FREE, _SHARE * (began - self.began)):
            return
        text = json.dumps(to_data(CheckReport(tuple(checks), left)), allow_nan=False)
        write_atomically(self.request.output, text)
        self.spent += time.monotonic() - began


class Checker:
    """Checks one schedule. `limit` is the most graphs that are computed for one output or buffer."""

    def __init__(self, evidence: Evidence, folder: EvidenceFolder, limit: int):
        self.evidence, self.folder, self.limit = evidence, folder, limit
        self.comparer = Comparer(evidence, folder)

    def check(self, oracles: Sequence[str]) -> ScheduleCheck:
        outputs: list[OutputCheck] = []
        buffers: list[BufferCheck] = []
        expected: tuple[ExpectedOutput, ...] = ()
        stock_runs = None
        if self.evidence.failed is not None:
            stock_runs = self.try_stock()
            expected = find_expected(self.evidence, self.folder.read_data)
        elif self.evidence.is_kept:
            for name in oracles:
                outputs += OutputChecker(self.comparer, name, self.limit).check_all()
        wrong = [output for output in outputs if output.comparison.status == "wrong"]
        if wrong:
            buffers = self.walk_back(wrong[0].oracle)
        return ScheduleCheck(
            schedule=self.evidence.schedule,
            line=self.evidence.line,
            outputs=tuple(outputs),
            buffers=tuple(buffers),
            unchecked=tuple(dict.fromkeys(self.comparer.unchecked)),
            failed=self.evidence.failed,
            stock_runs=stock_runs,
            evaluations=sum(values.evaluations for values in self.comparer.opened),
            failed_kernel=self.find_failed_kernel(),
            failed_node=self.evidence.failed_node,
            replay=self.evidence.replay,
            crash=self.evidence.crash,
            expected=expected,
            lost=tuple(self.evidence.lost),
            cut=tuple(self.evidence.cut),
        )

    def try_stock(self) -> bool | None:
        """Tells whether stock tinygrad computes the graph; None where that would take too many graphs."""
        try:
            values = self.comparer.open("stock", "asked")
        except Refused:
            return None
        if values is None or sum(map(values.count_evaluations, values.roots)) > self.limit:
            return None
        try:
            values.evaluate(values.roots)
        except (Exception, EndlessRewrite):  # whatever it is, stock cannot do it either
            return False
        return True

    def find_failed_kernel(self) -> int | None:
        """Returns the number of the kernel that was compiled or ran when the schedule failed."""
        if self.evidence.failed_kernel is not None or self.evidence.crash is None:
            return self.evidence.failed_kernel
        return self.evidence.crash.kernel

    # *** the first wrong buffer

    def walk_back(self, oracle: str) -> list[BufferCheck]:
        """Compares the buffers between the kernels in the order of the schedule, up to the first wrong one."""
        try:
            values = self.comparer.open(oracle, "passed")
        except Refused:
            return []
        if values is None:
            if self.evidence.passed_refused is not None:
                self.comparer.unchecked.append(f"the buffers between its kernels: {self.evidence.passed_refused}")
            return []

        def compare_buffer(slot: int, got: Array, right: Array) -> Comparison:
            return self.comparer.compare(oracle, "passed", values, slot, got, right, lambda v: v.evaluate_batch(slot))

        def remake(given: Mapping[int, Array]) -> Values:
            others = self.comparer.open(oracle, "passed", given=given)
            assert others is not None
            return others

        return Walk(self.evidence, self.folder.read_data, self.limit, values, remake, compare_buffer).walk_back()


if __name__ == "__main__":
    main()
