"""How numbers of each dtype are carried in numpy, rounded, and turned into those of another.

half, bfloat16 and fp8 are carried in float32, which holds all their numbers, and rounded after each op: an op on
float32s that is rounded again gives what the op itself, rounded once, would give.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vmapdbg.reference.value import Mask
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import NUMPY_DTYPES, Array, Numbers, decode, encode, round_numbers
from vmapdbg.values.tolerance import is_float

_NARROW = {"half", "bfloat16", "fp8e4m3", "fp8e5m2"}
_CARRIERS = {**NUMPY_DTYPES, **dict.fromkeys(_NARROW, np.float32)}


def find_carrier(dtype: str) -> np.dtype[Any]:
    """Returns numpy's dtype that carries the numbers of a dtype."""
    return np.dtype(_CARRIERS[dtype])


def round_floats(numbers: Numbers, dtype: str) -> Numbers:
    """Returns floats as numbers of a float dtype, in its carrier."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype in _NARROW:
            return round_numbers(numbers, dtype).astype(np.float32, copy=False)
        return np.asarray(numbers, dtype=_CARRIERS[dtype])


def fit(number: float, dtype: str) -> float | Numbers:
    """Returns a constant that numpy takes for a dtype: integers are wrapped around."""
    if dtype == "bool" or find_carrier(dtype).kind == "f":
        return number
    bits = 8 * ITEMSIZE[dtype]
    return np.array(int(number) % 2**bits, np.uint64).astype(find_carrier(dtype))


def load(array: Array) -> Numbers:
    """Returns the contents of a buffer in the carrier of their dtype, in their shape."""
    return decode(array).astype(find_carrier(array.dtype), copy=False).reshape(array.shape)


def cast(numbers: Numbers, source: str, dtype: str) -> tuple[Numbers, Mask | None]:
    """Returns numbers as those of another dtype, and which of them C leaves undefined: a float that no integer of the
    dtype is near, a float beyond the largest fp8."""
    if dtype == "bool":
        return numbers != 0, None
    if is_float(dtype):
        rounded = round_floats(numbers, dtype)
        if not dtype.startswith("fp8"):
            return rounded, None
        # some devices make it the largest number
        return rounded, ~np.isfinite(rounded)
    carrier = find_carrier(dtype)
    if not is_float(source):
        return numbers.astype(carrier), None
    return _cut_fractions(numbers, carrier)


def _cut_fractions(numbers: Numbers, carrier: np.dtype[Any]) -> tuple[Numbers, Mask | None]:
    """Returns floats as integers, towards zero, and which of them are out of range."""
    limits = np.iinfo(carrier)
    with np.errstate(invalid="ignore", over="ignore"):
        cut = np.trunc(numbers.astype(np.float64))
        # the largest integer of 64 bits is no double, one more than it is
        fits = (cut >= float(limits.min)) & (cut < float(limits.max) + 1)
    whole = np.where(fits, cut, 0).astype(carrier)
    return whole, None if fits.all() else ~fits


def bitcast(numbers: Numbers, source: str, dtype: str) -> Numbers:
    """Returns the elements that the bytes of numbers are in another dtype; along the last axis there may be more or
    fewer of them."""
    stored = encode(numbers, source)
    shape = numbers.shape
    if shape:
        shape = (*shape[:-1], shape[-1] * ITEMSIZE[source] // ITEMSIZE[dtype])
    return load(Array(stored.data, dtype, shape))
