"""Measures commits: time, executed ops, bytes moved, memory. A difference within the noise is no difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median_high

from vmapdbg.install.job import Run
from vmapdbg.model.capture import Capture
from vmapdbg.model.schedule_index import sum_programs

TIMED_RUNS, COUNTED_RUNS = 9, 2
"""How often a commit is timed, and how often an end of the history is counted: counts are exact, unless they vary."""


def measure(kind: str, runs: Sequence[Run]) -> tuple[float, ...]:
    """Returns the number of each run, by a kind of `MEASURES`. Nothing if a run failed, or if there are
    no kernels to measure, a kernel without numbers, or launches of other kernels."""
    found: list[float] = []
    for capture in (run.capture for run in runs):
        kernels = capture.kernels
        if kind == "memory":
            number = capture.peak_bytes
        elif not kernels or any(kernel.failed is not None for kernel in kernels) or _lacks_launches(capture):
            number = None
        elif kind == "time":
            number = sum_programs(kernels)
        else:
            number = sum(kernel.executed_ops if kind == "ops" else kernel.bytes for kernel in kernels)
        if number is None or capture.error is not None:
            return ()
        found.append(number)
    return tuple(found)


def _lacks_launches(capture: Capture) -> bool:
    """Returns whether more kernels and copies ran than the capture has."""
    ran = 0 if capture.account is None else capture.account.seen.get("launches", 0)
    has = sum(schedule.copies for schedule in capture.schedules) + sum(kernel.launches for kernel in capture.kernels)
    return ran > has


@dataclass
class Measurements:
    """The numbers of commits: the smallest of all their runs. The first commits that are added are the ends."""

    numbers: dict[str, float] = field(default_factory=dict[str, float])
    floor: float = 0.0

    def add(self, commit: str, measured: Sequence[float]) -> None:
        """Adds what the runs of a commit measured, which may be nothing. The noise floor comes from the runs of the
        ends: half of the runs of an end are within it."""
        if not measured:
            return
        if len(self.numbers) < 2:
            self.floor = max(self.floor, median_high(measured) - min(measured))
        self.numbers[commit] = min(measured)

    def differ(self, one: str, other: str) -> bool:
        """Returns whether two commits differ by more than the noise."""
        return abs(self.numbers[one] - self.numbers[other]) > self.floor

    def name(self, commit: str) -> str | None:
        """Returns A for a commit whose number is nearer to the first commit's, B for one nearer to the last commit's.
        All are A if the ends do not differ. None for a commit without a number."""
        if commit not in self.numbers or len(self.numbers) < 2:
            return None
        first, last, *_ = self.numbers
        to_first, to_last = (abs(self.numbers[commit] - self.numbers[end]) for end in (first, last))
        return "B" if self.differ(first, last) and to_last < to_first else "A"
