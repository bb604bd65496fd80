"""VD105: an address that leaves its buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vmapdbg.lint.rule import Rule, count_of, each_kernel, find_node, kernel_finding, node_finding
from vmapdbg.model import Access, Capture, Finding, Node, Outside, Schedule

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
    for schedule, number, kernel in each_kernel(capture):
        if (schedule.index, number) in explained:
            continue
        for access in kernel.accesses or ():
            if leaves_buffer(access):
                message = explain(kernel.name, access)
                advice = "compare the address with the ranges of the node"
                advice += f": vmapdbg why {kernel.outputs[0]}" if kernel.outputs else ""
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
    above = find_sources(schedule, causes)
    for bufferize in schedule.bufferizes:
        node = find_node(schedule, bufferize.node)
        if bufferize.outside and node is not None and node.id not in above:
            yield explain_range(schedule, node, bufferize.outside[0], "its buffer", "a reader of ")


def find_sources(schedule: Schedule, nodes: Iterable[Node]) -> set[int]:
    """Returns the ids of all that some nodes are computed from."""
    found: set[int] = set()
    todo = [s for node in nodes for s in node.src]
    while todo:
        number = todo.pop()
        if number not in found and (node := find_node(schedule, number)) is not None:
            found.add(number)
            todo += node.src
    return found


def explain_range(schedule: Schedule, node: Node, outside: Outside, what: str, who: str = "") -> Finding:
    worst = outside.highest if outside.highest >= outside.size else outside.lowest
    message = (
        f"{who}node {node.id} {node.op} takes element {worst} of axis {outside.axis} of {what}, which has "
        f"{count_of(outside.size, 'element')} there: its range {outside.range} goes from {outside.lowest} to "
        f"{outside.highest}"
    )
    number = next((i for i, kernel in enumerate(schedule.kernels) if node.id in kernel.nodes), None)
    return node_finding("VD105", schedule, node.id, message, f"vmapdbg why {node.id} (its ranges)", number)


def leaves_buffer(access: Access) -> bool:
    if access.lowest is None or access.highest is None:
        return False
    return access.lowest < 0 or access.highest >= access.size


def explain(kernel: str, access: Access) -> str:
    verb = "stores to" if access.kind == "store" else "loads"
    worst = access.highest if access.highest is not None and access.highest >= access.size else access.lowest
    gate = f" where {access.gate}" if access.gate is not None else ""
    return (
        f"kernel {kernel} {verb} element {worst} of {access.buffer}, which has {count_of(access.size, 'element')}: its "
        f"address {access.address}{gate} goes from {access.lowest} to {access.highest}"
    )


RULE = Rule("VD105", "address outside of its buffer", "error", EXPLANATION, find)
