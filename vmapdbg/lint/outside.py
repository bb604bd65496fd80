"""VD105: an address that leaves its buffer."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.rule import Rule, count_of, each_kernel, kernel_finding
from vmapdbg.model import Access, Capture, Finding

EXPLANATION = """\
A load or a store of a kernel has an address outside of its buffer in some step of its loops: it reads what belongs to
another buffer, or overwrites it, or the process ends.

Decided for every step of every loop and thread, where the gate of the access holds: the bounds of each independent part
of the address are exact. An address that is made of loaded values, or has a variable in it, is only looked at where the
gate bounds it; where that leaves it open nothing is said.

What to try: look at the range that the address is made of. Typical causes are the lost valid of a PAD or SHRINK, a
stride or an order of ranges that differs between the buffer and its reader, and a buffer that is too short.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    for schedule, number, kernel in each_kernel(capture):
        for access in kernel.accesses or ():
            if leaves_buffer(access):
                message = explain(kernel.name, access)
                advice = "compare the address with the ranges of the node"
                advice += f": vmapdbg why {kernel.outputs[0]}" if kernel.outputs else ""
                yield kernel_finding("VD105", schedule, number, message, advice, access.source_line)


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
