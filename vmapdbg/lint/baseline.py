"""Which kernels of the baseline a kernel stands for."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.model.capture import Capture, Kernel, Schedule


def pair_kernels(capture: Capture, baseline: Capture) -> Iterator[tuple[Schedule, int, list[Kernel]]]:
    """Yields each kernel (its schedule, its number) with the baseline's kernels whose buffers it computes inside.

    Only schedules of one and the same graph are compared: where a node has another op, nothing is said.
    """
    if capture.target != baseline.target:
        return
    before = {schedule.index: schedule for schedule in baseline.schedules}
    for schedule in capture.schedules:
        other = before.get(schedule.index)
        if other is None or [n.op for n in schedule.nodes] != [n.op for n in other.nodes]:
            continue
        writers = {kernel.outputs[0]: kernel for kernel in other.kernels if kernel.outputs}
        for number, kernel in enumerate(schedule.kernels):
            inside = [writers[node] for node in kernel.nodes if node in writers]
            if inside and set(kernel.outputs) & writers.keys():
                yield schedule, number, inside
