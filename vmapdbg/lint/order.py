"""Rules about loops and the order of reads and writes: VD107, VD108, VD109."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from vmapdbg.lint.rule import advise_patches, advise_why, each_kernel, kernel_finding, node_finding, rule
from vmapdbg.model.capture import Access, Bufferize, Capture, Finding, Kernel, Reset, Schedule, WrongTime
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.wording import format_plural


@rule("VD107", "range left open", "error")
def find_open_ranges(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """The value of a buffer depends on a range that the store into the buffer does not close: no loop runs it. tinygrad
    then fails with "input to kernel must be AFTER or BUFFER, not Ops.INDEX", or makes a program with a loop that has no
    end.

    How it decides: by the ranges of each store into a GLOBAL buffer that the store does not end. OUTER ranges stay open
    on purpose, because the schedule runs them. LOCAL buffers are inside the loops around them.

    What to try: turn on close-ranges, which closes every open range of a stored value. Or the value should not depend
    on the range: `vmapdbg why NODE` shows where it comes from.
    """
    for schedule in capture.schedules:
        for bufferize in schedule.bufferizes:
            if bufferize.left_open and bufferize.outcome == "kept" and bufferize.addrspace == "GLOBAL":
                yield _explain_open(capture, schedule, bufferize)
    for schedule, number, kernel in each_kernel(capture):
        if kernel.open_loops:
            message = f"kernel {kernel.name} opens {', '.join(kernel.open_loops)} and never ends it"
            advice = _advise_closing(capture, next(iter(kernel.outputs), None))
            yield kernel_finding("VD107", schedule, number, message, advice)


def _explain_open(capture: Capture, schedule: Schedule, bufferize: Bufferize) -> Finding:
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
    return node_finding("VD107", schedule, bufferize.node, message, _advise_closing(capture, bufferize.node), number)


def _advise_closing(capture: Capture, node: int | None) -> str:
    advice = "look at the kernel's source"
    if node is not None:
        advice = f"vmapdbg why {node} (where the range comes from)"
    return advise_patches(capture, "close-ranges", "ambient-ranges", "nested-ranges") or advice


@rule("VD108", "accumulator reset", "error")
def find_resets(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """A reduce adds to a register in a loop. The register should be initialised before the loop and read after it. Here
    the kernel initialises it inside the loop: each step forgets the earlier steps, and only the last step is read. A
    softmax then does not sum to one. No error is raised.

    How it decides: in the linear program, the loop stores a value to a register that does not depend on the register.
    Then it adds a value that the loop changes, both at an address that the loop does not change. After the end of the
    loop, a load reads the sum. A register that is read only inside the loop is not reported.

    What to try: the cause is the order in which tinygrad lowers a kernel with several reduces. 0.14.0 does it with
    PCONTIG=2. Another PCONTIG, or a `.contiguous()` in front of the reduce, makes several kernels of it.
    """
    for schedule, number, kernel in each_kernel(capture):
        for reset in kernel.resets:
            advice = advise_why(kernel, "put .contiguous() in front of the reduce, or set another PCONTIG")
            yield kernel_finding("VD108", schedule, number, _explain_reset(kernel, reset), advice, reset.source_line)


def _explain_reset(kernel: Kernel, reset: Reset) -> str:
    steps = format_plural(prod(loop.size for loop in reset.loops), "step")
    names = ", ".join(loop.name for loop in reset.loops)
    if len(reset.loops) == 1:
        loop = f"the loop that adds to it ({names}, {steps})"
    else:
        loop = f"the loops that add to it ({names}, {steps})"
    return f"kernel {kernel.name} initialises {reset.buffer} in each step of {loop}: only the last step is left in it"


@rule("VD109", "wrong order of a read and a write", "error")
def find_wrong_order(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """A value is computed from a tensor, and later something is assigned to the tensor: the value should use the old
    contents. But its kernel runs after the kernel of the assign, in the same schedule, and reads the new contents. Or
    the opposite: a value that comes after the assign uses the old contents. No error is raised.

    How it decides: it compares the graph before scheduling with the order of the kernels. From the graph it knows which
    writes the kernel's part comes after; from the kernels, which of them have written the memory by then. The two
    kernels must touch the same elements: the writing kernel stores to all elements between two bounds, and the elements
    that are read are between them. Schedules on several devices, custom kernels and copies are not checked.

    What to try: realize the value before the assign, or make it `.contiguous()`; or realize the assign by itself.
    """
    for schedule, number, kernel in each_kernel(capture):
        for found in kernel.wrong_times:
            message = _explain_order(schedule, kernel, found)
            if message is not None:
                advice = advise_why(kernel, "realize the value, or the assign, by itself")
                yield kernel_finding("VD109", schedule, number, message, advice)


def _explain_order(schedule: Schedule, kernel: Kernel, found: WrongTime) -> str | None:
    """Returns what is wrong with the order, None if it is not certain that anything is."""
    memory = f"{index_of(schedule).op(found.node)} {found.node}"
    reads = f"kernel {kernel.name} reads {found.buffer}"
    for number in found.early:
        writer = schedule.kernels[number]
        if _touch_same_elements(writer, kernel, found):
            order = f"{reads} after kernel {writer.name} #{number} has written it"
            return f"{order}: the graph asks for what {memory} held before"
    for number in found.late:
        writer = schedule.kernels[number]
        if _touch_same_elements(writer, kernel, found):
            order = f"{reads} before kernel {writer.name} #{number} writes it"
            return f"{order}: the graph asks for what {memory} holds then"
    return None


def _touch_same_elements(writer: Kernel, reader: Kernel, found: WrongTime) -> bool:
    """True if `writer` certainly writes elements that `reader` reads."""
    stored = _stored_span(writer)
    loads = [one for one in reader.accesses or () if one.kind == "load" and one.buffer == found.buffer]
    if stored is None or not loads:
        return False
    return any(_is_inside(load, *stored) for load in loads)


def _stored_span(writer: Kernel) -> tuple[int, int] | None:
    """Returns the first and last element that a kernel stores to its first argument, None if it skips any between."""
    name = next((buffer.name for buffer in writer.buffers), None)
    stores = [one for one in writer.accesses or () if one.kind == "store" and one.buffer == name]
    if len(stores) != 1:
        return None
    (store,) = stores
    if store.lowest is None or store.highest is None or store.elements != store.highest - store.lowest + 1:
        return None
    return store.lowest, store.highest


def _is_inside(load: Access, lowest: int, highest: int) -> bool:
    if load.lowest is None or load.highest is None:
        # the address is unknown, but no element of the buffer is outside
        return lowest == 0 and highest == load.size - 1
    return lowest <= load.lowest and load.highest <= highest
