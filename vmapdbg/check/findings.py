"""What a check found wrong: the codes of a snippet's faults, and the findings of a whole program."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from vmapdbg.check import result
from vmapdbg.model.account import UNKNOWN, Account, Left
from vmapdbg.model.capture import SCHEMA, Capture
from vmapdbg.model.crash import Crash

# docs/check.md explains the codes. VD203 belonged to the oracle python, which was removed
WRONG_VALUE = "VD201"
FAILS = "VD202"
CRASHES, ENDLESS = "VD204", "VD205"
LOST_WRITE, CUT_GRADIENT = "VD206", "VD207"
OVERWRITTEN, STALE_READ, LIVE_CHANGED = "VD208", "VD209", "VD210"
NOT_CHOSEN, NEVER_WRITTEN = "VD211", "VD212"
WRONG_GRADIENT = "VD304"
RACE = "VD113"  # of lint, which proves what needs no launch
NUMBERS: dict[result.NumberFaultKind, str] = {"not-finite": "VD301", "lost-digits": "VD302", "unwritten": "VD303"}

CHANGED = {"pending": LOST_WRITE, "input": OVERWRITTEN, "live": LIVE_CHANGED, "unchosen": NOT_CHOSEN}


def failure_code_of(capture: Capture, check: result.ScheduleCheck) -> str | None:
    """Returns the code of a schedule that ends the snippet, or that fails only with the patches; None for another."""
    # a program may expect a failure, and go on
    crash = capture.error and capture.error.crash
    if check.crash is not None and crash is not None and crash.schedule == check.schedule:
        return CRASHES if check.crash.kind == "error" else ENDLESS
    return FAILS if fails_with_patches(capture, check) else None


def name_wrong(check: result.ScheduleCheck, output: result.OutputCheck) -> str:
    """Returns the code of a wrong output."""
    if output.of in CHANGED:
        return CHANGED[output.of]
    if output.overwritten:
        return OVERWRITTEN
    if output.is_written is False and check.replay is not None:
        return LOST_WRITE
    buffer = check.first_wrong_buffer
    if output.stale is not None or (buffer is not None and buffer.stale):
        return STALE_READ
    return WRONG_VALUE


def fails_with_patches(capture: Capture, check: result.ScheduleCheck) -> bool:
    """Whether only the patches make a schedule fail: it runs without them, or it has a vmap scope, which stock tinygrad
    lacks, and numpy computes it."""
    if check.stock_runs is not None:
        return check.stock_runs
    # a missing device or compiler is not the fault of the patches
    is_made = check.crash is not None and check.crash.stage in ("schedule", "codegen")
    return is_made and bool(check.expected) and any(r.vmap for r in capture.schedules[check.schedule].ranges)


# *** the program of `vmapdbg run --check`

_MOST_LETTERS = 160  # the longest reason: it may contain the text of an exception


@dataclass(frozen=True)
class CheckedSchedule:
    """How one schedule of a program, or a replay, compares.

    `test` is pytest's id of the current test, outside of pytest the program. `compared` counts the compared values;
    `check` has the wrong values only, `account` all of them. Its schedule is negative if the schedule was reported
    before, or if no schedule existed."""

    test: str
    compared: int
    check: result.ScheduleCheck
    account: Account = field(default_factory=Account)


@dataclass(frozen=True)
class ProgramFinding:
    """A fault of a program with its user's line: in which tests, and how often; `message` is the sentence about it.

    For a wrong value, `output` is the first case, and `replay` the number of a replay by TinyJit, from 1; `unwritten`
    is a buffer that was read and never written; `number` an op or memory that makes numbers go wrong; `race` a race
    between threads. For a rewrite of tinygrad without end that was stopped, `crash` has the nodes and the rules, and
    `expected` what should have been computed, if known."""

    code: str
    line: str | None
    tests: tuple[str, ...]
    times: int
    output: result.OutputCheck | None = None
    replay: int | None = None
    unwritten: result.UnwrittenRead | None = None
    number: result.NumberFault | None = None
    race: result.KernelRace | None = None
    message: str = ""
    crash: Crash | None = None
    expected: tuple[result.ExpectedOutput, ...] = ()


@dataclass(frozen=True)
class ProgramCheck:
    """The results of a whole program, and what `vmapdbg run --check --json` prints. `program` is what ran, `status` its
    exit code (128 + the signal that killed it).

    `schedules` counts the schedules of `Tensor.realize`, and `compared` the schedules with compared values. `replays`
    and `replays_compared` count the replays of TinyJit in the same way. `values` counts all compared values, and
    `unchecked` the reasons why something was not compared. `findings` are wrong values, `endless` are rewrites that
    were stopped, and `numbers` ops that make NaN or infinity or lose digits, and memory that is read and never written:
    a program may expect that. `account` compares what happened in all processes, counted apart, with what was compared.
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
    findings: tuple[ProgramFinding, ...]
    endless: tuple[ProgramFinding, ...] = ()
    numbers: tuple[ProgramFinding, ...] = ()
    account: Account | None = None


