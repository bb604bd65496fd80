"""Measures programs: time, executed ops, bytes moved, memory. A difference within the noise is no difference."""

from collections.abc import Sequence
from statistics import median_high

from vmapdbg.install.job import Run
from vmapdbg.model.schedule_index import sum_programs

TIMED_RUNS, COUNTED_RUNS = 9, 2
"""How often a commit is timed, and how often an end of the history is counted: counts are exact, unless they vary."""


def measure(kind: str, run: Run) -> float | None:
    """Returns a run's number by a kind of `MEASURES`; None if it failed or not all that it launched was measured."""
    capture, kernels = run.capture, run.capture.kernels
    if capture.error is not None:
        return None
    if kind == "memory":
        return capture.peak_bytes
    ran = 0 if capture.account is None else capture.account.seen.get("launches", 0)
    known = sum(schedule.copies for schedule in capture.schedules) + sum(kernel.launches for kernel in kernels)
    if not kernels or any(kernel.failed is not None for kernel in kernels) or ran > known:
        return None
    if kind == "time":
        return sum_programs(kernels)
    return sum(kernel.executed_ops if kind == "ops" else kernel.bytes for kernel in kernels)


def measure_noise(numbers: Sequence[float]) -> float:
    """Returns the noise of some runs of one program: half of them are within it of the least."""
    return median_high(numbers) - min(numbers)


class Measurements:
    """The smallest number of each commit's runs. The first commits added are the ends; `floor` is their noise."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.floor = 0.0

    def add(self, commit: str, measured: Sequence[float | None]) -> None:
        """Adds what the runs of a commit measured, unless one of them measured nothing."""
        known = [number for number in measured if number is not None]
        if not known or len(known) < len(measured):
            return
        if len(self.numbers) < 2:
            self.floor = max(self.floor, measure_noise(known))
        self.numbers[commit] = min(known)

    def differ(self, one: str, other: str) -> bool:
        """Returns whether two commits differ by more than the noise."""
        return abs(self.numbers[one] - self.numbers[other]) > self.floor

    def name(self, commit: str) -> str | None:
        """Returns A if a commit is nearer to the first one (or both ends are equal), else B; None without a number."""
        if commit not in self.numbers or len(self.numbers) < 2:
            return None
        first, last, *_ = self.numbers
        to_first, to_last = (abs(self.numbers[commit] - self.numbers[end]) for end in (first, last))
        return "B" if self.differ(first, last) and to_last < to_first else "A"
