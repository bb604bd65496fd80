"""Measures what a device reaches, by small kernels, once: the result is kept in the cache."""

import json
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from vmapdbg.install.system import count_cores
from vmapdbg.install.trees import keep, read_kept
from vmapdbg.model.capture import Device

if TYPE_CHECKING:
    from vmapdbg.child.listen.times import Stopwatch

_FILE = "devices.json"
_LAUNCHES = 5
_STREAMED = 1 << 24  # elements of 4 bytes that are read, and written, to measure memory: more than caches have
_CHAINS, _STEPS = 8, 16
"""Independent chains of multiplications and additions for each element, and the steps of a chain."""
_ELEMENTS = 1 << 16, 1 << 24
"""The first and the largest number of elements: a launch must take much longer than an empty launch."""
_LONG = 50
_VIRTUAL = ("PYTHON", "NULL")
_CPUS = ("CPU", "CLANG", "LLVM")


def find_device(stopwatch: "Stopwatch") -> Device | None:
    """Returns what the device reaches that ran most launches; None if none ran, and for devices without hardware."""
    if not stopwatch.devices:
        return None
    name = stopwatch.devices.most_common(1)[0][0]
    if name.startswith(_VIRTUAL):
        return None
    threads = count_cores() if name.startswith(_CPUS) else None
    key = " ".join((name, platform.node(), platform.machine(), platform.processor(), str(threads)))
    known: dict[str, Any] = {}
    with suppress(ValueError, KeyError, TypeError):
        known = json.loads(read_kept(_FILE))
        return Device(**known[key])
    found = replace(_measure(name, stopwatch), threads=threads)
    keep(_FILE, json.dumps({**known, key: asdict(found)}))
    return found


def _measure(name: str, stopwatch: "Stopwatch") -> Device:
    from tinygrad.tensor import Tensor

    def fill(size: int) -> Any:
        return Tensor.full((size,), 0.5, device=name).contiguous().realize()

    def time_launch(make: Callable[[], Any]) -> float:
        """Returns the seconds of the fastest launch."""
        seconds: list[float] = []
        for _ in range(_LAUNCHES):
            make().realize()
            seconds.append(stopwatch.launches[-1].seconds)
        return min(seconds)

    one, large = fill(1), fill(_STREAMED)
    launch = time_launch(lambda: one + 1)
    moved = 2 * 4 * _STREAMED / time_launch(lambda: large + 1)
    size, longest = _ELEMENTS
    while True:
        x, y = fill(size), fill(size)
        seconds = time_launch(lambda x=x, y=y: _chain(x, y))
        if seconds > _LONG * launch or size >= longest:
            break
        size *= 16
    ops = _CHAINS * (2 * _STEPS + 2) - 1  # an addition begins each chain, and adds it to the others
    return Device(name, ops * size / seconds, moved, launch, None)


def _chain(x: Any, y: Any) -> Any:
    chains: list[Any] = []
    for number in range(_CHAINS):
        value = x + number
        for _ in range(_STEPS):
            value = value * y + x
        chains.append(value)
    return reduce(add, chains)