def sum_up(checks: Iterable[CheckedSchedule], counted: Account | None = None, rest: str = UNKNOWN) -> ProgramCheck:
    """Sums up the schedules of all processes, without program and status; a wrong value of several tests is one
    finding. `counted` is what happened; `rest` says why the remainder was not compared."""
    counts: Counter[str] = Counter()
    unchecked: Counter[str] = Counter()
    wrong: dict[object, ProgramFinding] = {}
    endless: dict[object, ProgramFinding] = {}
    numbers: dict[object, ProgramFinding] = {}
    accounts: list[Account] = []
    for one in checks:
        check = one.check
        name = "schedules" if check.replay is None else "replays"
        # a schedule that TinyJit captures is compared as a replay
        is_later = not (check.asked or check.left or check.failed or check.crash or one.compared)
        counts[name] += check.schedule >= 0 and not is_later
        counts[f"{name} compared"] += one.compared > 0
        counts["values"] += one.compared
        accounts.append(_drop_numbers(one.account))
        for left in check.left:
            unchecked[_name_reason(left)] += max(left.count, 1)
        for output in check.wrong:
            code = name_wrong(check, output)
            same = check.line, code, output.of, output.number, output.shape, output.dtype, check.replay is None
            _add(wrong, same, ProgramFinding(code, check.line, (one.test,), 1, output, check.replay))
        for read in check.unwritten:
            new = ProgramFinding(NEVER_WRITTEN, check.line, (one.test,), 1, unwritten=read)
            _add(wrong, (check.line, NEVER_WRITTEN, read), new)
        for race in check.races:
            new = ProgramFinding(RACE, check.line, (one.test,), 1, race=race)
            _add(wrong, (check.line, RACE, race.origin), new)
        for fault in check.numbers:
            if fault.is_finding:
                new = ProgramFinding(NUMBERS[fault.kind], fault.line, (one.test,), 1, replay=check.replay, number=fault)
                _add(numbers, fault.origin, new)
        if check.crash is not None:
            # its progress, and the number of the schedule, are chance
            same = check.line, replace(check.crash, done=None, schedule=None)
            new = ProgramFinding(ENDLESS, check.line, (one.test,), 1, crash=check.crash, expected=check.expected)
            _add(endless, same, new)
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
        numbers=tuple(numbers.values()),
        account=result.settle_checks(counted or Account(), accounts, rest),
    )


def _add(known: dict[object, ProgramFinding], same: object, new: ProgramFinding) -> None:
    """Adds a finding, or its test to the first finding that is the `same`."""
    first = known.setdefault(same, new)
    if first is not new:
        tests = tuple(dict.fromkeys((*first.tests, *new.tests)))
        known[same] = replace(first, tests=tests, times=first.times + 1)


def _name_reason(left: Left) -> str:
    """Returns a reason without the numbers of a single case: `replays of it by TinyJit: ...`."""
    sentence = left.reason
    if left.what in ("replays", "elements"):
        sentence = replace(left, count=2, number=None).sentence[2:]  # not `1 replay`
    return _shorten(sentence)


def _drop_numbers(account: Account) -> Account:
    """Returns an account whose reasons have no numbers of a single case."""
    return replace(account, left=tuple(Left(one.what, one.count, _shorten(one.reason)) for one in account.left))


def _shorten(reason: str) -> str:
    return re.sub(r"\d[\d,]*", "N", reason)[:_MOST_LETTERS]
