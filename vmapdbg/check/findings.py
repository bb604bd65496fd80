"""What a check found wrong: who is to blame for a wrong value of a snippet, and the findings of a whole program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from vmapdbg.check import result
from vmapdbg.model.capture import SCHEMA, Bufferize, Capture, Kernel, Node
from vmapdbg.model.crash import Crash
from vmapdbg.model.schedule_index import index_of

# docs/check.md explains the codes. VD203 belonged to the oracle python, which was removed
WRONG_VALUE = "VD201"
FAILS = "VD202"
CRASHES, ENDLESS = "VD204", "VD205"
LOST_WRITE, CUT_GRADIENT = "VD206", "VD207"
OVERWRITTEN, STALE_READ, LIVE_CHANGED = "VD208", "VD209", "VD210"
NOT_CHOSEN = "VD211"

CHANGED = {"input": OVERWRITTEN, "live": LIVE_CHANGED, "unchosen": NOT_CHOSEN}

CapturedResult = Literal["not-compared", "wrong", "right"]


@dataclass(frozen=True)
class Blame:
    """The first wrong buffer of a schedule, and what may have made it wrong.

    - `lost`: ambient ranges that it does not close, or has no dimension for.
    - `patches_off`: patches that are off.
    - `read_right`: how many buffers its kernel reads, if all of them are right, else 0.
    - `misread`: the node of a right buffer that its kernel reads wrongly.
    - `stale`: arguments that its kernel read at a wrong time, each with the kernel that wrote too early or too late.
    """

    buffer: result.BufferCheck
    node: Node | None
    kernel: Kernel | None
    bufferize: Bufferize | None
    lost: tuple[str, ...]
    patches_off: tuple[str, ...]
    read_right: int
    misread: Node | None
    stale: tuple[tuple[result.StaleRead, Kernel | None], ...] = ()


def find_blame(capture: Capture, check: result.ScheduleCheck) -> Blame | None:
    """Returns the first wrong buffer of a schedule with its kernel, None if no buffer is known to be wrong."""
    buffer = check.first_wrong_buffer
    if buffer is None:
        return None
    index = index_of(capture.schedules[check.schedule])
    bufferize = index.bufferizes.get(buffer.node)
    right = {one.node for one in check.buffers if one.comparison is not None and not one.is_wrong}
    read_right = len(buffer.reads) if right.issuperset(buffer.reads) else 0
    return Blame(
        buffer=buffer,
        node=index.node(buffer.node),
        kernel=index.kernel(buffer.kernel),
        bufferize=bufferize,
        lost=tuple(dict.fromkeys([*index.find_lost(bufferize), *buffer.missing])),
        patches_off=tuple(name for name, state in capture.patches.items() if not state),
        read_right=read_right,
        misread=buffer.misread and index.node(buffer.misread.node),
        stale=tuple((read, index.kernel(read.writer)) for read in buffer.stale),
    )


def captured_result_of(report: result.CheckReport, check: result.ScheduleCheck) -> CapturedResult | None:
    """Returns how the captured call of a replay by TinyJit compares; None if the schedule is no replay."""
    if check.replay is None:
        return None
    captured = next((c for c in report.schedules if c.schedule == check.schedule and c.replay is None), None)
    if captured is None or not captured.outputs:
        return "not-compared"
    return "wrong" if captured.wrong else "right"


@dataclass(frozen=True)
class Fault:
    """One fault: a wrong `output`, a `lost` write, a `cut` gradient, or, if all are None, a schedule that fails.

    `blame` is None if the first wrong buffer is unknown. For a replay, `captured` is the result of the captured call.
    """

    code: str
    check: result.ScheduleCheck
    output: result.OutputCheck | None = None
    blame: Blame | None = None
    captured: CapturedResult | None = None
    lost: result.LostWrite | None = None
    cut: result.CutGradient | None = None


def find_faults(capture: Capture, report: result.CheckReport) -> tuple[Fault, ...]:
    """Returns a fault for each wrong output, lost write and cut gradient, and for each schedule that ends the snippet,
    or that fails only with the patches."""
    faults: list[Fault] = []
    for check in report.schedules:
        # a program may expect a failure, and go on
        crash = capture.error and capture.error.crash
        if check.crash is not None and crash is not None and crash.schedule == check.schedule:
            code = CRASHES if check.crash.kind == "error" else ENDLESS
            faults.append(Fault(code, check))
        elif fails_with_patches(capture, check):
            faults.append(Fault(FAILS, check))
        faults += [Fault(LOST_WRITE, check, lost=lost) for lost in check.lost]
        faults += [Fault(CUT_GRADIENT, check, cut=cut) for cut in check.cut]
        blamed, captured = find_blame(capture, check), captured_result_of(report, check)
        faults += [Fault(name_wrong(check, output), check, output, blamed, captured) for output in check.wrong]
    return tuple(faults)


def name_wrong(check: result.ScheduleCheck, output: result.OutputCheck) -> str:
    """Returns the code of a wrong output."""
    if output.of in CHANGED:
        return CHANGED[output.of]
    if output.overwritten:
        return OVERWRITTEN
    buffer = check.first_wrong_buffer
    if output.stale is not None or (buffer is not None and buffer.stale):
        return STALE_READ
    return WRONG_VALUE


def fails_with_patches(capture: Capture, check: result.ScheduleCheck) -> bool:
    """Returns whether only the patches make a schedule fail: stock tinygrad computes the graph, or it has a vmap scope,
    which stock tinygrad lacks, and numpy computes it."""
    if check.stock_runs is not None:
        return check.stock_runs
    # a missing device or compiler is not the fault of the patches
    is_made = check.crash is not None and check.crash.stage in ("schedule", "codegen")
    return is_made and bool(check.expected) and any(r.vmap for r in capture.schedules[check.schedule].ranges)


# *** the program of `vmapdbg run --check`

_MOST_LETTERS = 160
"""The longest reason: it may contain the text of an exception."""


@dataclass(frozen=True)
class CheckedSchedule:
    """How one schedule of a program, or a replay, compares.

    `test` is pytest's id of the current test, outside of pytest the program. `compared` counts the compared values;
    `check` has the wrong values only. Its schedule is negative if the schedule was reported before, or if no schedule
    existed.
    """

    test: str
    compared: int
    check: result.ScheduleCheck


@dataclass(frozen=True)
class ProgramFinding:
    """A fault of a program with its user's line: in which tests, and how often."""

    code: str
    line: str | None
    tests: tuple[str, ...]
    times: int


