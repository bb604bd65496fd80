"""The bytes of a buffer as numbers, for each of tinygrad's dtypes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]

# dtype -> numpy's. The names are those of repr(dtype), less "dtypes."
_NUMPY_DTYPES = {
    "bool": np.bool_,
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
    "half": np.float16,
    "float": np.float32,
    "double": np.float64,
}
# other names of the same dtypes, in other releases and in renderers
_SPELLINGS = {"float64": "double", "float32": "float", "float16": "half", "bfloat": "bfloat16", "__bf16": "bfloat16"}
# dtype -> distance from 1 to the next larger number
EPSILON = {
    "double": 2.0**-52,
    "float": 2.0**-23,
    "half": 2.0**-10,
    "bfloat16": 2.0**-7,
    "fp8e4m3": 2.0**-3,
    "fp8e5m2": 2.0**-2,
}
_EXPONENT_AND_MANTISSA_BITS = {"fp8e4m3": (4, 3), "fp8e5m2": (5, 2)}
ITEMSIZE = {name: np.dtype(kind).itemsize for name, kind in _NUMPY_DTYPES.items()}
ITEMSIZE |= {"bfloat16": 2, "fp8e4m3": 1, "fp8e5m2": 1}


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


def spell_dtype(name: str) -> str:
    """Returns the name that this module has for a dtype."""
    return _SPELLINGS.get(name, name)


def is_float(dtype: str) -> bool:
    return dtype in EPSILON


def decode(array: Array) -> Numbers:
    """Returns the elements in one dimension, in the order of the bytes.

    numpy has neither bfloat16 nor fp8: these come as float32 and float64, which hold all their values.
    """
    if array.dtype in _NUMPY_DTYPES:
        return np.frombuffer(array.data, _NUMPY_DTYPES[array.dtype])
    if array.dtype == "bfloat16":
        # the upper half of a float32
        words = np.frombuffer(array.data, np.uint16).astype(np.uint32)
        return (words << 16).view(np.float32)
    table = _make_fp8_table(*_EXPONENT_AND_MANTISSA_BITS[array.dtype])
    return table[np.frombuffer(array.data, np.uint8)]


@functools.cache
def _make_fp8_table(exponent_bits: int, mantissa_bits: int) -> Numbers:
    """Returns the value of each byte. e5m2 has infinities as IEEE has, e4m3 has only NaN."""
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
    return np.array(values)


def make_plain(value: Any) -> float | int | str:
    """Returns an element for JSON, which has no NaN and no infinities: these are `nan`, `inf` and `-inf`."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, int):
        return int(number)
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "nan"
    return "inf" if number > 0 else "-inf"


def find_index(offset: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the index of the element at an offset of the flat array."""
    return tuple(map(int, np.unravel_index(offset, shape)))


def find_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns how many elements apart two neighbours along each axis are."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
