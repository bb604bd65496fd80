"""Sorts runs into outcomes: by values, kernels, findings, or by how the run ended."""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any

from vmapdbg.bisect import KERNEL_COUNT
from vmapdbg.diff.captures import diff_captures, have_same_tinygrad
from vmapdbg.diff.result import ValueDiff
from vmapdbg.diff.values import compare_outputs, estimate_terms
from vmapdbg.install.job import Run
from vmapdbg.model.capture import DIED, Capture
from vmapdbg.model.failure import Failure
from vmapdbg.model.vocabulary import MatchedBy
from vmapdbg.model.wording import format_known, format_plural

RUNS_WELL = "it runs"
_SAME_VALUES: tuple[MatchedBy, ...] = ("outputs", "key", "source")
"""How kernels are paired that compute the same; other pairs are only alike."""


@dataclass(frozen=True)
class NamedOutcome:
    """One outcome that runs of the snippet had: a letter, and one line about it."""

    name: str
    summary: str


class Outcomes:
    """Sorts runs into outcomes (tolerance as in `vmapdbg diff`). `runs` has the first run of each `known` outcome. It
    repeats the first run before a second outcome is known: `unstable` outputs (schedule, output) do not count."""

    def __init__(self, kind: str, add_findings: Callable[[Capture], Capture]):
        self.kind, self.add_findings = kind, add_findings
        self.known: list[NamedOutcome] = []
        self.runs: list[Run] = []
        self._facts: list[Any] = []
        self._again: Callable[[], Run] | None = None
        self.unstable: frozenset[tuple[int, int]] = frozenset()

    def sort_in(self, run: Run, again: Callable[[], Run] | None = None) -> str:
        """Returns the name of the run's outcome, a new one if no earlier run is equal. `again` repeats the run. Raises
        Failure if the first run and its repetition have nothing in common."""
        facts = self._facts_of(run)
        for outcome, first, known in zip(self.known, self.runs, self._facts, strict=True):
            if facts == known and self._is_alike(first.capture, run.capture):
                return outcome.name
        if not self.runs:
            self._again = again
        elif self._again is not None:
            self._repeat(self._again())
            return self.sort_in(run)
        position = len(self.known)
        name = ascii_uppercase[position] if position < len(ascii_uppercase) else f"A{position}"
        self.known.append(NamedOutcome(name, self._describe(run)))
        self.runs.append(run)
        self._facts.append(facts)
        return name

    def _repeat(self, again: Run) -> None:
        """Notes what differs between the first run and its repetition. Raises Failure."""
        self._again = None
        one, other = self.runs[0].capture, again.capture
        outputs = sum(len(schedule.outputs) for schedule in one.schedules)
        if self.kind == "values":
            self.unstable = frozenset((index, found.number) for index, found in _differing_outputs(one, other))
        if self.unstable:
            summary = f"{self.known[0].summary}, {len(self.unstable)} not deterministic and not compared"
            self.known[0] = replace(self.known[0], summary=summary)
        is_same = self._facts_of(again) == self._facts[0] and self._is_alike(one, other)
        if not is_same or (self.unstable and len(self.unstable) == outputs):
            differ = "two runs of the same program differ by themselves (the clock, its inputs)"
            raise Failure(f"not deterministic: {differ}")

    def _facts_of(self, run: Run) -> Any:
        """Returns what two runs with the same outcome have in common, always including how they ended."""
        end = describe_end(run)
        if self.kind in ("crash", "values", "kernels"):
            return end
        if (asked := KERNEL_COUNT.fullmatch(self.kind)) is not None:
            return end, len(run.capture.kernels) == int(asked[1])
        return end, sorted((f.code, f.line or "") for f in self.add_findings(run.capture).findings)

    def _is_alike(self, known: Capture, capture: Capture) -> bool:
        """Compares what is no matter of equal facts: values within their tolerance, kernels by what they compute."""
        if self.kind == "values":
            is_same_count = len(capture.schedules) == len(known.schedules)
            return is_same_count and find_wrong_schedule(capture, known, self.unstable) is None
        sources = [[[kernel.source for kernel in one.kernels] for one in side.schedules] for side in (known, capture)]
        if self.kind != "kernels" or sources[0] == sources[1]:
            return True
        if have_same_tinygrad(known.versions, capture.versions):
            return False
        # each tinygrad has its own ops, names and source for a value: only the pairs of `vmapdbg diff` count
        found = [change for schedule in diff_captures(known, capture).schedules for change in schedule.kernels]
        return all(one.matched_by in _SAME_VALUES and one.status in ("unchanged", "changed") for one in found)

    def _describe(self, run: Run) -> str:
        if run.capture.error is not None:
            return describe_end(run)
        if self.kind == "crash":
            return RUNS_WELL
        if self.kind == "kernels" or KERNEL_COUNT.fullmatch(self.kind):
            counts = [len(schedule.kernels) for schedule in run.capture.schedules]
            return f"{sum(counts)} kernels in {len(counts)} schedules ({', '.join(map(str, counts))})"
        if self.kind == "findings":
            codes = [f.code for f in self.add_findings(run.capture).findings]
            return ", ".join(f"{codes.count(code)} {code}" for code in sorted(set(codes))) or "0 findings"
        return self._describe_values(run.capture)

    def _describe_values(self, capture: Capture) -> str:
        """Counts the values that differ from the first outcome that ran, and describes the first of them."""
        captures = [run.capture for run in self.runs if run.capture.error is None]
        differing = list(_differing_outputs((captures or [capture])[0], capture, self.unstable))
        if not differing:
            return format_plural(sum(len(schedule.outputs) for schedule in capture.schedules), "value")
        schedule, found = differing[0]
        place = "" if found.index is None else f" at {list(found.index)}"
        values = format_known(f": {{}}, in A {found.value_before}", found.value_after)
        count = "1 output differs" if len(differing) == 1 else f"{len(differing)} outputs differ, the first"
        return f"{count}: output {found.number} of schedule {schedule}{place}{values}"


def describe_end(run: Run) -> str:
    """Returns how a run ended; `it runs` if it ended well."""
    error = run.capture.error
    if error is None:
        return RUNS_WELL
    return error.message if error.type == DIED else f"{error.type}: {error.message}"


def _differing_outputs(
    one: Capture, other: Capture, unstable: Container[tuple[int, int]] = ()
) -> Iterator[tuple[int, ValueDiff]]:
    """Yields the outputs that differ, except `unstable` ones, each with the index of its schedule in `other`."""
    # a run that failed has fewer schedules
    terms = map(max, estimate_terms(one.schedules), estimate_terms(other.schedules))
    for before, after, summed in zip(one.schedules, other.schedules, terms, strict=False):
        for found in compare_outputs(before, after, summed):
            if found.status == "different" and (after.index, found.number) not in unstable:
                yield after.index, found


def find_wrong_schedule(right: Capture, capture: Capture, unstable: Container[tuple[int, int]] = ()) -> int | None:
    """Returns the index of the first schedule with a different output that is not `unstable`; None if there is none, or
    if the runs made different schedules."""
    if len(right.schedules) != len(capture.schedules):
        return None
    return next((index for index, _ in _differing_outputs(right, capture, unstable)), None)
