"""What kernels that were timed took together."""

from __future__ import annotations

from collections.abc import Iterable

from vmapdbg.model.capture import Kernel, Measured


def sum_times(measured: Measured | None) -> float:
    """Returns how many seconds the launches of a kernel took together, each the median; 0 where none was timed."""
    if measured is None:
        return 0
    return measured.launches * measured.median


def sum_programs(kernels: Iterable[Kernel]) -> float | None:
    """Returns the same for all kernels of a run, None where none was timed. Kernels that are one program were timed as
    one: what each of them has are the launches of all."""
    programs = {kernel.source: kernel.measured for kernel in kernels if kernel.measured is not None}
    if not programs:
        return None
    return sum(map(sum_times, programs.values()))
