"""What `vmapdbg run --check` found, as a document and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vmapdbg.check.suite import ProgramCheck, WrongValue
from vmapdbg.model.capture import SCHEMA
from vmapdbg.model.wording import format_known
from vmapdbg.render.check_sentences import describe_stale_value, describe_wrong, name_output


@dataclass(frozen=True)
class RunCheckDocument:
    """What `vmapdbg run --check --json` prints. `program` is what ran, `status` its exit code (128 + the signal that
    killed it).

    `schedules` counts what `Tensor.realize` asked for, `replays` those of TinyJit; `compared` and `replays_compared`
    those of them that had values compared, `values` together. `unchecked` counts why something was not.
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
    )


def describe_value(wrong: WrongValue) -> str:
    """Returns `output 0 (2, 3) float: 4 of 6 elements are wrong, the first at [0, 0]: 7.0, should be 3.0 (PATTERN)`."""
    replay = format_known("replay {} by TinyJit: ", wrong.replay)
    output = wrong.output
    found = f"{replay}{name_output(output)} {output.shape} {output.dtype}: {describe_wrong(output.comparison)}"
    if output.stale is not None:
        return f"{found}; {describe_stale_value(output.stale)}"
    return found
