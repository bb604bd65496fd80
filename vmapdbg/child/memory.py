"""Contents of tinygrad's buffers, the names of their dtypes, and the values of its switches. Runs in the child.

It may be imported before the overlay is installed: tinygrad is imported when it is needed."""

from __future__ import annotations

import functools
from typing import Any

# these switches only print or note, or TinyJit sets them while it captures
_CHANGE_NOTHING = frozenset({"CAPTURING", "DEBUG", "DEBUG_RANGEIFY", "PROFILE", "TRACEMETA", "VIZ"})


def read_buffer(buffer: Any) -> bytes:
    """Returns the contents of a buffer of tinygrad: of its memory if nothing was ever written to it (Tensor.empty)."""
    if not buffer.size:
        # tinygrad has no memory of no bytes
        return b""
    memory = buffer.ensure_allocated()
    # 0.13 renamed it
    read = getattr(memory, "as_memoryview", None) or memory.as_buffer
    return bytes(read())


def make_buffer(device: str, size: int, dtype: Any, data: bytes) -> Any:
    """Returns a new BUFFER of `size` elements with these contents."""
    from tinygrad.uop.ops import UOp

    u = UOp.new_buffer(device, size, dtype)
    memory: Any = u.buffer
    memory.allocate()
    if data:
        # 0.14 has no copyin
        memory.allocator._copyin(memory._buf, memoryview(bytearray(data)))
    return u


@functools.cache
def name_dtype(dtype: Any) -> str:
    """Returns the name that a dtype has in a Capture: `float`, `float.vec(4)`."""
    return str(dtype).removeprefix("dtypes.")


def read_switches() -> dict[str, int | str]:
    """Returns the switches that change what is scheduled and compiled (`PCONTIG`, `NOOPT`, ...), by name. From 0.13 on
    without DEV: its value is an object of tinygrad, and a process without tinygrad may read these."""
    from tinygrad.helpers import ContextVar

    known = {name: switch.value for name, switch in ContextVar._cache.items() if name not in _CHANGE_NOTHING}
    return {name: value for name, value in known.items() if isinstance(value, (int, str))}
