"""Reads the values of the tensors that a snippet realizes, so that two runs can be compared. Runs in the child."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vmapdbg.model import Output
from vmapdbg.overlay import load_patching

SAMPLE = 1024
"""The most elements that are kept of one tensor, evenly spaced."""

# devices whose memory is no result of a computation
_NO_VALUES = ("NULL", "DISK", "TINYFS")


def note_values(tensor_module: ModuleType, scheduled: Callable[[], int], keep: Callable[[Output], None]) -> None:
    """Wraps `Tensor.realize`, which all that looks at values goes through, and gives each Tensor that a new schedule
    realized to `keep`. `scheduled` tells how many schedules there were so far. Raises UnknownShape."""

    def noting(realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        before = scheduled()
        result = realize(tensor, *others, **options)
        if scheduled() > before:
            for output in filter(None, map(read_output, (tensor, *others))):
                keep(output)
        return result

    with load_patching().Changes("values of realized tensors") as changes:
        changes.wrap(tensor_module.Tensor, "realize", noting, "self", "lst", "do_update_stats")


def read_output(tensor: Any) -> Output | None:
    """Returns the values of a realized Tensor, None where there are none to read (sharded tensors, virtual devices)."""
    device = tensor.uop.device
    if not isinstance(device, str) or device.startswith(_NO_VALUES) or not tensor.uop.is_realized:
        return None
    buffer = tensor.uop.base.buffer.ensure_allocated()
    data = bytes(buffer.as_buffer())
    dtype = buffer.dtype.base
    sample: tuple[float | str, ...] = ()
    if dtype.fmt is not None and data:
        values = memoryview(data).cast(dtype.fmt)
        step = max(1, math.ceil(len(values) / SAMPLE))
        sample = tuple(_plain(value) for value in values[::step])
    shape = tuple(int(size) for size in tensor.shape)
    name = str(dtype).removeprefix("dtypes.")
    return Output(shape, name, hashlib.sha256(data).hexdigest(), sample)


def _plain(value: Any) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