@dataclass(frozen=True)
class WrongValue(ProgramFinding):
    """A wrong value of a program: in which tests, and how often; `output` is the first case. `line` is the user's line,
    `replay` the number of a replay by TinyJit, from 1, and `message` the sentence about it."""

    output: result.OutputCheck
    replay: int | None = None
    message: str = ""


@dataclass(frozen=True)
class EndlessCall(ProgramFinding):
    """A rewrite of tinygrad without end that was stopped: in which tests, and how often. `line` is the user's line,
    `crash` has the nodes and the rules, `expected` what should have been computed, if known, and `message` the sentence
    about it."""

    crash: Crash
    expected: tuple[result.ExpectedOutput, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class ProgramCheck:
    """The results of a whole program, and what `vmapdbg run --check --json` prints. `program` is what ran, `status` its
    exit code (128 + the signal that killed it).

    `schedules` counts the schedules of `Tensor.realize`, and `compared` the schedules with compared values. `replays`
    and `replays_compared` count the replays of TinyJit in the same way. `values` counts all compared values, and
    `unchecked` the reasons why something was not compared. `findings` are wrong values, `endless` are rewrites that
    were stopped.
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
        check = one.check
        name = "schedules" if check.replay is None else "replays"
        counts[name] += check.schedule >= 0
        counts[f"{name} compared"] += one.compared > 0
        counts["values"] += one.compared
        for reason in check.unchecked:
            unchecked.update(count_reason(reason))
        for output in check.wrong:
            code = name_wrong(check, output)
            same = check.line, code, output.of, output.number, output.shape, output.dtype, check.replay is None
            _add(wrong, same, WrongValue(code, check.line, (one.test,), 1, output, check.replay))
        if check.crash is not None:
            # its progress, and the number of the schedule, are chance
            same = check.line, replace(check.crash, done=None, schedule=None)
            _add(endless, same, EndlessCall(ENDLESS, check.line, (one.test,), 1, check.crash, check.expected))
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
    first = known.setdefault(same, new)
    if first is not new:
        tests = tuple(dict.fromkeys((*first.tests, *new.tests)))
        known[same] = replace(first, tests=tests, times=first.times + 1)


def count_reason(reason: str) -> dict[str, int]:
    """Maps a reason, without the numbers of a single case, to how often it applies: `3 replays ...` applies 3 times."""
    counted = re.match(r"([\d,]+) (?:of [\d,]+ )?(replay|element)s?( .*)", reason)
    if counted is not None:
        return {f"{counted[2]}s{counted[3]}": int(counted[1].replace(",", ""))}
    plain = re.sub(r"^(?:output|buffer) \d+(?: that it writes)?:? ", "", reason)
    return {re.sub(r"\d[\d,]*", "N", plain)[:_MOST_LETTERS]: 1}
