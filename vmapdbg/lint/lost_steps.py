"""VD101: steps of a loop, or threads, that store to the same place."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.rule import Rule, advise_patches, count_of, each_kernel, find_node, kernel_finding, node_finding
from vmapdbg.model import Access, Capture, Finding, Kernel, Loop, Schedule
from vmapdbg.schedule_index import index_of

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
    for schedule, number, kernel in each_kernel(capture):
        for access in kernel.accesses or ():
            if access.kind == "store" and (message := explain_store(schedule, kernel, access)) is not None:
                advice = advise(capture, schedule, next(iter(kernel.outputs), None))
                yield kernel_finding("VD101", schedule, number, message, advice, access.source_line)
    for schedule in capture.schedules:
        if not schedule.kernels:
            yield from find_unscheduled(capture, schedule)


def explain_store(schedule: Schedule, kernel: Kernel, access: Access) -> str | None:
    if access.lost:
        return explain_lost(schedule, kernel, access)
    if access.addrspace != "GLOBAL" or access.stores is None or access.elements in (None, access.stores):
        return None
    # a kernel that reads what it writes may add to it step by step
    if any(other.kind == "load" and other.buffer == access.buffer for other in kernel.accesses or ()):
        return None
    return (
        f"kernel {kernel.name} stores {count_of(access.stores, 'value')} to {count_of(access.elements, 'element')} of "
        f"{access.buffer}: {count_of(access.stores - access.elements, 'value')} "
        f"{'is' if access.stores - access.elements == 1 else 'are'} overwritten (address {access.address})"
    )


def explain_lost(schedule: Schedule, kernel: Kernel, access: Access) -> str:
    names = " and ".join(name_range(schedule, kernel, loop) for loop in access.lost)
    total = 1
    for loop in access.lost:
        total *= loop.size
    it = "it" if len(access.lost) == 1 else "them"
    kinds = {loop.kind for loop in access.lost}
    if kinds == {"loop"}:
        runs, what = f"loops over {names}", "iteration"
    elif kinds == {"launch"}:
        runs, what = f"is launched for each step of {names}", "launch"
    else:
        runs, what = f"runs threads over {names}", "thread"
    many = f"{total:,} {what}{'es' if what == 'launch' else 's'}"
    survives = f"one of {many}" if what == "thread" else f"the last of {many}"
    return f"kernel {kernel.name} {runs} but its store to {access.buffer} does not use {it}: only {survives} survives"


def name_range(schedule: Schedule, kernel: Kernel, loop: Loop) -> str:
    """Returns `rm1 (3, Lidx2 in the source)` where the buffer lost one range of that size, else `Lidx2 (3)`."""
    bufferize = next((b for b in schedule.bufferizes if b.node in kernel.outputs), None)
    sizes = {item.name: item.size for item in schedule.ranges}
    alike = [name for name in index_of(schedule).find_lost(bufferize) if sizes.get(name) == loop.size]
    return (
        f"{alike[0]} ({loop.size:,}, {loop.name} in the source)" if len(alike) == 1 else f"{loop.name} ({loop.size:,})"
    )


def advise(capture: Capture, schedule: Schedule, node: int | None) -> str:
    has_scope = any(item.vmap for item in schedule.ranges)
    patches = advise_patches(capture, "ambient-ranges", "nested-ranges") if has_scope else None
    if patches is not None:
        return patches
    return "look at the store in its source" if node is None else f"vmapdbg why {node} (the ranges its buffer closes)"


def find_unscheduled(capture: Capture, schedule: Schedule) -> Iterator[Finding]:
    """A schedule that failed has no kernels to look at, but its buffers. A range that is left open is VD107's."""
    for bufferize in schedule.bufferizes:
        lost = [name for name in index_of(schedule).find_lost(bufferize) if name not in bufferize.left_open]
        node = find_node(schedule, bufferize.node)
        if not lost or node is None or (not any(item.kernels for item in capture.schedules) and capture.error is None):
            continue
        message = (
            f"the buffer of node {node.id} {node.op} does not close {', '.join(lost)}, which its value depends on: "
            f"only the last iteration would survive"
        )
        advice = advise(capture, schedule, node.id)
        yield node_finding("VD101", schedule, node.id, message, advice)


RULE = Rule("VD101", "lost steps", "error", EXPLANATION, find)
