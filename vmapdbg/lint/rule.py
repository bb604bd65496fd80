"""What a rule of lint is: a stable code, a name, words for the user, and a function from a capture to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vmapdbg.model.capture import Access, Capture, Finding, Kernel, Schedule
from vmapdbg.model.schedule_index import index_of


@dataclass(frozen=True)
class Rule:
    """One rule. `severity` is `error` where values can be wrong or nothing can run, `warning` where it is slow.

    `explanation` is what `--explain` prints: what it means, how it is decided, what to do. `find` gets a capture and
    the baseline's capture (None where there is none); `compares` tells whether it looks at the baseline.
    """

    code: str
    name: str
    severity: Literal["error", "warning"]
    explanation: str
    find: Callable[[Capture, Capture | None], Iterable[Finding]]
    compares: bool = False


def each_kernel(capture: Capture) -> Iterator[tuple[Schedule, int, Kernel]]:
    """Yields every kernel with its schedule and its number there."""
    for schedule in capture.schedules:
        for number, kernel in enumerate(schedule.kernels):
            yield schedule, number, kernel


def each_access(capture: Capture) -> Iterator[tuple[Schedule, int, Kernel, Access]]:
    """Yields what every kernel accesses, with the kernel, its schedule and its number there."""
    for schedule, number, kernel in each_kernel(capture):
        for access in kernel.accesses or ():
            yield schedule, number, kernel, access


def kernel_finding(
    code: str, schedule: Schedule, number: int, message: str, advice: str, source_line: int | None = None
) -> Finding:
    """Returns a finding about a kernel; its node is the one whose buffer the kernel writes."""
    kernel = schedule.kernels[number]
    node = index_of(schedule).node(next(iter(kernel.outputs), None))
    line = (node and node.line) or next(iter(kernel.lines), schedule.line)
    return Finding(code, kernel.name, node and node.id, line, message, schedule.index, number, source_line, advice)


def node_finding(
    code: str, schedule: Schedule, node_id: int, message: str, advice: str, number: int | None = None
) -> Finding:
    """Returns a finding about a node; `number` is that of the kernel it is in, None where there is none."""
    node = index_of(schedule).node(node_id)
    kernel = index_of(schedule).kernel(number)
    line = (node and node.line) or schedule.line
    return Finding(code, kernel and kernel.name, node_id, line, message, schedule.index, number, None, advice)


def advise_why(kernel: Kernel, advice: str) -> str:
    """Returns an advice and how to see the decisions about what a kernel writes."""
    return ": ".join([advice, *(f"vmapdbg why {node}" for node in kernel.outputs[:1])])


def advise_patches(capture: Capture, *patches: str) -> str | None:
    """Returns `turn A and B on (--patches all)` for those that were off, None where none was."""
    off = [patch for patch in patches if capture.patches.get(patch) is False]
    if not off:
        return None
    return f"turn {' and '.join(off)} on (--patches all)"


_CLONE_SINCE = (0, 14)
"""From this tinygrad on .contiguous() makes no buffer of a value that is made of constants alone; .clone() does."""


def advise_apart(capture: Capture, baseline: Capture | None, fused: Sequence[Kernel]) -> str:
    """Returns how a value gets a buffer of its own. `fused` are the baseline's kernels that the kernel stands for: the
    patch that fuses is named where there are several, and the baseline is without it."""
    call = ".clone()" if _read_version(capture.versions.tinygrad) >= _CLONE_SINCE else ".contiguous()"
    advice = f"{call} after the value that should be a buffer of its own"
    if baseline is None or len(fused) < 2 or not capture.patches.get("fuse-broadcast"):
        return advice
    if baseline.patches.get("fuse-broadcast"):
        return advice
    off = [f"-{name}" for name, is_on in capture.patches.items() if not is_on or name == "fuse-broadcast"]
    return f"--patches {','.join(['all', *off])}, or {advice}"


def _read_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
