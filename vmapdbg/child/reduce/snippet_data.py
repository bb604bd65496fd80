"""Input data as Python text: what a written snippet gives its Tensors. Runs in the child."""

from __future__ import annotations

import base64
import math
import struct
import textwrap
import zlib
from typing import Any, cast

from tinygrad.dtype import DType, dtypes

LITERALS = 1024
"""Buffers with more elements than this are written as packed bytes, not as numbers."""
LARGEST = 16 << 20
"""The most bytes of one buffer that a snippet can hold."""
WIDTH = 110


class WriteError(ValueError):
    """The graph cannot be written as a snippet; the message is one sentence that says why."""

    def __init__(self, reason: str):
        super().__init__(f"the graph cannot be written as a snippet: {reason}")


def write_number(value: Any, dtype: DType) -> str:
    """Returns an element of a buffer as the shortest text that gives the same bits of `dtype` back: 0.1 for the float32
    0.10000000149011612."""
    code = {dtypes.float32: "f", dtypes.float16: "e"}.get(dtype)
    if code is None or not math.isfinite(value):
        return repr(value)
    for digits in range(1, 10):
        short = f"{value:.{digits}g}"
        try:
            if struct.pack(code, float(short)) == struct.pack(code, value):
                return repr(float(short))
        except OverflowError:  # the short form rounds up to more than the dtype holds
            continue
    return repr(value)


def write_data(data: bytes, dtype: DType, shape: tuple[int, ...], where: str) -> str:
    """Returns the text of a lazy Tensor of `shape` with these bytes: nested lists, or packed bytes where it is large.

    `where` is the text of the argument that says its device, if it needs one. Raises WriteError.
    """
    count = math.prod(shape)
    if not count:
        return f"Tensor.empty({write_shape(shape)}, dtype={dtype!r}{where})"
    if count > LITERALS or dtype.fmt is None:
        return f"{_write_packed(data, dtype, where)}{_write_reshape((count,), shape)}"
    numbers = [write_number(value, dtype) for value in memoryview(data).cast(cast(Any, dtype.fmt))]
    # a list of no dimension is no Tensor of shape ()
    text = _nest(numbers, shape or (1,))
    flat = f"Tensor({text}, dtype={dtype!r}{where})"
    if len(flat) > WIDTH:
        lines = textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
        flat = "\n".join(["Tensor(", *lines]) + f",\n    dtype={dtype!r}{where},\n)"
    return flat + _write_reshape(shape or (1,), shape)


def _write_packed(data: bytes, dtype: DType, where: str) -> str:
    if len(data) > LARGEST:
        raise WriteError(f"an input of {len(data):,} bytes is too large for a snippet, which holds {LARGEST:,}")
    text = base64.b85encode(zlib.compress(data, 9)).decode("ascii")
    size = WIDTH - 10
    lines = [f'        b"{text[i : i + size]}"\n' for i in range(0, len(text), size)]
    return f"Tensor(\n    unpack(\n{''.join(lines)}    ),\n    dtype={dtype!r}{where},\n)"


def _nest(numbers: list[str], shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return "[" + ", ".join(numbers) + "]"
    step = len(numbers) // shape[0]
    return "[" + ", ".join(_nest(numbers[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])) + "]"


def write_shape(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape)) or "()"


def _write_reshape(have: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if have == shape:
        return ""
    return f".reshape({write_shape(shape)})"
