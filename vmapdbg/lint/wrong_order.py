"""VD109: a kernel that reads memory before or after another one writes it, where the graph asks for the opposite."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.rule import Rule, advise_why, each_kernel, kernel_finding
from vmapdbg.model.capture import Access, Capture, Finding, Kernel, Schedule, WrongTime
from vmapdbg.model.schedule_index import index_of

EXPLANATION = """\
A value was made from a tensor before something was assigned to the tensor, so it should be computed from what the
tensor held before. Its kernel runs after the kernel of the assign, in the same schedule, and reads the new values. Or
the opposite: a value that was made after the assign is computed from the old ones. No error is raised.

Decided by comparing the graph before it was scheduled with the order of the kernels: which writes the part of the graph
that a kernel computes comes after, and which kernels have written the memory by then. The two must touch the same
elements: the writing kernel stores to all elements from one to another, and those that are read are among them. Nothing
is said of schedules on several devices, of custom kernels, and of copies.

What to try: realize the value before the assign, or make it `.contiguous()`; or realize the assign by itself.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    for schedule, number, kernel in each_kernel(capture):
        for found in kernel.wrong_times:
            message = explain(schedule, kernel, found)
            if message is not None:
                yield kernel_finding("VD109", schedule, number, message, advise(kernel))


def advise(kernel: Kernel) -> str:
    return advise_why(kernel, "realize the value, or the assign, by itself")


def explain(schedule: Schedule, kernel: Kernel, found: WrongTime) -> str | None:
    """Returns what is wrong with what a kernel reads, None where it is not certain that it is."""
    asked = f"{index_of(schedule).op(found.node)} {found.node}"
    for number in found.early:
        writer = schedule.kernels[number]
        if do_meet(writer, kernel, found):
            late = f"kernel {kernel.name} reads {found.buffer} after kernel {writer.name} #{number} has written it"
            return f"{late}: the graph asks for what {asked} held before"
    for number in found.late:
        writer = schedule.kernels[number]
        if do_meet(writer, kernel, found):
            soon = f"kernel {kernel.name} reads {found.buffer} before kernel {writer.name} #{number} writes it"
            return f"{soon}: the graph asks for what {asked} holds then"
    return None


def do_meet(writer: Kernel, reader: Kernel, found: WrongTime) -> bool:
    """Tells whether it is certain that one kernel writes elements that the other one reads."""
    stored = find_run(writer)
    loads = [one for one in reader.accesses or () if one.kind == "load" and one.buffer == found.buffer]
    if stored is None or not loads:
        return False
    return any(is_inside(load, *stored) for load in loads)


def find_run(writer: Kernel) -> tuple[int, int] | None:
    """Returns the first and last of the elements that a kernel stores to its first argument, where it stores to all
    between them."""
    name = next((buffer.name for buffer in writer.buffers), None)
    stores = [one for one in writer.accesses or () if one.kind == "store" and one.buffer == name]
    if len(stores) != 1:
        return None
    (store,) = stores
    if store.lowest is None or store.highest is None or store.elements != store.highest - store.lowest + 1:
        return None
    return store.lowest, store.highest


def is_inside(load: Access, lowest: int, highest: int) -> bool:
    if load.lowest is None or load.highest is None:
        # a load that is not known where: inside all the same, if that is all there is
        return lowest == 0 and highest == load.size - 1
    return lowest <= load.lowest and load.highest <= highest


RULE = Rule("VD109", "wrong order of a read and a write", "error", EXPLANATION, find)
