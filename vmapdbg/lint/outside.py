"""VD105: an address that leaves its buffer."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.rule import Rule, advise_why, each_access, kernel_finding, node_finding
from vmapdbg.model.capture import Access, Capture, Finding, Node, Outside, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_plural

EXPLANATION = """\
A load or a store of a kernel has an address outside of its buffer in some step of its loops: it reads what belongs to
another buffer, or overwrites it, or the process ends.

Decided for every step of every loop and thread, where the gate of the access holds: the bounds of each independent part
of the address are exact. An address that is made of loaded values, or has a variable in it, is only looked at where the
gate bounds it; where that leaves it open nothing is said.

The ranges of the nodes are looked at as well: an index that leaves its axis is wrapped around when the axes become one
address, and the kernel then reads another element of the same buffer.

What to try: look at the range that the address is made of. Typical causes are the lost valid of a PAD or SHRINK, a
stride or an order of ranges that differs between the buffer and its reader, and a buffer that is too short.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    # a kernel whose ranges are wrong has wrong addresses: the ranges say which node it is
    explained: set[tuple[int, int | None]] = set()
    for schedule in capture.schedules:
        for finding in find_ranges(schedule):
            explained.add((schedule.index, finding.number))
            yield finding
    for schedule, number, kernel, access in each_access(capture):
        if leaves_buffer(access) and (schedule.index, number) not in explained:
            advice = advise_why(kernel, "compare the address with the ranges of the node")
            message = explain(kernel.name, access)
            yield kernel_finding("VD105", schedule, number, message, advice, access.source_line)


def find_ranges(schedule: Schedule) -> Iterator[Finding]:
    """What the range records say: an index that leaves its axis, whatever address it becomes.

    A node hands its ranges on to its sources, so only the last one with such an index is named.
    """
    wrong = {node.id: node for node in schedule.nodes if node.outside and node.src}
    followed = {s for node in wrong.values() for s in node.src}
    causes = [node for node in wrong.values() if node.id not in followed]
    for node in causes:
        yield explain_range(schedule, node, node.outside[0], f"its source (node {node.src[0]})")
    index = index_of(schedule)
    above = index.find_sources([node.id for node in causes])
    for bufferize in schedule.bufferizes:
        node = index.node(bufferize.node)
        if bufferize.outside and node is not None and node.id not in above:
            yield explain_range(schedule, node, bufferize.outside[0], "its buffer", "a reader of ")


def explain_range(schedule: Schedule, node: Node, outside: Outside, what: str, who: str = "") -> Finding:
    worst = choose_worst(outside.lowest, outside.highest, outside.size)
    elements = format_plural(outside.size, "element")
    message = (
        f"{who}node {node.id} {node.op} takes element {worst} of axis {outside.axis} of {what}, which has {elements} "
        f"there: its range {outside.range} goes from {outside.lowest} to {outside.highest}"
    )
    computing = [number for number, _ in index_of(schedule).find_computing(node.id)]
    number = next(iter(computing), None)
    return node_finding("VD105", schedule, node.id, message, f"vmapdbg why {node.id} (its ranges)", number)


def choose_worst(lowest: int | None, highest: int | None, size: int) -> int | None:
    """Returns the end of an address that lies outside of its `size` elements."""
    return highest if highest is not None and highest >= size else lowest


def leaves_buffer(access: Access) -> bool:
    if access.lowest is None or access.highest is None:
        return False
    return access.lowest < 0 or access.highest >= access.size


def explain(kernel: str, access: Access) -> str:
    verb = "stores to" if access.kind == "store" else "loads"
    worst = choose_worst(access.lowest, access.highest, access.size)
    gate = "" if access.gate is None else f" where {access.gate}"
    elements = format_plural(access.size, "element")
    return (
        f"kernel {kernel} {verb} element {worst} of {access.buffer}, which has {elements}: its address "
        f"{access.address}{gate} goes from {access.lowest} to {access.highest}"
    )


RULE = Rule("VD105", "address outside of its buffer", "error", EXPLANATION, find)
