"""VD110: a kernel that writes to memory which the graph only reads."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.rule import Rule, advise_why, each_kernel, kernel_finding
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.schedule_index import index_of

EXPLANATION = """\
An output of the schedule has the memory of one of its inputs, and nothing in the graph assigns to that input: when the
kernel has run, the tensor that the input belongs to has changed. No error is raised.

Decided by the memory that each kernel is given as its first argument: it is a BUFFER or PARAM of the graph before it
was scheduled, and no ASSIGN or STORE of the graph goes there. Nothing is said of schedules on several devices, and of
custom kernels.

What to try: in 0.12 an output that is the same as an input but for a DETACH, or a constant that was folded from one
(x - x), gets the memory of that input: `.contiguous()` gives it memory of its own.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    for schedule, number, kernel in each_kernel(capture):
        if kernel.overwrites is None:
            continue
        index = index_of(schedule)
        written = ", ".join(f"{index.op(node)} {node}" for node in kernel.outputs) or "its value"
        memory = f"{index.op(kernel.overwrites)} {kernel.overwrites}"
        message = f"kernel {kernel.name} writes {written} to the memory of {memory}, which nothing assigns to"
        advice = advise_why(kernel, "give the output memory of its own (.contiguous())")
        yield kernel_finding("VD110", schedule, number, message, advice)


RULE = Rule("VD110", "overwritten input", "error", EXPLANATION, find)
