"""What a rule of lint is: a stable code, a name, words for the user, and a function from a capture to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from vmapdbg.model import Capture, Finding, Kernel, Node, Schedule

NEED_BASELINE = frozenset({"VD103", "VD104"})
"""The codes that compare with a baseline where there is one."""


@dataclass(frozen=True)
class Rule:
    """One rule. `severity` is `error` where values can be wrong or nothing can run, `warning` where it is slow.

    `explanation` is what `--explain` prints: what it means, how it is decided, what to do. `find` gets a capture and
    the baseline's capture (None where there is none).
    """

    code: str
    name: str
    severity: Literal["error", "warning"]
    explanation: str
    find: Callable[[Capture, Capture | None], Iterable[Finding]]


def each_kernel(capture: Capture) -> Iterator[tuple[Schedule, int, Kernel]]:
    """Yields every kernel with its schedule and its number there."""
    for schedule in capture.schedules:
        for number, kernel in enumerate(schedule.kernels):
            yield schedule, number, kernel


def find_node(schedule: Schedule, node_id: int | None) -> Node | None:
    if node_id is None:
        return None
    # a node's id is its place in the graph
    in_place = schedule.nodes[node_id] if 0 <= node_id < len(schedule.nodes) else None
    if in_place is not None and in_place.id == node_id:
        return in_place
    return next((node for node in schedule.nodes if node.id == node_id), None)


def kernel_finding(
    code: str,
    schedule: Schedule,
    number: int,
    message: str,
    advice: str,
    source_line: int | None = None,
) -> Finding:
    """Returns a finding about a kernel; its node is the one whose buffer the kernel writes."""
    kernel = schedule.kernels[number]
    node = find_node(schedule, kernel.outputs[0] if kernel.outputs else None)
    line = node.line if node is not None else None
    return Finding(
        code=code,
        kernel=kernel.name,
        node=None if node is None else node.id,
        line=line or next(iter(kernel.lines), None) or schedule.line,
        message=message,
        schedule=schedule.index,
        number=number,
        source_line=source_line,
        advice=advice,
    )


def node_finding(
    code: str, schedule: Schedule, node_id: int, message: str, advice: str, number: int | None = None
) -> Finding:
    """Returns a finding about a node; `number` is that of the kernel it is in, None where there is none."""
    node = find_node(schedule, node_id)
    return Finding(
        code=code,
        kernel=None if number is None else schedule.kernels[number].name,
        node=node_id,
        line=(node.line if node is not None else None) or schedule.line,
        message=message,
        schedule=schedule.index,
        number=number,
        advice=advice,
    )


def is_off(capture: Capture, patch: str) -> bool:
    """Tells whether the overlay of the capture has that patch, and it was off."""
    return capture.patches.get(patch) is False


def advise_patches(capture: Capture, *patches: str) -> str | None:
    """Returns `turn A and B on (--patches all)` for those that were off, None where none was."""
    off = [patch for patch in patches if is_off(capture, patch)]
    return f"turn {' and '.join(off)} on (--patches all)" if off else None


def count_of(number: int, word: str) -> str:
    """Returns `1 step`, `3 steps`, `2,048 threads`."""
    return f"{number:,} {word}{'s' * (number != 1)}"
