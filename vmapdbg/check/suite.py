"""The results of `vmapdbg run --check` for a whole program: the data of its JSON and its text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from vmapdbg.check.blame import ENDLESS
from vmapdbg.check.result import ExpectedOutput, OutputCheck
from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.crash import Crash

PARTS = ("making", "ready", "own")
"""The folders of `vmapdbg.child.evidence.suite`."""
_MOST_LETTERS = 160
"""The longest reason: it may contain the text of an exception."""


@dataclass(frozen=True)
class CheckedSchedule:
    """How one schedule of a program, or a replay, compares.

    `test` is pytest's id of the current test, outside of pytest the program. `compared` counts the compared values;
    `wrong` has the wrong values, `codes` their codes. `unchecked` says why something was not compared; if `is_note`,
    there is nothing else: the schedule was reported before, or there was none. `crash` is set if a rewrite without end
    was stopped, and `expected` is what tinygrad should have computed.
    """

    test: str
    line: str | None
    replay: int | None = None
    compared: int = 0
    wrong: tuple[OutputCheck, ...] = ()
    unchecked: tuple[str, ...] = ()
    is_note: bool = False
    codes: tuple[str, ...] = ()
    crash: Crash | None = None
    expected: tuple[ExpectedOutput, ...] = ()


@dataclass(frozen=True)
class WrongValue:
    """A wrong value of a program: in which tests, and how often; `output` is the first case. `line` is the user's line,
    `replay` the number of a replay by TinyJit, from 1, and `message` the sentence about it."""

    code: str
    line: str | None
    tests: tuple[str, ...]
    times: int
    output: OutputCheck
    replay: int | None = None
    message: str = ""


@dataclass(frozen=True)
class EndlessCall:
    """A rewrite of tinygrad without end that was stopped: in which tests, and how often. `line` is the user's line,
    `crash` has the nodes and the rules, `expected` what should have been computed, if known, and `message` the sentence
    about it."""

    code: str
    line: str | None
    tests: tuple[str, ...]
    times: int
    crash: Crash
    expected: tuple[ExpectedOutput, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class ProgramCheck:
    """The results of a whole program, and what `vmapdbg run --check --json` prints. `program` is what ran, `status` its
    exit code (128 + the signal that killed it).

    `schedules` counts the schedules of `Tensor.realize`, `replays` those of TinyJit; of these `compared` and
    `replays_compared` had values compared, `values` together. `unchecked` counts the reasons why something was not
    compared. `findings` are wrong values, `endless` has the rewrites that were stopped.
    """

    schema: Literal[1]
    kind: Literal["run-check"]
    program: tuple[str, ...]
    status: int
    schedules: int
    compared: int
    replays: int
    replays_compared: int
    values: int
    unchecked: dict[str, int]
    findings: tuple[WrongValue, ...]
    endless: tuple[EndlessCall, ...] = ()


def sum_up(checks: Iterable[CheckedSchedule]) -> ProgramCheck:
    """Sums up the schedules of all processes, without the program and its status. The same wrong value in several tests
    is one finding."""
    counts: Counter[str] = Counter()
    unchecked: Counter[str] = Counter()
    wrong: dict[object, WrongValue] = {}
    endless: dict[object, EndlessCall] = {}
    for one in checks:
        name = "schedules" if one.replay is None else "replays"
        counts[name] += not one.is_note
        counts[f"{name} compared"] += one.compared > 0
        counts["values"] += one.compared
        for reason in one.unchecked:
            unchecked.update(count_reason(reason))
        for output, code in zip(one.wrong, one.codes, strict=True):
            same = one.line, code, output.of, output.number, output.shape, output.dtype, one.replay is None
            _add(wrong, same, WrongValue(code, one.line, (one.test,), 1, output, one.replay))
        if one.crash is not None:
            # its progress, and the number of the schedule, are chance
            same = one.line, replace(one.crash, done=None, schedule=None)
            _add(endless, same, EndlessCall(ENDLESS, one.line, (one.test,), 1, one.crash, one.expected))
    return ProgramCheck(
        schema=SCHEMA,
        kind="run-check",
        program=(),
        status=0,
        schedules=counts["schedules"],
        compared=counts["schedules compared"],
        replays=counts["replays"],
        replays_compared=counts["replays compared"],
        values=counts["values"],
        unchecked=dict(unchecked.most_common()),
        findings=tuple(wrong.values()),
        endless=tuple(endless.values()),
    )


_Finding = TypeVar("_Finding", WrongValue, EndlessCall)


def _add(known: dict[object, _Finding], same: object, new: _Finding) -> None:
    """Adds a finding, or its test to the first finding that is the `same`."""
    first = known.get(same)
    if first is None:
        known[same] = new
    else:
        tests = tuple(dict.fromkeys((*first.tests, *new.tests)))
        known[same] = replace(first, tests=tests, times=first.times + 1)


def count_reason(reason: str) -> dict[str, int]:
    """Maps a reason without the numbers of a single case to how often it applies: a reason about replays or elements
    has their number."""
    counted = re.match(r"([\d,]+) (?:of [\d,]+ )?(replay|element)s?( .*)", reason)
    if counted is not None:
        return {f"{counted[2]}s{counted[3]}": int(counted[1].replace(",", ""))}
    plain = re.sub(r"^(?:output|buffer) \d+(?: that it writes)?:? ", "", reason)
    return {re.sub(r"\d[\d,]*", "N", plain)[:_MOST_LETTERS]: 1}
