"""VD106: elements of a new buffer that its kernel never writes."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.rule import Rule, advise_why, each_access, kernel_finding
from vmapdbg.model.capture import Access, Capture, Finding
from vmapdbg.model.wording import format_plural

EXPLANATION = """\
The schedule made a buffer, one kernel writes it, and the kernel does not write all of it: the rest holds what was in
that memory before.

Decided by counting the elements that the stores of the kernel reach over all steps of its loops, its threads and its
launches. Buffers that are written in part on purpose (an assign to a slice of a tensor) are not new, and are left out;
so are shapes with a variable. What is too large to count is found only where there are fewer stores than elements.

What to try: a range of the buffer is missing in the kernel, or counts too little; `vmapdbg why NODE` shows them.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    for schedule, number, kernel, access in each_access(capture):
        if not kernel.fresh or access.kind != "store" or access.addrspace != "GLOBAL":
            continue
        written = count_reached(access)
        if written is None:
            continue
        elements = format_plural(access.size, "element")
        message = f"kernel {kernel.name} writes {written:,} of the {elements} of {access.buffer}"
        if access.missing is not None:
            message += f": element {access.missing} is never written"
        advice = advise_why(kernel, "look for a range of the buffer that the kernel lacks, or that is too short")
        yield kernel_finding("VD106", schedule, number, message, advice, access.source_line)


def count_reached(access: Access) -> int | None:
    """Returns how many elements are written, where that is less than all of them."""
    if access.missing is not None:
        return access.elements
    if access.elements is None and access.stores is not None and access.stores < access.size:
        return access.stores
    return None


RULE = Rule("VD106", "elements never written", "error", EXPLANATION, find)
