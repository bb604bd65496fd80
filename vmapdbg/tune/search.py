"""Tries candidates, the most promising first, each on top of those that helped, and compares the values of two runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from vmapdbg.bisect.measure import measure_noise
from vmapdbg.diff.result import ValueDiff
from vmapdbg.diff.values import compare_output, estimate_terms
from vmapdbg.model.capture import Capture
from vmapdbg.model.vocabulary import TuneOutcome
from vmapdbg.tune.candidates import Candidate
from vmapdbg.tune.edits import COPY, STORE, Edit

Edits = tuple[Edit, ...]
LEAST_SAVED = 0.03  # the share that an edit must save, beyond the noise
_NEAR = 2.0
_ROUNDING = 6400
"""A program amplifies roundings: an element may differ by so many absolute tolerances, each a hundredth of the relative
tolerance of the largest element. The reference decides whether the value is right."""


@dataclass(frozen=True)
class EditTrial:
    """A run with edits. `number` is what was measured, in seconds or bytes, None if the run failed or has other values:
    `about` says how. A run for memory records no kernels: its counts are zero. `key` is equal for equal kernels."""

    edits: Edits
    outcome: TuneOutcome
    number: float | None = None
    kernels: int = 0
    executed_ops: int = 0
    key: str = ""
    about: str = ""


@dataclass(frozen=True)
class Proposal:
    """Edits that help. `diff` is the unified diff of the user's files; "" if they change how the program is run.

    `before` and `after` are the numbers of the runs in turns, in seconds or bytes. `kernels`, `executed_ops` and
    `peak_bytes` are before and after, a peak None if it could not be measured. `compared` counts the outputs that agree
    with the numpy reference."""

    edits: Edits
    diff: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    noise: float
    kernels: tuple[int, ...]
    executed_ops: tuple[int, ...]
    peak_bytes: tuple[int | None, ...]
    compared: int


def saves(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether runs need less: the median by a share worth an edit, and by more than the noise or in each run."""
    saved, is_apart = median(before) - median(after), max(after) < min(before)
    is_beyond = saved > max(measure_noise(before), measure_noise(after))
    return saved > LEAST_SAVED * median(before) and (is_apart or is_beyond)


class EditSearcher:
    """Tries edits as long as `is_over` is false. `noise` is how much two runs of the unchanged program differ."""

    def __init__(
        self, unchanged: EditTrial, ask: Callable[[Edits], EditTrial], is_over: Callable[[], bool], noise: float
    ) -> None:
        self.unchanged, self.ask, self.is_over, self.noise = unchanged, ask, is_over, noise
        self.trials: list[EditTrial] = []
        self.untried: list[EditTrial] = []

    def search(self, candidates: Iterable[Candidate]) -> tuple[EditTrial, EditTrial]:
        """Tries each candidate on top of the best edits so far, replacing edits of the same place; then leaves out
        edits that bring nothing. Tries other ways to run the program alone. Returns the best edits and the best way,
        each the unchanged program if none helps."""
        best = way = self.unchanged
        for _, edits in sorted(candidates, key=lambda one: -one[0]):
            if set(edits) <= set(best.edits):
                continue
            if self.is_over():
                self.untried.append(EditTrial(edits, "unchanged"))
            elif not edits[0].file:
                way = self._try(edits, (), way)
            else:
                kept = tuple(edit for edit in best.edits if not any(map(edit.overlaps, edits)))
                best = self._try(edits, kept, best)
        for edit in best.edits:
            if len(best.edits) > 1 and not self.is_over():
                fewer = self.ask(tuple(other for other in best.edits if other != edit))
                if fewer.number is not None and not self._is_less(best, fewer):
                    best = replace(fewer, outcome="helps")
        return best, way

    def _try(self, edits: Edits, kept: Edits, best: EditTrial) -> EditTrial:
        """Returns the better one of the best trial and a trial of edits on top of others."""
        trial = self._judge(self.ask((*edits, *kept)), best)
        is_near = (trial.number or 0.0) < _NEAR * (best.number or 0.0) and trial.executed_ops < best.executed_ops
        if trial.outcome == "no-better" and is_near and not self.is_over():
            # other processes may have slowed it down
            trial = self._judge(self.ask(trial.edits), best)
        # since tinygrad 0.14 `.contiguous()` stores no value of constants alone, but a copy does
        copies = tuple(
            replace(edit, new=edit.new.removesuffix(STORE) + COPY, label=edit.label.replace(STORE, COPY, 1))
            for edit in edits
            if edit.new.endswith(STORE)
        )
        if trial.outcome == "same-kernels" and copies and not self.is_over():
            trial = self._judge(self.ask((*copies, *kept)), best)
        return trial if trial.outcome == "helps" else best

    def _judge(self, trial: EditTrial, best: EditTrial) -> EditTrial:
        """Adds a trial with its outcome."""
        if trial.number is not None:
            is_same = trial.key and trial.key == best.key
            helps = not is_same and self._is_less(trial, best)
            trial = replace(trial, outcome="same-kernels" if is_same else "helps" if helps else "no-better")
        self.trials.append(trial)
        return trial

    def _is_less(self, one: EditTrial, other: EditTrial) -> bool:
        """Whether a trial saves more than the noise, or ops and a share within it: runs in turns decide later."""
        less, more = one.number or 0.0, other.number or 0.0
        noise = 0.0 if one.executed_ops < other.executed_ops else self.noise
        return more - less > max(noise, LEAST_SAVED * more)


def find_other_value(before: Capture, after: Capture) -> str:
    """Returns which output differs from the unchanged program's, "" if none. An edit may store a Tensor that was left
    lazy, which then is no output at the end: the others must be among the unchanged program's, in order."""
    terms = max([*estimate_terms(before.schedules), *estimate_terms(after.schedules)], default=0)
    ones, others = ([output for schedule in side.schedules for output in schedule.outputs] for side in (before, after))
    if len(others) > len(ones) or (ones and not others):
        return f"{len(others)} outputs instead of {len(ones)}"
    remaining = iter(ones)
    for number, other in enumerate(others):
        found = (compare_output(number, one, other, terms) for one in remaining)
        if not any(is_near(one) for one in found):
            return f"output {number} differs"
    return ""


def is_near(found: ValueDiff) -> bool:
    """Returns whether two outputs differ by no more than a rounding that was moved."""
    difference = found.max_absolute
    is_rounding = difference is not None and float(difference) <= _ROUNDING * found.atol
    return found.status in ("equal", "close") or is_rounding
