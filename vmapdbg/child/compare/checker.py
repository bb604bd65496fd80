"""Compares the values of a snippet or a program with the numpy reference, in a process of its own without tinygrad.

While a snippet runs, it computes the outputs of the running schedule and compares schedules that have run. The output
has a line for each ScheduleCheck. A schedule is compared again if more is known about it: its last line counts.

For `vmapdbg run --check` it compares and removes the evidence of all processes (`vmapdbg.child.evidence.suite`), and
adds a CheckedSchedule for each schedule. It ends when the program has ended and no evidence is left."""

import contextlib
import pickle
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from vmapdbg.check.findings import CheckedSchedule
from vmapdbg.check.result import ScheduleCheck
from vmapdbg.child.compare.reference_values import DOUBLE, MOVED, KnownValues, ReferenceValues
from vmapdbg.child.compare.schedule_checker import ScheduleChecker
from vmapdbg.child.evidence.evidence import ASKED, Evidence, EvidenceFolder
from vmapdbg.install.job import CheckRequest, load_request
from vmapdbg.install.system import hold
from vmapdbg.model.store import append_line, write_atomically
from vmapdbg.model.wording import first_line
from vmapdbg.reference.graph import OpGraph

_LOOK = 0.01  # seconds between two looks at what the snippet or the program has written
_MOST_SECONDS = 120  # the most seconds for one schedule of a program


def main() -> None:
    request = load_request(CheckRequest, sys.argv[1])
    hold(request.lifeline)
    request.output.touch()
    if request.evidence is None:
        check_program(request)
        return
    checker = RunChecker(request, EvidenceFolder(Path(request.evidence)))
    while not request.over.exists():
        if not checker.work():
            time.sleep(_LOOK)
    checker.finish()


class RunChecker:
    """Compares the schedules of a run. `done` has the names of the compared files."""

    def __init__(self, request: CheckRequest, folder: EvidenceFolder):
        self.request, self.folder = request, folder
        self.done: set[str] = set()
        self.waiting: list[str] = []
        # the graph of the last schedule that began, its computed values by precision, the precisions to compute
        self.asked = OpGraph()
        self.known: dict[int | None, KnownValues] = {}
        self.next_precisions: list[int | None] = []
        self._read = 0

    def work(self) -> bool:
        """Compares a schedule that the snippet has written, or computes outputs. Returns whether there was work."""
        self.read_news()
        if self.waiting:
            self.compare_next(is_over=False)
            if not self.waiting:
                self.folder.note_compared(self._read)
            return True
        if self.next_precisions:
            self.compute_asked(self.next_precisions.pop(0))
            return True
        return False

    def compare_next(self, is_over: bool) -> None:
        """Compares the next schedule and reports it. A failed schedule must wait until the snippet is over."""
        name = self.waiting.pop(0)
        number = len(self.done) + 1
        write_atomically(self.request.progress, f"schedule {number} of {number + len(self.waiting)}")
        evidence: Evidence = pickle.loads((self.folder.path / name).read_bytes())
        if evidence.failed is not None and not is_over:
            return
        append_line(self.request.output, self.compare(evidence))
        self.done.add(name)

    def read_news(self) -> None:
        """Notes what the snippet has written since the last call."""
        names, self._read = self.folder.read_written(self._read)
        for name in names:
            self.next_precisions = []  # the outputs of a schedule that has ended are computed when they are compared
            if name == ASKED:
                self.next_precisions = [None, DOUBLE, *MOVED]
                self.asked, self.known = pickle.loads((self.folder.path / ASKED).read_bytes()), {}
                continue
            self.done.discard(name)  # what is written again has more than before
            if name not in self.waiting:
                self.waiting.append(name)

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
        extends = graph is not None and graph.extends(self.asked)
        return ScheduleChecker(evidence, self.folder, self.known if extends else {}).check()

    def finish(self) -> None:
        """Compares the rest."""
        self.read_news()
        self.waiting = [file.name for file in self.folder.find_files() if file.name not in self.done]
        while self.waiting:
            self.compare_next(is_over=True)


# *** all processes of a program


class TookTooLong(BaseException):
    """The comparison of a schedule takes too long. It is no failure of the reference, which costs one value only."""


def check_program(request: CheckRequest) -> None:
    ready = Path(request.folder) / "ready"
    ready.mkdir(exist_ok=True)
    signal.signal(signal.SIGALRM, _give_up)
    while True:
        is_over = request.over.exists()
        waiting = sorted(ready.iterdir())
        for number, folder in enumerate(waiting):
            if is_over:
                write_atomically(request.progress, f"{len(waiting) - number:,} schedules to go")
            append_line(request.output, check_folder(folder))
            shutil.rmtree(folder)
        if not waiting and is_over:
            return
        if not waiting:
            time.sleep(_LOOK)


def check_folder(folder: Path) -> CheckedSchedule:
    """Returns how the schedule of a folder compares."""
    test: str
    evidence: Evidence
    test, evidence = pickle.loads((folder / "evidence.pickle").read_bytes())
    if evidence.failed is not None and evidence.schedule >= 0:
        evidence.leave_all(f"it raised {evidence.failed}")
    if evidence.failed is not None and not evidence.is_endless:
        # a program may expect the error: what should have been computed is not reported
        evidence.graphs.clear()
        evidence.crash = None
    try:
        with limited_time():
            found = ScheduleChecker(evidence, EvidenceFolder(folder)).check()
    except (Exception, TookTooLong) as error:  # the other schedules are compared all the same
        reason = f"the comparison failed: {type(error).__name__}: {first_line(error)}"
        if isinstance(error, TookTooLong):
            reason = f"it takes more than {_MOST_SECONDS} s"
        evidence.graphs.clear()
        evidence.left.clear()
        evidence.leave_all(reason)
        found = ScheduleChecker(evidence, EvidenceFolder(folder)).check()
    return CheckedSchedule(test, len(found.outputs), replace(found, outputs=found.wrong), found.account)


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
    main()
