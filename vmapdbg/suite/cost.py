"""What a kernel costs, as a number to rank changes by: the time that it would take on a made-up machine.

The machine executes 1 op a nanosecond on each thread, on at most 1,000 of them at a time, moves 100 bytes a nanosecond,
and takes 1,000 nanoseconds for a launch. A kernel takes the longer of computing and moving (a roofline), and its
launches. Real machines differ; which of two changes is the worse one hardly does.
"""

from __future__ import annotations

from collections.abc import Iterable

from vmapdbg.model.capture import Kernel

MOST_THREADS = 1_000
BYTES_A_NANOSECOND = 100
LAUNCH_NANOSECONDS = 1_000


def estimate_cost(kernel: Kernel) -> int:
    """Returns what all launches of a kernel cost, in nanoseconds of the made-up machine."""
    threads = min(max(kernel.threads, 1), MOST_THREADS)
    computing = kernel.executed_ops / threads
    moving = kernel.bytes / BYTES_A_NANOSECOND
    return round(max(computing, moving)) + LAUNCH_NANOSECONDS * kernel.launches


def sum_costs(kernels: Iterable[Kernel]) -> int:
    """Returns what some kernels cost together."""
    return sum(map(estimate_cost, kernels))
