"""Contents of tinygrad's buffers, and names of their dtypes. Runs in the child, before tinygrad is imported."""

import functools
from typing import Any


def read_buffer(buffer: Any) -> bytes:
    """Returns the contents of a buffer of tinygrad: of its memory if nothing was ever written to it (Tensor.empty)."""
    if not buffer.size:
        return b""  # tinygrad has no memory of no bytes
    memory = buffer.ensure_allocated()
    read = getattr(memory, "as_memoryview", None) or memory.as_buffer  # 0.13 renamed it
    return bytes(read())


def scalar_of(dtype: Any) -> Any:
    """Returns the dtype of each lane; from 0.14 on no dtype has more than one."""
    return dtype.scalar() if hasattr(dtype, "scalar") else dtype


@functools.cache
def name_dtype(dtype: Any) -> str:
    """Returns the name that a dtype has in a Capture: `float`, `float.vec(4)`."""
    return str(dtype).removeprefix("dtypes.")
