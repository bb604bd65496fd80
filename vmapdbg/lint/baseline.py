"""Which kernels of the baseline a kernel stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vmapdbg.model.capture import Capture, Kernel, Schedule


def pair_kernels(capture: Capture, baseline: Capture) -> Iterator[tuple[Schedule, int, list[Kernel]]]:
    """Yields each kernel (its schedule, its number) with the baseline's kernels whose buffers it computes inside.

    Only schedules of one and the same graph are compared: where a node has another op, nothing is said. Of another
    tinygrad the nodes that mean the same are taken for the same.
    """
    if capture.target != baseline.target:
        return
    # each process of `run --lint` imports this module, and has no baseline
    from vmapdbg.diff import have_same_tinygrad

    is_same = have_same_tinygrad(baseline.versions, capture.versions)
    before = {schedule.index: schedule for schedule in baseline.schedules}
    for schedule in capture.schedules:
        other = before.get(schedule.index)
        if other is None:
            continue
        if [n.op for n in schedule.nodes] == [n.op for n in other.nodes]:
            kernels, kernels_before = schedule.kernels, other.kernels
        elif is_same:
            continue
        else:
            kernels, kernels_before = _read_neutrally(schedule, other)
        for number, inside in _find_inside(kernels, kernels_before):
            yield schedule, number, inside


def _find_inside(kernels: Sequence[Kernel], before: Sequence[Kernel]) -> Iterator[tuple[int, list[Kernel]]]:
    writers = {kernel.outputs[0]: kernel for kernel in before if kernel.outputs}
    for number, kernel in enumerate(kernels):
        inside = [writers[node] for node in kernel.nodes if node in writers]
        if inside and set(kernel.outputs) & writers.keys():
            yield number, inside


def _read_neutrally(schedule: Schedule, other: Schedule) -> tuple[Sequence[Kernel], Sequence[Kernel]]:
    """Returns the kernels of both, those of `other` with the nodes that mean the same in `schedule`."""
    from vmapdbg.diff import match_nodes
    from vmapdbg.diff.neutral import read_neutrally

    after, before = read_neutrally(schedule).compared, read_neutrally(other).compared
    twins = match_nodes(before, after)
    renamed = [
        # no node has a negative id
        replace(kernel, outputs=tuple(twins.get(node, -1 - node) for node in kernel.outputs))
        for kernel in before.kernels
    ]
    return after.kernels, renamed
