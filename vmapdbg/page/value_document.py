"""What `vmapdbg why --value --json` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vmapdbg.check.value_path import SchedulePath, ValueReport
from vmapdbg.model.capture import SCHEMA, Capture, SnippetError, Versions


@dataclass(frozen=True)
class ValueDocument:
    """What `vmapdbg why --value --json` prints: the head of the capture, and each schedule with its outputs after each
    pass of the scheduler. `stopped`: it was stopped before it was through with all schedules."""

    schema: Literal[1]
    kind: Literal["why-value"]
    versions: Versions
    snippet: str
    target: str
    patches: dict[str, bool]
    error: SnippetError | None
    schedules: tuple[SchedulePath, ...]
    stopped: bool


def make_value_document(capture: Capture, report: ValueReport) -> ValueDocument:
    """Returns how the values of a capture went through the passes."""
    return ValueDocument(
        schema=SCHEMA,
        kind="why-value",
        versions=capture.versions,
        snippet=capture.snippet,
        target=capture.target,
        patches=capture.patches,
        error=capture.error,
        schedules=report.schedules,
        stopped=report.stopped,
    )
