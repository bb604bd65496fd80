"""Contents of tinygrad's buffers, and the names of their dtypes. Runs in the child.

It may be imported before the overlay is installed: tinygrad is imported when it is needed."""

from __future__ import annotations

import functools
from typing import Any


def read_buffer(buffer: Any) -> bytes:
    """Returns the contents of a buffer of tinygrad.

    One that was never written (Tensor.empty) has what its memory has: who computes again reads the same.
    """
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
        memory.copyin(memoryview(bytearray(data)))
    return u


@functools.cache
def name_dtype(dtype: Any) -> str:
    """Returns the name that a dtype has in a Capture: `float`, `float.vec(4)`."""
    return str(dtype).removeprefix("dtypes.")
