"""VD101: steps of a loop, or threads, that store to the same element."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from vmapdbg.lint.rule import Rule, advise_patches, each_access, kernel_finding, node_finding
from vmapdbg.model.capture import Access, Capture, Finding, Kernel, Loop, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_plural, inflect

EXPLANATION = """\
A kernel stores inside a loop, or in each of several threads or launches, and the address of the store does not use that
loop: every step writes to the same place, and only the last one is left. This is how a vmap scope loses its batch:
every row of the result is that of the last batch element. No error is raised.

It is also found where addresses use every loop and still meet: a stride that is too small, two loops that count the
same elements.

Decided on the linear program: a loop counts as lost where neither the address nor the gate of a store is computed from
it, directly or through a load, while the stored value is; or where the gate lets only the first of some threads
through, and each of them has another value to store. Where all loops are used, the elements that the stores
reach are counted exactly; where that cannot be done, nothing is said. In LOCAL memory only the threads of one
group count: each step of a loop may use it again.

What to try: a buffer inside a scope needs the ambient ranges among those it closes (patch ambient-ranges; with nested
scopes also nested-ranges). `vmapdbg why NODE` shows the ranges of the buffer's node.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    for schedule, number, kernel, access in each_access(capture):
        message = explain_store(schedule, kernel, access)
        if message is not None:
            advice = advise(capture, schedule, next(iter(kernel.outputs), None))
            yield kernel_finding("VD101", schedule, number, message, advice, access.source_line)
    for schedule in capture.schedules:
        if not schedule.kernels:
            yield from find_unscheduled(capture, schedule)


def explain_store(schedule: Schedule, kernel: Kernel, access: Access) -> str | None:
    if access.kind != "store":
        return None
    if access.lost:
        return explain_lost(schedule, kernel, access)
    if access.addrspace != "GLOBAL" or access.stores is None or access.elements in (None, access.stores):
        return None
    # a kernel that reads what it writes may add to it step by step
    if any(other.kind == "load" and other.buffer == access.buffer for other in kernel.accesses or ()):
        return None
    stores, elements = format_plural(access.stores, "value"), format_plural(access.elements, "element")
    overwritten = format_plural(access.stores - access.elements, "value is", "values are")
    return (
        f"kernel {kernel.name} stores {stores} to {elements} of {access.buffer}: {overwritten} overwritten "
        f"(address {access.address})"
    )


def explain_lost(schedule: Schedule, kernel: Kernel, access: Access) -> str:
    names = " and ".join(name_range(schedule, kernel, loop) for loop in access.lost)
    total = prod(loop.size for loop in access.lost)
    it = inflect(len(access.lost), "it", "them")
    kinds = {loop.kind for loop in access.lost}
    if kinds == {"loop"}:
        runs, survives = f"loops over {names}", f"one of {total:,} iterations"
    elif kinds == {"launch"}:
        runs, survives = f"is launched for each step of {names}", f"the last of {total:,} launches"
    else:
        # threads have no order
        runs, survives = f"runs threads over {names}", f"one of {total:,} threads"
    return f"kernel {kernel.name} {runs} but its store to {access.buffer} does not use {it}: only {survives} survives"


def name_range(schedule: Schedule, kernel: Kernel, loop: Loop) -> str:
    """Returns `rm1 (3, Lidx2 in the source)` where the buffer lost one range of that size, else `Lidx2 (3)`."""
    index = index_of(schedule)
    made = [index.bufferizes[node] for node in kernel.outputs if node in index.bufferizes]
    lost = index.find_lost(next(iter(made), None))
    alike = [name for name in lost if index.size_of(name) == loop.size]
    if len(alike) != 1:
        return f"{loop.name} ({loop.size:,})"
    return f"{alike[0]} ({loop.size:,}, {loop.name} in the source)"


def advise(capture: Capture, schedule: Schedule, node: int | None) -> str:
    patches = advise_patches(capture, "ambient-ranges", "nested-ranges")
    if patches is not None and any(item.vmap for item in schedule.ranges):
        return patches
    if node is None:
        return "look at the store in its source"
    return f"vmapdbg why {node} (the ranges its buffer closes)"


def find_unscheduled(capture: Capture, schedule: Schedule) -> Iterator[Finding]:
    """A schedule that failed has no kernels to look at, but its buffers. A range that is left open is VD107's."""
    if capture.error is None and not any(item.kernels for item in capture.schedules):
        return
    index = index_of(schedule)
    for bufferize in schedule.bufferizes:
        lost = [name for name in index.find_lost(bufferize) if name not in bufferize.left_open]
        node = index.node(bufferize.node)
        if not lost or node is None:
            continue
        message = (
            f"the buffer of node {node.id} {node.op} does not close {', '.join(lost)}, which its value depends on: "
            f"only one iteration would survive"
        )
        advice = advise(capture, schedule, node.id)
        yield node_finding("VD101", schedule, node.id, message, advice)


RULE = Rule("VD101", "overlapping stores", "error", EXPLANATION, find)
