"""What kernels that were timed took together."""

from __future__ import annotations

from collections.abc import Iterable

from vmapdbg.model.capture import Kernel, Measured


def sum_times(measured: Measured | None) -> float:
    """Returns how many seconds the launches of a kernel took together, each the median; 0 where none was timed."""
    if measured is None:
        return 0
    return measured.launches * measured.median


def find_times(kernels: Iterable[Kernel]) -> dict[str, Measured]:
    """Returns source -> what was measured. Kernels that are one program were timed as one: what each of them has are
    the launches of all."""
    return {kernel.source: kernel.measured for kernel in kernels if kernel.measured is not None}


def sum_programs(kernels: Iterable[Kernel]) -> float | None:
    """Returns how many seconds the launches of all kernels of a run took together, None where none was timed."""
    times = find_times(kernels)
    return sum(map(sum_times, times.values())) if times else None
