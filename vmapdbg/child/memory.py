"""Contents of tinygrad's buffers, names of their dtypes, and values of its switches. Runs in the child. tinygrad is
imported when it is needed, so this may be imported before the overlay is installed."""

from __future__ import annotations

import functools
from typing import Any

# these switches only print or note, or TinyJit sets them while it captures
_CHANGE_NOTHING = frozenset({"CAPTURING", "DEBUG", "DEBUG_RANGEIFY", "PROFILE", "TRACEMETA", "VIZ"})


def read_buffer(buffer: Any) -> bytes:
    """Returns the contents of a buffer of tinygrad: of its memory if nothing was ever written to it (Tensor.empty)."""
    if not buffer.size:
        return b""  # tinygrad has no memory of no bytes
    memory = buffer.ensure_allocated()
    read = getattr(memory, "as_memoryview", None) or memory.as_buffer  # 0.13 renamed it
    return bytes(read())


def make_buffer(device: str, size: int, dtype: Any, data: bytes) -> Any:
    """Returns a new BUFFER of `size` elements with these contents."""
    from tinygrad.uop.ops import UOp

    u = UOp.new_buffer(device, size, dtype)
    memory: Any = u.buffer
    memory.allocate()
    if data:
        memory.allocator._copyin(memory._buf, memoryview(bytearray(data)))  # 0.14 has no copyin
    return u


def scalar_of(dtype: Any) -> Any:
    """Returns the dtype of each lane; from 0.14 on no dtype has more than one."""
    return dtype.scalar() if hasattr(dtype, "scalar") else dtype


@functools.cache
def name_dtype(dtype: Any) -> str:
    """Returns the name that a dtype has in a Capture: `float`, `float.vec(4)`."""
    return str(dtype).removeprefix("dtypes.")


def read_switches() -> dict[str, int | str]:
    """Returns switches that change schedules or code, by name; not DEV, which needs tinygrad to read from 0.13 on."""
    from tinygrad.helpers import ContextVar

    known = {name: switch.value for name, switch in ContextVar._cache.items() if name not in _CHANGE_NOTHING}
    return {name: value for name, value in known.items() if isinstance(value, (int, str))}
