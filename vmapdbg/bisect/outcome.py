"""Tells the outcomes of runs apart: by values, kernels, findings, or by how the run ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from vmapdbg.bisect import KERNEL_COUNT
from vmapdbg.diff.values import compare_outputs, find_worst
from vmapdbg.install.job import Run
from vmapdbg.model.capture import Capture, Finding, Schedule
from vmapdbg.model.schedule_index import count_kernels
from vmapdbg.model.vocabulary import ValueStatus
from vmapdbg.model.wording import format_plural

FindFindings = Callable[[Capture], tuple[Finding, ...]]


@dataclass(frozen=True)
class Outcome:
    """What a group of runs has in common; `name` is a letter, `summary` one line, `run` the first of them."""

    name: str
    summary: str
    run: Run


class Outcomes:
    """Sorts runs into outcomes. Values within the tolerance of `vmapdbg diff` are one outcome."""

    def __init__(self, kind: str, find_findings: FindFindings):
        self.kind, self.find_findings = kind, find_findings
        self.known: list[Outcome] = []
        self._facts: list[Any] = []

    def sort_in(self, run: Run) -> str:
        """Returns the name of the run's outcome, a new one where it is like none before."""
        facts = self._find_facts(run)
        for outcome, known in zip(self.known, self._facts, strict=True):
            if facts == known and (self.kind != "values" or _same_values(run, outcome.run)):
                return outcome.name
        name = _letter(len(self.known))
        self.known.append(Outcome(name, self._describe(run), run))
        self._facts.append(facts)
        return name

    def _find_facts(self, run: Run) -> Any:
        """What must be equal for two runs to have the same outcome. How they ended always must."""
        end = describe_end(run)
        if run.capture is None or self.kind in ("crash", "values"):
            return end
        if self.kind == "kernels":
            # not by the key: another commit of tinygrad has other names for the same ops
            return end, [[kernel.source for kernel in schedule.kernels] for schedule in run.capture.schedules]
        if (asked := KERNEL_COUNT.fullmatch(self.kind)) is not None:
            return end, count_kernels(run.schedules) == int(asked[1])
        return end, sorted((f.code, f.line or "") for f in self.find_findings(run.capture))

    def _describe(self, run: Run) -> str:
        if run.capture is None or run.capture.error is not None:
            return describe_end(run)
        if self.kind == "crash":
            return "it runs"
        if self.kind == "kernels" or KERNEL_COUNT.fullmatch(self.kind):
            counts = [len(schedule.kernels) for schedule in run.capture.schedules]
            listed = ", ".join(map(str, counts))
            return f"{sum(counts)} kernels in {len(counts)} schedules ({listed})"
        if self.kind == "findings":
            codes = [f.code for f in self.find_findings(run.capture)]
            return ", ".join(f"{codes.count(code)} {code}" for code in sorted(set(codes))) or "no finding"
        return self._describe_values(run.capture)

    def _describe_values(self, capture: Capture) -> str:
        """How many values are not those of the first outcome that ran, and the first of them."""
        captures = [known.run.capture for known in self.known]
        first = next((other for other in captures if other is not None and other.error is None), None)
        if first is not None and (differing := _describe_differing(first, capture)):
            if len(differing) == 1:
                return f"1 output differs: {differing[0]}"
            return f"{len(differing)} outputs differ, the first: {differing[0]}"
        values = sum(len(schedule.outputs) for schedule in capture.schedules)
        return format_plural(values, "value")


def _describe_differing(first: Capture, capture: Capture) -> list[str]:
    """Returns a phrase for each output of a capture that is not that of the first outcome, which is A."""
    phrases: list[str] = []
    for before, after in _pair(first, capture):
        for diff in compare_outputs(before, after):
            if diff.status != "different":
                continue
            phrase = f"output {diff.number} of schedule {after.index}"
            if diff.index is not None:
                phrase += f" at {list(diff.index)}"
            if diff.value_after is not None:
                phrase += f": {diff.value_after}, in A {diff.value_before}"
            phrases.append(phrase)
    return phrases


def describe_end(run: Run) -> str:
    """Returns how a run ended, `it runs` where it ended well."""
    if run.capture is None:
        return run.died or "died"
    error = run.capture.error
    if error is None:
        return "it runs"
    return f"{error.type}: {error.message}"


def _same_values(one: Run, other: Run) -> bool:
    if one.capture is None or other.capture is None:
        return one.capture is other.capture
    if len(one.capture.schedules) != len(other.capture.schedules):
        return False
    pairs = _pair(one.capture, other.capture)
    statuses: list[ValueStatus] = [found.status for pair in pairs for found in compare_outputs(*pair)]
    return find_worst(statuses) != "different"


def find_wrong_schedule(right: Capture, capture: Capture) -> int | None:
    """Returns the index of the first schedule with an output that is not that of the right capture, None where there
    is none, or where it cannot be told: they made different schedules."""
    if len(right.schedules) != len(capture.schedules):
        return None
    for before, after in _pair(right, capture):
        if any(found.status == "different" for found in compare_outputs(before, after)):
            return after.index
    return None


def _pair(one: Capture, other: Capture) -> list[tuple[Schedule, Schedule]]:
    # a run that failed has fewer
    return list(zip(one.schedules, other.schedules, strict=False))


def _letter(position: int) -> str:
    return ascii_uppercase[position] if position < 26 else f"A{position}"
