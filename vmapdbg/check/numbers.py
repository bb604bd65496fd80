"""The bytes of a buffer as numbers, for each of tinygrad's dtypes."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

# dtype -> code of the struct module. The names are those of repr(dtype), less "dtypes."
_CODES = {
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
    "float": "f",
    "double": "d",
}
# dtype -> distance from 1 to the next larger number
EPSILON = {
    "double": 2.0**-52,
    "float": 2.0**-23,
    "half": 2.0**-10,
    "bfloat16": 2.0**-7,
    "fp8e4m3": 2.0**-3,
    "fp8e5m2": 2.0**-2,
}
ITEMSIZE = {name: struct.calcsize(code) for name, code in _CODES.items()} | {"bfloat16": 2, "fp8e4m3": 1, "fp8e5m2": 1}

Numbers = Sequence[Any]


@dataclass(frozen=True)
class Array:
    """A dense array, last axis fastest: its bytes, shape and dtype (a name such as `float`)."""

    data: bytes
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        expected = math.prod(self.shape) * ITEMSIZE[self.dtype]
        if len(self.data) != expected:
            raise ValueError(f"{len(self.data)} bytes for {self.dtype} of shape {self.shape}, not {expected}")


def is_float(dtype: str) -> bool:
    return dtype in EPSILON


def decode(array: Array) -> Numbers:
    """Returns the elements as Python numbers, in the order of the bytes."""
    code = _CODES.get(array.dtype)
    if code is not None:
        return memoryview(array.data).cast(cast(Any, code))
    if array.dtype == "bfloat16":
        return [_widen(word) for word in memoryview(array.data).cast("H")]
    table = _fp8_table(*{"fp8e4m3": (4, 3), "fp8e5m2": (5, 2)}[array.dtype])
    return [table[byte] for byte in array.data]


def _widen(word: int) -> float:
    return struct.unpack("f", struct.pack("I", word << 16))[0]


@functools.cache
def _fp8_table(exponent_bits: int, mantissa_bits: int) -> tuple[float, ...]:
    """The value of each byte. e5m2 has infinities as IEEE has, e4m3 has only NaN."""
    bias, steps = 2 ** (exponent_bits - 1) - 1, 2**mantissa_bits
    top = 2**exponent_bits - 1
    values = []
    for byte in range(256):
        sign = -1.0 if byte >> 7 else 1.0
        exponent, mantissa = (byte >> mantissa_bits) & top, byte & (steps - 1)
        if exponent == top and (exponent_bits == 5 or mantissa == steps - 1):
            values.append(sign * math.inf if exponent_bits == 5 and mantissa == 0 else math.nan)
        elif exponent == 0:
            values.append(sign * mantissa / steps * 2.0 ** (1 - bias))
        else:
            values.append(sign * (1 + mantissa / steps) * 2.0 ** (exponent - bias))
    return tuple(values)


def find_index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the index of the element at `place` of the flat array."""
    index: list[int] = []
    for size in reversed(shape):
        index.append(place % size)
        place //= size
    return tuple(reversed(index))


def find_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns how many elements apart two neighbours along each axis are."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
