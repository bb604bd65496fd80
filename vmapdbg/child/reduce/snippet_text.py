"""The text of a snippet around its graph: the contents of inputs, import lines, switches. Runs in the child."""

from __future__ import annotations

import base64
import math
import re
import textwrap
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad.dtype import DType

LITERALS = 1024
"""Buffers with more elements than this are written as packed bytes, not as numbers."""
LARGEST = 16 << 20
"""The most bytes of one buffer that a snippet can hold."""
WIDTH = 110

_IMPORTED = re.compile(r"\b(AxisType|Device|Ops|Tensor|UOp|dtypes|inf|nan|unpack)\b")
_BYTES = re.compile(r'b".*"')


class WriteError(ValueError):
    """The graph cannot be written as a snippet; the message is one sentence that says why."""

    def __init__(self, reason: str):
        super().__init__(f"the graph cannot be written as a snippet: {reason}")


def write_data(data: bytes, dtype: DType, shape: tuple[int, ...], where: str) -> str:
    """Returns the text of a lazy Tensor of `shape` with these bytes: nested lists, or packed bytes if it is large.

    `where` is the text of the argument that says its device, if it needs one. Raises WriteError.
    """
    count = math.prod(shape)
    if not count:
        return f"Tensor.empty({write_shape(shape)}, dtype={dtype!r}{where})"
    if count > LITERALS or dtype.fmt is None:
        return f"{_write_packed(data, dtype, where)}{_write_reshape((count,), shape)}"
    # a list cannot have shape ()
    text = _write_numbers(np.frombuffer(data, dtype.fmt).reshape(shape or (1,)))
    flat = f"Tensor({text}, dtype={dtype!r}{where})"
    if len(flat) > WIDTH:
        lines = textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
        flat = "\n".join(["Tensor(", *lines]) + f",\n    dtype={dtype!r}{where},\n)"
    return flat + _write_reshape(shape or (1,), shape)


def _write_numbers(numbers: NDArray[Any]) -> str:
    """Returns nested lists. numpy writes the shortest text that has the same bits in the dtype."""
    parts = map(str, numbers) if numbers.ndim == 1 else map(_write_numbers, numbers)
    return f"[{', '.join(parts)}]"


def _write_packed(data: bytes, dtype: DType, where: str) -> str:
    if len(data) > LARGEST:
        raise WriteError(f"an input of {len(data):,} bytes is too large for a snippet, which holds {LARGEST:,}")
    text = base64.b85encode(zlib.compress(data, 9)).decode("ascii")
    size = WIDTH - 10
    lines = [f'        b"{text[i : i + size]}"\n' for i in range(0, len(text), size)]
    return f"Tensor(\n    unpack(\n{''.join(lines)}    ),\n    dtype={dtype!r}{where},\n)"


def write_shape(shape: Iterable[Any]) -> str:
    return ", ".join(map(str, shape)) or "()"


def _write_reshape(have: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if have == shape:
        return ""
    return f".reshape({write_shape(shape)})"


def write_imports(body: str) -> str:
    """Returns the import lines for the names that a text uses."""
    used = {"Tensor", *_IMPORTED.findall(_BYTES.sub("", body))}
    lines = []
    if "unpack" in used:
        lines += ["import base64", "import zlib"]
    if constants := sorted(used & {"inf", "nan"}):
        lines.append(f"from math import {', '.join(constants)}")
    if lines:
        lines.append("")
    lines.append(f"from tinygrad import {', '.join(sorted(used & {'Device', 'Tensor', 'UOp', 'dtypes'}))}")
    if names := sorted(used & {"AxisType", "Ops"}):
        lines.append(f"from tinygrad.uop.ops import {', '.join(names)}")
    if "unpack" in used:
        lines += ["", "", "def unpack(text: bytes) -> bytes:"]
        lines += ["    return zlib.decompress(base64.b85decode(text))", ""]
    return "\n".join(lines) + "\n"


def write_switches(switches: Mapping[str, int | str]) -> str:
    """Returns the lines that set switches of tinygrad, before it is imported; "" if there are none."""
    if not switches:
        return ""
    lines = ["import os", "", *(f'os.environ["{name}"] = "{value}"' for name, value in switches.items()), ""]
    return "\n".join(lines) + "\n"
