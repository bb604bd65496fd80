"""Sorts runs into outcomes: by values, kernels, findings, or by how the run ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from vmapdbg.bisect import KERNEL_COUNT
from vmapdbg.diff.result import ValueDiff
from vmapdbg.diff.values import compare_outputs
from vmapdbg.install.job import Run
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.schedule_index import count_kernels
from vmapdbg.model.wording import format_plural

FindFindings = Callable[[Capture], tuple[Finding, ...]]
RUNS_WELL = "it runs"


@dataclass(frozen=True)
class NamedOutcome:
    """One outcome that runs of the snippet had: a letter, and one line about it."""

    name: str
    summary: str


class Outcomes:
    """Sorts runs into outcomes. Values within the tolerance of `vmapdbg diff` are the same outcome. `runs` has the
    first run of each outcome that is `known`."""

    def __init__(self, kind: str, find_findings: FindFindings):
        self.kind, self.find_findings = kind, find_findings
        self.known: list[NamedOutcome] = []
        self.runs: list[Run] = []
        self._facts: list[Any] = []

    def sort_in(self, run: Run) -> str:
        """Returns the name of the run's outcome; a new name if no earlier run is equal."""
        facts = self._facts_of(run)
        for outcome, first, known in zip(self.known, self.runs, self._facts, strict=True):
            if facts != known:
                continue
            same_count = len(run.capture.schedules) == len(first.capture.schedules)
            if self.kind != "values" or (same_count and find_wrong_schedule(run.capture, first.capture) is None):
                return outcome.name
        position = len(self.known)
        name = ascii_uppercase[position] if position < len(ascii_uppercase) else f"A{position}"
        self.known.append(NamedOutcome(name, self._describe(run)))
        self.runs.append(run)
        self._facts.append(facts)
        return name

    def _facts_of(self, run: Run) -> Any:
        """Returns what two runs with the same outcome have in common, always including how they ended."""
        end = describe_end(run)
        if self.kind in ("crash", "values"):
            return end
        if self.kind == "kernels":
            # not the keys: another commit of tinygrad may have other names for the same ops
            sources: list[list[str]] = []
            for schedule in run.capture.schedules:
                sources.append([kernel.source for kernel in schedule.kernels])
            return end, sources
        if (asked := KERNEL_COUNT.fullmatch(self.kind)) is not None:
            return end, count_kernels(run.capture.schedules) == int(asked[1])
        return end, sorted((f.code, f.line or "") for f in self.find_findings(run.capture))

    def _describe(self, run: Run) -> str:
        if run.capture.error is not None:
            return describe_end(run)
        if self.kind == "crash":
            return RUNS_WELL
        if self.kind == "kernels" or KERNEL_COUNT.fullmatch(self.kind):
            counts = [len(schedule.kernels) for schedule in run.capture.schedules]
            listed = ", ".join(map(str, counts))
            return f"{sum(counts)} kernels in {len(counts)} schedules ({listed})"
        if self.kind == "findings":
            codes = [f.code for f in self.find_findings(run.capture)]
            return ", ".join(f"{codes.count(code)} {code}" for code in sorted(set(codes))) or "no finding"
        return self._describe_values(run.capture)

    def _describe_values(self, capture: Capture) -> str:
        """Counts the values that differ from the first outcome that ran, and describes the first of them."""
        captures = [run.capture for run in self.runs if run.capture.error is None]
        differing = list(_differing_outputs((captures or [capture])[0], capture))
        if not differing:
            return format_plural(sum(len(schedule.outputs) for schedule in capture.schedules), "value")
        schedule, found = differing[0]
        example = f"output {found.number} of schedule {schedule}"
        if found.index is not None:
            example += f" at {list(found.index)}"
        if found.value_after is not None:
            example += f": {found.value_after}, in A {found.value_before}"
        if len(differing) == 1:
            return f"1 output differs: {example}"
        return f"{len(differing)} outputs differ, the first: {example}"


def describe_end(run: Run) -> str:
    """Returns how a run ended; `it runs` if it ended well."""
    error = run.capture.error
    if error is None:
        return RUNS_WELL
    if error.type == "ChildDied":
        return error.message
    return f"{error.type}: {error.message}"


def _differing_outputs(one: Capture, other: Capture) -> Iterator[tuple[int, ValueDiff]]:
    """Yields the outputs that differ, each with the index of its schedule in `other`."""
    # a run that failed has fewer schedules
    for before, after in zip(one.schedules, other.schedules, strict=False):
        for found in compare_outputs(before, after):
            if found.status == "different":
                yield after.index, found


def find_wrong_schedule(right: Capture, capture: Capture) -> int | None:
    """Returns the index of the first schedule with an output that differs from the right capture. None if there is
    none, or if the runs made different schedules."""
    if len(right.schedules) != len(capture.schedules):
        return None
    return next((index for index, _ in _differing_outputs(right, capture)), None)
