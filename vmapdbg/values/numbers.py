"""The bytes of a buffer as numbers, for each of tinygrad's dtypes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmapdbg.values.itemsize import ITEMSIZE

Numbers = NDArray[Any]

NUMPY_DTYPES = {
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
"""dtype -> numpy's. The names are those of repr(dtype), less "dtypes."."""
_EXPONENT_AND_MANTISSA_BITS = {"fp8e4m3": (4, 3), "fp8e5m2": (5, 2)}


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


def decode(array: Array) -> Numbers:
    """Returns the elements in one dimension, in the order of the bytes.

    numpy has neither bfloat16 nor fp8: these come as float32 and float64, which hold all their values.
    """
    if array.dtype in NUMPY_DTYPES:
        return np.frombuffer(array.data, NUMPY_DTYPES[array.dtype])
    if array.dtype == "bfloat16":
        # the upper half of a float32
        words = np.frombuffer(array.data, np.uint16).astype(np.uint32)
        return (words << 16).view(np.float32)
    table = _make_fp8_table(*_EXPONENT_AND_MANTISSA_BITS[array.dtype])
    return table[np.frombuffer(array.data, np.uint8)]


def encode(numbers: ArrayLike, dtype: str) -> Array:
    """Returns the bytes of numbers as elements of a dtype: floats rounded to the nearest one, ties to even.

    A float beyond the largest of half, bfloat16 or fp8e5m2 is an infinity, and a NaN in fp8e4m3, which has none.
    Integers wrap around.
    """
    given = np.asarray(numbers)
    if dtype in NUMPY_DTYPES:
        with np.errstate(over="ignore", invalid="ignore"):
            data = np.ascontiguousarray(given, dtype=NUMPY_DTYPES[dtype]).tobytes()
    elif dtype == "bfloat16":
        data = _encode_bfloat16(given).tobytes()
    else:
        data = _encode_fp8(given, dtype).tobytes()
    return Array(data, dtype, given.shape)


def round_numbers(numbers: ArrayLike, dtype: str) -> Numbers:
    """Returns floats rounded to a float dtype, in the numpy dtype that `decode` has for it."""
    rounded = encode(numbers, dtype)
    return decode(rounded).reshape(rounded.shape)


def _encode_bfloat16(numbers: Numbers) -> Numbers:
    """Returns the upper halves of float32s."""
    with np.errstate(over="ignore", invalid="ignore"):
        words = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
    # half of the last place that stays, less one where that place is even: ties go to even
    rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    is_nan = (words & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, (words >> 16) | 0x40, rounded).astype(np.uint16)


def _encode_fp8(numbers: Numbers, dtype: str) -> Numbers:
    table = _make_fp8_table(*_EXPONENT_AND_MANTISSA_BITS[dtype])
    positive = table[:128]
    count = int(np.isfinite(positive).sum())
    # what comes after the largest one is the infinity of e5m2, the NaN of e4m3
    after = 2 * positive[count - 1] - positive[count - 2]
    edges = (positive[:count] + np.append(positive[1:count], after)) / 2
    sizes = np.abs(np.asarray(numbers, dtype=np.float64))
    codes = np.searchsorted(edges, sizes)
    # a number at an edge is as near to the next one: the even one is taken
    codes += (sizes == edges[np.minimum(codes, count - 1)]) & (codes % 2 == 1)
    codes = np.where(np.isnan(sizes), 127, codes)
    return (codes + 128 * np.signbit(numbers)).astype(np.uint8)


@functools.cache
def _make_fp8_table(exponent_bits: int, mantissa_bits: int) -> Numbers:
    """Returns the value of each byte. e5m2 has infinities as IEEE has, e4m3 has only NaN."""
    bias, steps = 2 ** (exponent_bits - 1) - 1, 2**mantissa_bits
    exponent, mantissa = np.divmod(np.arange(128), steps)
    # with the exponent 0 a number has no leading 1, and the scale of the next exponent
    positive = np.ldexp((exponent > 0) + mantissa / steps, np.maximum(exponent, 1) - bias)
    positive[-1] = math.nan
    if exponent_bits == 5:
        positive[-steps:] = [math.inf, *[math.nan] * (steps - 1)]
    return np.concatenate([positive, -positive])


def make_plain(value: Any) -> float | int | str:
    """Returns an element for JSON, which has no NaN and no infinities: these are `nan`, `inf` and `-inf`."""
    number = np.asarray(value).item()
    if isinstance(number, int):
        return int(number)
    return number if math.isfinite(number) else str(number)


def find_index(offset: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the index of the element at an offset of the flat array."""
    return tuple(map(int, np.unravel_index(offset, shape)))


def find_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns how many elements apart two neighbours along each axis are."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
