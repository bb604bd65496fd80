"""Reads the values of the tensors that a snippet realizes, so that two runs can be compared. Runs in the child."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vmapdbg.child.memory import name_dtype, read_buffer
from vmapdbg.install.overlay import load_patching
from vmapdbg.model.capture import Output

SAMPLE = 1024
"""The most elements that are kept of one tensor, evenly spaced."""

# dtype -> struct's. numpy would do it too; the interpreter of the user's project may not have it
_FORMATS = {
    "bool": "?",
    "char": "b",
    "uchar": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "half": "e",
    "bfloat16": "H",
    "fp8e4m3": "B",
    "fp8e5m2": "B",
    "float": "f",
    "double": "d",
}

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
    # 0.14 has no dtype of pointers, so none has a base
    name = name_dtype(getattr(buffer.dtype, "base", buffer.dtype))
    shape = tuple(int(size) for size in tensor.shape)
    return Output(shape, name, hashlib.sha256(data).hexdigest(), sample_values(data, name))


def sample_values(data: bytes, dtype: str) -> tuple[float | str, ...]:
    """Returns at most `SAMPLE` elements of a buffer; none where the dtype is one that has no numbers."""
    if dtype not in _FORMATS or not data:
        return ()
    form = _FORMATS[dtype]
    size = struct.calcsize(f"={form}")
    step = math.ceil(len(data) // size / SAMPLE) * size
    picked = [data[start : start + size] for start in range(0, len(data), step)]
    if dtype.startswith("fp8"):
        return _decode_fp8(b"".join(picked), dtype)
    if dtype == "bfloat16":
        # the upper half of a float
        picked, form = [b"\0\0" + value for value in picked], "f"
    values = struct.unpack(f"<{len(picked)}{form}", b"".join(picked))
    return tuple(map(_make_plain, values))


def _decode_fp8(data: bytes, dtype: str) -> tuple[float | str, ...]:
    from vmapdbg.values.numbers import Array, decode

    return tuple(_make_plain(value) for value in decode(Array(data, dtype, (len(data),))))


def _make_plain(value: float) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else str(number)
