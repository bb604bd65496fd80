"""Reads the values of the tensors that a snippet realizes, so that two runs can be compared. Runs in the child."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vmapdbg.child.memory import name_dtype, read_buffer
from vmapdbg.model.capture import Output
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
    buffer = tensor.uop.base.buffer
    data = read_buffer(buffer)
    name = name_dtype(buffer.dtype.base)
    shape = tuple(int(size) for size in tensor.shape)
    return Output(shape, name, hashlib.sha256(data).hexdigest(), sample_values(data, name))


def sample_values(data: bytes, dtype: str) -> tuple[float | str, ...]:
    """Returns at most `SAMPLE` elements of a buffer; none where the dtype is one that has no numbers."""
    # numpy, which a capture that reads no values does not need
    from vmapdbg.values.numbers import ITEMSIZE, Array, decode, make_plain

    if dtype not in ITEMSIZE or not data:
        return ()
    count = len(data) // ITEMSIZE[dtype]
    values = decode(Array(data, dtype, (count,)))
    step = math.ceil(count / SAMPLE)
    return tuple(make_plain(float(value)) for value in values[::step])
