"""Reads the values of the tensors that a snippet realizes, so that two runs can be compared."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vmapdbg.child.listen.recorder import Recorder
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


def note_values(tensor_module: ModuleType, recorder: Recorder) -> None:
    """Wraps `Tensor.realize`, which every read of values calls: each Tensor that a new schedule realized becomes an
    output of the schedule. Raises UnknownShape."""

    def noting(realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        before = len(recorder.schedules)
        result = realize(tensor, *others, **options)
        if len(recorder.schedules) > before:
            recorder.schedules[-1].outputs += filter(None, map(read_output, (tensor, *others)))
        return result

    with load_patching().Changes("values of realized tensors") as changes:
        changes.wrap(tensor_module.Tensor, "realize", noting, "self", "lst", "do_update_stats")


def read_output(tensor: Any) -> Output | None:
    """Returns the values of a realized Tensor, None if it has none to read (sharded tensors, virtual devices)."""
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
    """Returns at most `SAMPLE` elements of a buffer; none if the dtype has no numbers."""
    if dtype not in _FORMATS or not data:
        return ()
    form = _FORMATS[dtype]
    size = struct.calcsize(f"={form}")
    step = math.ceil(len(data) // size / SAMPLE) * size
    picked = [data[start : start + size] for start in range(0, len(data), step)]
    if dtype.startswith("fp8"):
        from vmapdbg.values.numbers import Array, decode

        numbers = map(float, decode(Array(b"".join(picked), dtype, (len(picked),))))
    else:
        if dtype == "bfloat16":
            # the upper half of a float
            picked, form = [b"\0\0" + value for value in picked], "f"
        numbers = map(float, struct.unpack(f"<{len(picked)}{form}", b"".join(picked)))
    return tuple(number if math.isfinite(number) else str(number) for number in numbers)
