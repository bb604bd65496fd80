"""What `vmapdbg run --check` found, as a document and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vmapdbg.check.suite import EndlessCall, ProgramCheck, WrongValue
from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.wording import format_known
from vmapdbg.page.check_sentences import describe_wrong, explain_value, name_output
from vmapdbg.page.crash_sentences import describe_crash, describe_expected


@dataclass(frozen=True)
class RunCheckDocument:
    """What `vmapdbg run --check --json` prints. `program` is what ran, `status` its exit code (128 + the signal that
    killed it).

    `schedules` counts what `Tensor.realize` asked for, `replays` those of TinyJit; `compared` and `replays_compared`
    those of them that had values compared, `values` together. `unchecked` counts why something was not. `findings` are
    values that are wrong, `endless` is what was stopped because it would never have ended.
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


def make_document(found: ProgramCheck, program: Sequence[str], status: int) -> RunCheckDocument:
    return RunCheckDocument(
        schema=SCHEMA,
        kind="run-check",
        program=tuple(program),
        status=status,
        schedules=found.schedules,
        compared=found.compared,
        replays=found.replays,
        replays_compared=found.replays_compared,
        values=found.values,
        unchecked=found.unchecked,
        findings=tuple(replace(wrong, message=describe_value(wrong)) for wrong in found.wrong),
        endless=tuple(replace(call, message="; ".join(describe_endless(call))) for call in found.endless),
    )


def describe_endless(call: EndlessCall) -> list[str]:
    """Returns what was rewritten without end, by which rules, and what should have been computed; a sentence each."""
    return [*describe_crash(call.crash), *map(describe_expected, call.expected[:1])]


def describe_value(wrong: WrongValue) -> str:
    """Returns `output 0 (2, 3) float: 4 of 6 elements are wrong, the first at [0, 0]: 7.0, should be 3.0 (PATTERN)`."""
    replay = format_known("replay {} by TinyJit: ", wrong.replay)
    output = wrong.output
    found = f"{replay}{name_output(output)} {output.shape} {output.dtype}: {describe_wrong(output.comparison)}"
    return "; ".join([found, *explain_value(output)])
