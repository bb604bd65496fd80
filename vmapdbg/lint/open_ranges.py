"""VD107: a range that nothing closes."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.rule import Rule, advise_patches, each_kernel, kernel_finding, node_finding
from vmapdbg.model.capture import Bufferize, Capture, Finding, Schedule
from vmapdbg.model.schedule_index import index_of

EXPLANATION = """\
The value of a buffer depends on a range that the store into the buffer does not close: there is no loop that runs it.
tinygrad then fails with "input to kernel must be AFTER or BUFFER, not Ops.INDEX", or with a program that has a loop
without an end.

Decided on the range records: the ranges of each store into a GLOBAL buffer, less those it ends. OUTER ranges stay open
on purpose, the schedule runs them. LOCAL buffers live inside the loops around them.

What to try: turn on close-ranges, which closes every open range of what is stored; or the range has no place in the
value: `vmapdbg why NODE` shows where it comes from.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    for schedule in capture.schedules:
        for bufferize in schedule.bufferizes:
            if bufferize.left_open and bufferize.outcome == "kept" and bufferize.addrspace == "GLOBAL":
                yield explain(capture, schedule, bufferize)
    for schedule, number, kernel in each_kernel(capture):
        if kernel.open_loops:
            message = f"kernel {kernel.name} opens {', '.join(kernel.open_loops)} and never ends it"
            yield kernel_finding("VD107", schedule, number, message, advise(capture, next(iter(kernel.outputs), None)))


def explain(capture: Capture, schedule: Schedule, bufferize: Bufferize) -> Finding:
    index = index_of(schedule)
    node = index.node(bufferize.node)
    name = f"node {bufferize.node}" + (f" {node.op}" if node else "")
    opened = ", ".join(bufferize.left_open)
    if len(bufferize.left_open) == 1:
        what, it = f"range {opened} is", "it"
    else:
        what, it = f"ranges {opened} are", "them"
    message = (
        f"{what} left open: {name} is stored to a buffer, its value depends on {it}, and no loop around the store "
        f"runs {it}"
    )
    number, _ = index.writers.get(bufferize.node, (None, None))
    return node_finding("VD107", schedule, bufferize.node, message, advise(capture, bufferize.node), number)


def advise(capture: Capture, node: int | None) -> str:
    advice = "look at the kernel's source"
    if node is not None:
        advice = f"vmapdbg why {node} (where the range comes from)"
    return advise_patches(capture, "close-ranges", "ambient-ranges", "nested-ranges") or advice


RULE = Rule("VD107", "range left open", "error", EXPLANATION, find)
