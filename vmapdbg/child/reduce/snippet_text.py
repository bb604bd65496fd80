"""The text of a snippet that is being written: numbers, operators, imports and lines. Runs in the child."""

from __future__ import annotations

import base64
import math
import struct
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

from tinygrad.dtype import DType, dtypes, sum_acc_dtype
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# *** input data

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
    """Returns the shortest text of a number that has the same bits in `dtype`: 0.1 for the float32
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
    """Returns the text of a lazy Tensor of `shape` with these bytes: nested lists, or packed bytes if it is large.

    `where` is the text of the argument that says its device, if it needs one. Raises WriteError.
    """
    count = math.prod(shape)
    if not count:
        return f"Tensor.empty({write_shape(shape)}, dtype={dtype!r}{where})"
    if count > LITERALS or dtype.fmt is None:
        return f"{_write_packed(data, dtype, where)}{_write_reshape((count,), shape)}"
    numbers = [write_number(value, dtype) for value in memoryview(data).cast(cast(Any, dtype.fmt))]
    # a list cannot have shape ()
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


# *** operators

OPERATORS = {
    Ops.ADD: "+",
    Ops.MUL: "*",
    Ops.CMPLT: "<",
    Ops.CMPNE: "!=",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
}
# Tensor's operators refuse floats for them
BITWISE = {Ops.AND, Ops.OR, Ops.XOR}
FLOAT_UNARY = {
    Ops.EXP2: "exp2",
    Ops.LOG2: "log2",
    Ops.SIN: "sin",
    Ops.SQRT: "sqrt",
    Ops.RECIPROCAL: "reciprocal",
}
REDUCES = {Ops.ADD: "sum", Ops.MAX: "max", Ops.MUL: "prod"}
INDEX_OPERATORS = {**OPERATORS, Ops.IDIV: "//", Ops.MOD: "%"}
CANNOT = {
    Ops.KERNEL: "it has a kernel in it (a custom kernel, or a graph that is scheduled already)",
    Ops.AFTER: "it has a kernel in it (a custom kernel, or a graph that is scheduled already)",
    Ops.CUSTOM_KERNEL: "it has a custom kernel in it",
    Ops.MULTI: "it is sharded over devices",
    Ops.MSELECT: "it is sharded over devices",
    Ops.MSTACK: "it is sharded over devices",
    Ops.BUFFER_VIEW: "it has a view of a DISK buffer in it",
}


def is_python_data(copy: UOp) -> bool:
    """Tells whether a COPY copies Python numbers, as Tensor([...]) does until it is realized."""
    base = copy.src[0].base
    views = copy.src[0].op is Ops.BUFFER or (copy.src[0].op is Ops.RESHAPE and copy.src[0].src[0] is base)
    return base.op is Ops.BUFFER and base.device == "PYTHON" and copy.device != "PYTHON" and views


def is_operator(u: UOp) -> bool:
    """Tells whether Python's operator between two Tensors makes exactly this node."""
    if u.op not in OPERATORS or len({s.dtype for s in u.src}) != 1 or len({s._shape for s in u.src}) != 1:
        return False
    # for these dtypes, Tensor's operators add casts to a larger dtype and back
    return sum_acc_dtype(u.src[0].dtype) == u.src[0].dtype and (u.op not in BITWISE or not dtypes.is_float(u.dtype))


def find_scalar(u: UOp) -> int | None:
    """Returns the index of the operand that can be written as a plain number, None if there is none."""
    if not is_operator(u):
        return None
    left, right = u.src
    if _is_number(right, left):
        return 1
    # with a number on the left, Python swaps the sides of these operators
    if u.op not in {Ops.CMPLT, Ops.CMPNE} and _is_number(left, right):
        return 0
    return None


def _is_number(u: UOp, other: UOp) -> bool:
    const = u
    while const.op in {Ops.RESHAPE, Ops.EXPAND}:
        const = const.src[0]
    if const.op is not Ops.CONST or other._device is None or not ints(other._shape) or other.base.op is Ops.CONST:
        return False
    if not (dtypes.is_float(const.dtype) or dtypes.is_int(const.dtype)):
        return False
    same = UOp.const(const.dtype, const.arg, other.device)
    if other.shape:
        same = same.reshape((1,) * len(other.shape)).expand(other.shape)
    return u is same


def ints(shape: Any) -> bool:
    return shape is not None and all(isinstance(size, int) for size in shape)


def write_tuple(parts: Iterable[str]) -> str:
    written = list(parts)
    return f"({', '.join(written)}{',' * (len(written) == 1)})"


def write_arg(arg: Any) -> str:
    if isinstance(arg, Ops):
        return f"Ops.{arg.name}"
    if isinstance(arg, tuple):
        return write_tuple(map(write_arg, arg))
    if arg is None or isinstance(arg, (int, float, str)):
        return repr(arg)
    raise WriteError(f"it has an op with the argument {arg!r}")


# *** the file


class SnippetFile:
    """Lines of Python. It collects the names that they use, for the import lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._used: set[str] = {"Tensor"}
        self._counts: Counter[str] = Counter()

    def use(self, *names: str) -> None:
        """Adds names to import."""
        self._used.update(names)

    def note_names(self, text: str) -> None:
        """Adds the names to import that a text uses."""
        for name in ("dtypes", "UOp", "Ops", "Device", "unpack"):
            if f"{name}." in text or f"{name}(" in text:
                self.use(name)
        for name in ("inf", "nan"):
            if any(f"{before}{name}" in text for before in ("(", "[", " ", "-")):
                self.use(name)

    def assign(self, prefix: str, text: str) -> str:
        """Adds a line that assigns a value to a new name such as `t3`, and returns the name."""
        name = f"{prefix}{self._counts[prefix]}"
        self._counts[prefix] += 1
        self.note_names(text)
        self.lines.append(f"{name} = {text}")
        return name

    def write_imports(self) -> str:
        """Returns the import lines."""
        lines = []
        if "unpack" in self._used:
            lines += ["import base64", "import zlib"]
        if constants := sorted(self._used & {"inf", "nan"}):
            lines.append(f"from math import {', '.join(constants)}")
        if lines:
            lines.append("")
        names = sorted(self._used & {"Device", "Tensor", "UOp", "dtypes"})
        lines.append(f"from tinygrad import {', '.join(names)}")
        if "Ops" in self._used or "AxisType" in self._used:
            lines.append(f"from tinygrad.uop.ops import {', '.join(sorted(self._used & {'AxisType', 'Ops'}))}")
        if "unpack" in self._used:
            lines += ["", "", "def unpack(text: bytes) -> bytes:"]
            lines += ["    return zlib.decompress(base64.b85decode(text))", ""]
        return "\n".join(lines) + "\n"


def write_switches(switches: Mapping[str, int | str]) -> str:
    """Returns the lines that set switches of tinygrad, before it is imported; "" if there are none."""
    if not switches:
        return ""
    lines = ["import os", "", *(f'os.environ["{name}"] = "{value}"' for name, value in switches.items()), ""]
    return "\n".join(lines) + "\n"
