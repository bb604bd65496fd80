"""What `vmapdbg run --check` found out about a whole program. The data of its JSON, and of its text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vmapdbg.check.blame import ENDLESS
from vmapdbg.check.result import ExpectedOutput, OutputCheck
from vmapdbg.model.crash import Crash


@dataclass(frozen=True)
class Judged:
    """One schedule of a program, or a replay of one, and how it compared.

    `test` is pytest's id of the test that ran, outside of pytest the program. `compared` counts the values that were
    compared, `wrong` are those that are wrong, `codes` their codes. `unchecked` says why nothing, or not everything,
    was compared; one that `is_note` only says so, of a schedule that was there before, or of what no schedule was made
    for. `crash` is there where tinygrad was stopped, in a rewrite that has no end, and `expected` is what it should
    have computed.
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
    """A value that a program got wrong: in which tests, and how often; `output` is how it was the first time. The
    `line` is the one that asked for it, `replay` the number of a replay by TinyJit, from 1. `message` says it in words.
    """

    code: str
    line: str | None
    tests: tuple[str, ...]
    times: int
    output: OutputCheck
    replay: int | None = None
    message: str = ""


@dataclass(frozen=True)
class EndlessCall:
    """A rewrite of tinygrad's that has no end and was stopped: in which tests, and how often. The `line` is the one
    that asked for it; `crash` has the nodes and the rules, `expected` what should have been computed, where that is
    known. `message` says it in words."""

    code: str
    line: str | None
    tests: tuple[str, ...]
    times: int
    crash: Crash
    expected: tuple[ExpectedOutput, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class ProgramCheck:
    """All of a program. `schedules` counts what was asked for by `Tensor.realize` and `replays` those of TinyJit, each
    with how many of them had values compared, `values` of them together. `unchecked` counts why something was not
    compared. `endless` is what was stopped."""

    schedules: int
    compared: int
    replays: int
    replays_compared: int
    values: int
    unchecked: dict[str, int]
    wrong: tuple[WrongValue, ...]
    endless: tuple[EndlessCall, ...] = ()


PARTS = ("making", "ready", "own")
"""What is in the folder through which the evidence goes, see `vmapdbg.child.evidence.suite_folder`."""
_MOST_LETTERS = 160
"""Of a reason: it may have the text of an exception in it."""


def sum_up(judged: Iterable[Judged]) -> ProgramCheck:
    """Sums up the schedules of all processes; the same value that several tests get wrong is one."""
    counts: Counter[str] = Counter()
    unchecked: Counter[str] = Counter()
    wrong: dict[tuple[str | None, str], WrongValue] = {}
    endless: dict[tuple[str | None, Crash], EndlessCall] = {}
    for one in judged:
        name = "schedules" if one.replay is None else "replays"
        counts[name] += not one.is_note
        counts[f"{name} compared"] += one.compared > 0
        counts["values"] += one.compared
        for reason in one.unchecked:
            unchecked.update(count_reason(reason))
        for output, code in zip(one.wrong, one.codes, strict=True):
            add_wrong(wrong, one, output, code)
        if one.crash is not None:
            add_endless(endless, one, one.crash)
    return ProgramCheck(
        schedules=counts["schedules"],
        compared=counts["schedules compared"],
        replays=counts["replays"],
        replays_compared=counts["replays compared"],
        values=counts["values"],
        unchecked=dict(unchecked.most_common()),
        wrong=tuple(wrong.values()),
        endless=tuple(endless.values()),
    )


def add_wrong(wrong: dict[tuple[str | None, str], WrongValue], judged: Judged, output: OutputCheck, code: str) -> None:
    what = f"{code} {output.of} {output.number} {output.shape} {output.dtype} {judged.replay is None}"
    known = wrong.get((judged.line, what))
    if known is None:
        known = WrongValue(code, judged.line, (), 0, output, judged.replay)
    tests = tuple(dict.fromkeys((*known.tests, judged.test)))
    wrong[judged.line, what] = WrongValue(known.code, known.line, tests, known.times + 1, known.output, known.replay)


def add_endless(endless: dict[tuple[str | None, Crash], EndlessCall], judged: Judged, crash: Crash) -> None:
    # how far it was when it was stopped, and which of the program's schedules it was, is chance
    what = judged.line, replace(crash, done=None, schedule=None)
    known = endless.get(what)
    if known is None:
        known = EndlessCall(ENDLESS, judged.line, (), 0, crash, judged.expected)
    tests = tuple(dict.fromkeys((*known.tests, judged.test)))
    endless[what] = replace(known, tests=tests, times=known.times + 1)


def count_reason(reason: str) -> dict[str, int]:
    """Returns a reason without what tells one case of it from the next, and how often it is given: of replays and
    elements it says how many there are."""
    counted = re.match(r"([\d,]+) (?:of [\d,]+ )?(replay|element)s?( .*)", reason)
    if counted is not None:
        return {f"{counted[2]}s{counted[3]}": int(counted[1].replace(",", ""))}
    plain = re.sub(r"^(?:output|buffer) \d+(?: that it writes)?:? ", "", reason)
    return {re.sub(r"\d[\d,]*", "N", plain)[:_MOST_LETTERS]: 1}
