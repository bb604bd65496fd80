"""What a rule of lint is: a stable code, a name, an explanation, and a function from a capture to findings."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from vmapdbg.model.capture import Access, Capture, Finding, Kernel, Schedule
from vmapdbg.model.schedule_index import index_of, name_node

Severity = Literal["error", "warning"]
FindFaults = Callable[[Capture, Capture | None], Iterable[Finding]]
"""Gets a capture and the baseline's capture (None without a baseline)."""


@dataclass(frozen=True)
class Rule:
    """One rule. An `error` may give wrong values or prevent the run, a `warning` is about speed. `explanation` is what
    `--explain` prints: the fault, how it is found, what to try. `compares`: the rule reads the baseline."""

    code: str
    name: str
    severity: Severity
    explanation: str
    find: FindFaults
    compares: bool = False


def rule(code: str, name: str, severity: Severity, *, compares: bool = False) -> Callable[[FindFaults], Rule]:
    """Makes a Rule of a function. The function's docstring is the explanation that the user reads."""
    return lambda find: Rule(code, name, severity, inspect.cleandoc(find.__doc__ or ""), find, compares)


def each_kernel(capture: Capture) -> Iterator[tuple[Schedule, int, Kernel]]:
    """Yields every kernel with its schedule and its number there."""
    for schedule in capture.schedules:
        for number, kernel in enumerate(schedule.kernels):
            yield schedule, number, kernel


def each_access(capture: Capture) -> Iterator[tuple[Schedule, int, Kernel, Access]]:
    """Yields every access of every kernel, with its schedule, the kernel's number there, and the kernel."""
    for schedule, number, kernel in each_kernel(capture):
        for access in kernel.accesses or ():
            yield schedule, number, kernel, access


def kernel_finding(
    code: str, schedule: Schedule, number: int, message: str, advice: str, source_line: int | None = None
) -> Finding:
    """Returns a finding about kernel `number`; its node is the node that the kernel writes."""
    kernel = schedule.kernels[number]
    node = index_of(schedule).node(next(iter(kernel.outputs), None))
    line = (node and node.line) or next(iter(kernel.lines), schedule.line)
    return Finding(code, kernel.name, node and node.id, line, message, schedule.index, number, source_line, advice)


def node_finding(
    code: str, schedule: Schedule, node_id: int, message: str, advice: str, number: int | None = None
) -> Finding:
    """Returns a finding about a node; `number` is the number of its kernel, if it has one."""
    index = index_of(schedule)
    node, kernel = index.node(node_id), index.kernel(number)
    line = (node and node.line) or schedule.line
    return Finding(code, kernel and kernel.name, node_id, line, message, schedule.index, number, None, advice)


def why(schedule: Schedule, node: int) -> str:
    """Returns the `vmapdbg why` command that explains a node."""
    return f"vmapdbg why {name_node(schedule.index, node)}"


def advise_why(schedule: Schedule, kernel: Kernel, advice: str) -> str:
    """Returns the advice, followed by the command that explains the kernel's output."""
    return ": ".join([advice, *(why(schedule, node) for node in kernel.outputs[:1])])


def advise_on(capture: Capture, *patches: str) -> str | None:
    """Returns `turn A and B on (--patches all)` for the patches that were off, None if all were on."""
    off = " and ".join(patch for patch in patches if capture.patches.get(patch) is False)
    return f"turn {off} on (--patches all)" if off else None


_CLONE_SINCE = (0, 14)
"""Since this tinygrad .contiguous() makes no buffer of a value computed from constants alone; .clone() does."""


def advise_apart(capture: Capture) -> str:
    """Returns how to give a value a buffer of its own."""
    version = tuple(int(part) for part in capture.versions.tinygrad.split(".")[:2] if part.isdecimal())
    call = ".clone()" if version >= _CLONE_SINCE else ".contiguous()"
    return f"{call} after the value that should be a buffer of its own (which: vmapdbg tune)"
