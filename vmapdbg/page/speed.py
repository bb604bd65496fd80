"""How good a kernel is on its device: what it reaches of the device's peaks, and what limits it."""

from typing import NamedTuple

from vmapdbg.model.capture import Capture, Device, Kernel
from vmapdbg.model.schedule_index import find_times
from vmapdbg.model.wording import format_known
from vmapdbg.page.format import describe_times, format_rate, format_seconds, format_share, list_facts
from vmapdbg.values.tolerance import ITEMSIZE

_MANY_LAUNCHES = 4
"""A kernel that takes less than so many empty launches is limited by the launch."""
_GOOD = 0.5
"""The share of a peak from which that peak limits a kernel."""
_NOISY = 0.2
_SLOWER = 1.05
"""A time that is so much longer is no noise: both are the least of several in turns."""


class Speed(NamedTuple):
    """What a launch reaches: ops and bytes a second (each byte of a buffer counts once), shares of the device's peaks,
    and what limits the kernel; "" if unknown."""

    ops: float
    bytes: float
    ops_share: float
    bytes_share: float
    limit: str


def rate_kernel(kernel: Kernel, device: Device | None) -> Speed | None:
    """Returns what a kernel reaches by the median of its times; None if it was not timed, or the device is unknown."""
    if kernel.measured is None or device is None or not kernel.measured.median:
        return None
    seconds = kernel.measured.median
    ops, moved = kernel.executed_ops / kernel.launches / seconds, _count_bytes(kernel) / seconds
    ops_share, bytes_share = ops / device.ops, moved / device.bytes
    return Speed(ops, moved, ops_share, bytes_share, _find_limit(kernel, device, ops_share, bytes_share))


def describe_kernel(kernel: Kernel, device: Device | None) -> dict[str, str]:
    """Returns what a kernel computes, its buffers, its launch, and its times, each with its label; "" if unknown."""
    facts = {"computes": ", ".join(filter(None, (kernel.title, kernel.phase)))}
    facts |= {name: ", ".join(filter(None, values)) for name, values in list_facts(kernel).items()}
    facts |= {"time": describe_times(kernel), "reaches": describe_speed(kernel, device)}
    return facts | {"optimizations": "; ".join(list_optimizations(kernel))}


def list_optimizations(kernel: Kernel) -> list[str]:
    """Returns `UPCAST 0 4 alone: 12 us, slower than with none` for each set of optimizations that was timed."""
    plain = next((one.seconds for one in kernel.optimizations if one.name == "none"), None)
    found: list[str] = []
    for one in kernel.optimizations:
        name = {"all": "all", "none": "none"}.get(one.name, f"{one.name} alone")
        if one.seconds is None:
            found.append(f"{name}: {one.reason}")
            continue
        is_slow = one.name != "none" and plain is not None and one.seconds > plain * _SLOWER
        found.append(f"{name}: {format_seconds(one.seconds)}{', slower than with none' * is_slow}")
    return found


def describe_speed(kernel: Kernel, device: Device | None) -> str:
    """Returns `4.77 Gop/s (10% of CPU), 1.2 GB/s (7%), limited by one thread`; nothing if that is unknown."""
    speed = rate_kernel(kernel, device)
    if speed is None or device is None:
        return ""
    ops = f"{format_rate(speed.ops, 'op')} ({format_share(speed.ops_share, 1)} of {device.name})"
    moved = f"{format_rate(speed.bytes, 'B')} ({format_share(speed.bytes_share, 1)})"
    beam = format_known("{} faster with BEAM", describe_beam(kernel))
    return ", ".join(filter(None, (ops, moved, speed.limit and f"limited by {speed.limit}", beam)))


def describe_beam(kernel: Kernel) -> str:
    """Returns how much faster a kernel is after BEAM optimized it, `3.1x`; nothing if that was not measured."""
    return "" if kernel.measured is None or not kernel.beam else f"{kernel.measured.median / kernel.beam:.1f}x"


def _count_bytes(kernel: Kernel) -> float:
    """Returns the bytes that a launch moves at least: of a buffer that is read many times, each byte once."""
    held = sum(buffer.size * ITEMSIZE.get(buffer.dtype.partition(".")[0], 0) for buffer in kernel.buffers)
    return min(kernel.bytes / kernel.launches, held)


def _find_limit(kernel: Kernel, device: Device, ops_share: float, bytes_share: float) -> str:
    assert kernel.measured is not None
    if kernel.measured.median < _MANY_LAUNCHES * device.launch:
        return "launch"
    if max(ops_share, bytes_share) >= _GOOD:
        return "arithmetic" if ops_share > bytes_share else "memory"
    if kernel.threads == 1 and device.threads != 1:
        return "one thread"
    return "missing vectors" if kernel.lanes == 1 else ""


def find_noise(capture: Capture) -> float | None:
    """Returns the spread of kernels' times as a share of their median, weighted by time; None if small or unknown."""
    spread = whole = 0.0
    for measured in find_times(capture.kernels).values():
        if measured.spread is not None:
            spread += measured.spread * measured.launches
            whole += measured.median * measured.launches
    return None if not whole or spread / whole < _NOISY else spread / whole
