"""Has oracles compute what a snippet should have got, and compares. Runs in a child of its own.

Started by `beside` in a process without the overlay: nothing of what is being checked takes part. It works beside the
process that runs the snippet, which writes its evidence:

    snippet   imports  pack 0  schedule, compile, run 0  pack 1  schedule, compile, run 1   capture
    checker   imports          values of 0             compare 0           values of 1   compare 1  report

So what a schedule should get is computed while it runs, and it is compared when it has run. How it compares is noted
for the snippet's process, which packs the kernels of a schedule only where it is wrong, and has nothing to tell of one
that is right. As long as the snippet runs the checker has the lower priority. Where there is one core, and for oracles
that need tinygrad, it does nothing before the snippet is done.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vmapdbg.check.result import CheckReport, ScheduleCheck
from vmapdbg.child.compare.prefetch import Prefetch
from vmapdbg.child.compare.priority import lower_thread
from vmapdbg.child.compare.schedule_checker import ScheduleChecker
from vmapdbg.child.evidence.folder import ASKED, CLOSED, PACKED, EvidenceFolder, schedule_of
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.failures.lifeline import hold
from vmapdbg.install.job import CheckRequest, load_request
from vmapdbg.model.data import to_data
from vmapdbg.model.store import write_atomically
from vmapdbg.model.wording import format_seconds

_FREE, _SHARE = 1.0, 0.05
_TOLD = 2.0
"""Seconds after which it is told how long the rest takes."""
_LOOK = 0.01
"""Seconds between two looks at what the snippet has written."""


def main() -> None:
    request = load_request(CheckRequest, sys.argv[1])
    hold(request.lifeline)
    checker = RunChecker(request)
    # a thread can have a priority of its own, and a process cannot get its own back
    with ThreadPoolExecutor(1, initializer=lower_thread) as pool:
        beside = None
        if count_cores() > 1:
            beside = pool.submit(checker.work_beside)
        while not request.over.exists() and not checker.is_complete:
            time.sleep(_LOOK)
        if beside is not None:
            checker.report_so_far()
            beside.result()
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
        self.prefetch = Prefetch(self.folder)
        # name of the file of a schedule -> what came of it
        self.checks: dict[str, ScheduleCheck] = {}
        self.waiting: list[str] = []
        # those of them that are wrong, and whose kernels the snippet has not packed yet
        self.wrong_early: set[str] = set()
        self.written = Written(request)
        # whether the snippet writes nothing more
        self.is_closed = False
        self._read = 0

    # *** the snippet runs

    def work_beside(self) -> None:
        """Compares what is there, and computes ahead, until the snippet is done or all is compared."""
        self.folder.watch()
        while not self.request.over.exists() and not self.is_complete:
            self.read_news()
            if self.waiting:
                self.compare_first()
            elif not self.prefetch.work_until(time.monotonic() + _LOOK):
                time.sleep(_LOOK)

    def read_news(self) -> None:
        """Takes note of what the snippet has written since."""
        names, self._read = self.folder.read_written(self._read)
        for name in names:
            if name == CLOSED:
                self.is_closed = True
            elif name.startswith(PACKED) and name.removeprefix(PACKED) not in self.wrong_early:
                # right, and done with; or to be compared yet, with what is there by then
                continue
            elif name != ASKED:
                name = name.removeprefix(PACKED)
                # what is written again says more than before
                self.checks.pop(name, None)
                self.wrong_early.discard(name)
                if name not in self.waiting:
                    self.waiting.append(name)
        if names and names[-1] == ASKED:
            self.prefetch.start()

    @property
    def is_complete(self) -> bool:
        """Whether all that the snippet has written and will write is compared."""
        if not self.is_closed or self.waiting:
            return False
        return all(file.name in self.checks for file in self.folder.find_files())

    def compare_first(self) -> None:
        """Compares the first schedule that waits."""
        file = self.folder.path / self.waiting.pop(0)
        evidence: Evidence = pickle.loads(file.read_bytes())
        # what it should have computed takes time, and the snippet has ended
        if evidence.failed is not None:
            self.folder.note_judged(file.name, "later")
            return
        check = self.compare(evidence, walks=not evidence.is_late)
        self.checks[file.name] = check
        if check.wrong and evidence.is_late:
            self.wrong_early.add(file.name)
        self.folder.note_judged(file.name, "wrong" if check.wrong else "right")
        with self.request.compared.open("a", encoding="utf-8") as compared:
            compared.write(f"{evidence.schedule}\n")

    def compare(self, evidence: Evidence, walks: bool = True) -> ScheduleCheck:
        """Returns how a schedule compares; where it `walks`, with the first wrong buffer."""
        check = ScheduleChecker(evidence, self.folder, self.prefetch).check(walks)
        self.prefetch.end(evidence)
        return check

    # *** the snippet is done

    def report_so_far(self) -> None:
        """Writes the report of what was compared beside the snippet, which another thread may still be at."""
        files = self.folder.find_files()
        checks = self.list_checks(files)
        if checks:
            self.written.update(checks, len(files) - len(checks))
            self.tell(len(checks), len(files), "")

    def finish(self) -> None:
        """Compares the rest, and writes the report."""
        self.read_news()
        files = self.folder.find_files()
        left = [file for file in files if file.name not in self.checks or file.name in self.wrong_early]
        work = json.loads(self.request.over.read_text(encoding="utf-8")) if left else []
        rest = Rest([find_work(file, work) for file in left if work])
        for done, file in enumerate(left, len(files) - len(left)):
            self.tell(done, len(files), rest.describe())
            self.checks[file.name] = self.compare(pickle.loads(file.read_bytes()))
            rest.done += 1
            self.written.update(self.list_checks(files), len(files) - done - 1)
        if not left:
            self.written.update(self.list_checks(files), 0)

    def tell(self, done: int, count: int, rest: str) -> None:
        """Says how far it is: so many schedules of all."""
        write_atomically(self.request.progress, f"schedule {done + 1} of {count}{rest}")

    def list_checks(self, files: Sequence[Path]) -> list[ScheduleCheck]:
        """Returns what came of the schedules so far, in their order."""
        found = [self.checks.get(file.name) for file in files]
        return [check for check in found if check is not None]


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
