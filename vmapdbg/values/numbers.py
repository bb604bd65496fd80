"""Arrays: the bytes of a buffer as numbers for each of tinygrad's dtypes, slices, and which elements agree."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmapdbg.values.tolerance import FLOAT_BITS, ITEMSIZE, Tolerance

Numbers = NDArray[Any]

_SIGNED = {"char": np.int8, "short": np.int16, "int": np.int32, "long": np.int64}
_UNSIGNED = {"uchar": np.uint8, "ushort": np.uint16, "uint": np.uint32, "ulong": np.uint64}
_FLOATS = {"half": np.float16, "float": np.float32, "double": np.float64}
# dtype -> numpy's dtype, if numpy has it
NUMPY_DTYPES: dict[str, type[np.generic]] = {"bool": np.bool_, **_SIGNED, **_UNSIGNED, **_FLOATS}


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
    """Returns the elements in one dimension, in the order of the bytes: bfloat16 as float32, fp8 as float64."""
    if array.dtype in NUMPY_DTYPES:
        return np.frombuffer(array.data, NUMPY_DTYPES[array.dtype])
    if array.dtype == "bfloat16":
        words = np.frombuffer(array.data, np.uint16).astype(np.uint32)  # the upper half of a float32
        return (words << 16).view(np.float32)
    table = _make_fp8_table(*FLOAT_BITS[array.dtype])
    return table[np.frombuffer(array.data, np.uint8)]


def encode(numbers: ArrayLike, dtype: str) -> Array:
    """Returns numbers in a dtype: floats round (ties to even), or become infinite (NaN in fp8e4m3); integers wrap."""
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
    # half of the last kept place, less one if that place is even: ties go to even
    rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    is_nan = (words & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, (words >> 16) | 0x40, rounded).astype(np.uint16)


def _encode_fp8(numbers: Numbers, dtype: str) -> Numbers:
    table = _make_fp8_table(*FLOAT_BITS[dtype])
    positive = table[:128]
    count = int(np.isfinite(positive).sum())
    # after the largest number comes the infinity of e5m2, the NaN of e4m3
    after = 2 * positive[count - 1] - positive[count - 2]
    edges = (positive[:count] + np.append(positive[1:count], after)) / 2
    sizes = np.abs(np.asarray(numbers, dtype=np.float64))
    codes = np.searchsorted(edges, sizes)
    # a number at an edge is as near to the next code: ties go to the even code
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


def wrap_integer(number: float, dtype: np.dtype[Any]) -> Numbers:
    """Returns an integer in numpy's integer dtype, wrapped around."""
    return np.array(int(number) % 2 ** (8 * dtype.itemsize), np.uint64).astype(dtype)


def find_index(offset: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the index of the element at an offset of the flat array."""
    return tuple(map(int, np.unravel_index(offset, shape)))


def view_elements(data: bytes, itemsize: int) -> Numbers:
    """Returns the elements of a buffer as they are, whatever their dtype means."""
    return np.frombuffer(data, f"V{itemsize}")


# *** agreement


def find_largest(side: ArrayLike) -> float:
    """Returns the size of the largest finite element, 0 if no element is finite."""
    numbers = np.asarray(side, dtype=np.float64)
    sizes = np.abs(numbers[np.isfinite(numbers)])
    return float(sizes.max(initial=0.0))


def widen(side: ArrayLike) -> Numbers:
    """Returns floats in double precision, so that no difference is rounded again; other numbers as they are."""
    numbers = np.asarray(side)
    return numbers.astype(np.float64) if numbers.dtype.kind == "f" else numbers


def find_close(one: ArrayLike, other: ArrayLike, tolerance: Tolerance) -> NDArray[np.bool_]:
    """Returns where two arrays, broadcast, agree: NaN with NaN, equal infinities; integers and bools only if equal."""
    left, right = widen(one), widen(other)
    same = np.asarray(left == right)
    if left.dtype.kind != "f" and right.dtype.kind != "f":
        return same
    # infinity - infinity is NaN, which is not close to anything
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.maximum(np.abs(left), np.abs(right))
        near = np.abs(left - right) <= tolerance.relative * sizes + tolerance.absolute
    near &= np.isfinite(sizes)
    both_nan = np.isnan(left) & np.isnan(right)
    return np.asarray(same | near | both_nan)


def measure_errors(one: ArrayLike, other: ArrayLike) -> tuple[float, float]:
    """Returns the largest difference of two elements, and its largest share of the larger element: NaN if a NaN is
    paired with a number, infinite if an infinity is."""
    left, right = widen(one), widen(other)
    unequal = ~((left == right) | (np.isnan(left) & np.isnan(right)))
    left, right = left[unequal], right[unequal]
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(left - right)
        sizes = np.maximum(np.abs(left), np.abs(right))
        shares = np.where(np.isfinite(errors), errors / sizes, errors)
    return float(errors.max(initial=0.0)), float(shares.max(initial=0.0))
