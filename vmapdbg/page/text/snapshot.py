"""A capture as text for the pytest plugin's snapshot files: it changes only if a schedule changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vmapdbg.model.capture import Capture, Kernel, Schedule


def format_snapshot(capture: Capture) -> str:
    """Returns target, patches, and for each schedule its kernels: launch, work, buffers.

    It leaves out user lines, ids and the numbers in kernel names, because they change without a change of a schedule.
    """
    on = ", ".join(name for name, state in capture.patches.items() if state)
    lines = [f"target {capture.target}", f"patches {on}"]
    for schedule in capture.schedules:
        lines += format_schedule(schedule)
    return "\n".join(lines) + "\n"


def format_schedule(schedule: Schedule) -> Iterator[str]:
    yield ""
    yield f"schedule {schedule.index}: kernels {len(schedule.kernels)}, copies {schedule.copies}"
    for kernel in schedule.kernels:
        yield from format_kernel(kernel)


def format_kernel(kernel: Kernel) -> Iterator[str]:
    # tinygrad counts kernels of one name in a process: r_4_4, r_4_4n1, r_4_4n2
    yield f"  kernel {re.sub(r'n[0-9]+$', '', kernel.name)}"
    yield f"    threads {kernel.threads}, launches {kernel.launches}, LOCAL {kernel.local_bytes} bytes"
    yield f"    executed ops {kernel.executed_ops}, moved {kernel.bytes} bytes"
    for buffer in kernel.buffers:
        yield f"    {buffer.access} {buffer.name}: {buffer.size} {buffer.dtype}"
