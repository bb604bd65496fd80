"""Arithmetic on elements: how numpy carries and rounds the numbers of each dtype, what each op gives, and what C leaves
undefined.

half, bfloat16 and fp8 are carried in float32, which holds all their numbers, and rounded after each op: an op on
float32 that is rounded again gives what the op itself, rounded once, would give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vmapdbg.reference.value import Mask
from vmapdbg.values.numbers import NUMPY_DTYPES, Array, Numbers, decode, encode, round_numbers
from vmapdbg.values.tolerance import ITEMSIZE, is_float

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
    """Returns a constant as numpy needs it for a dtype: integers wrap around."""
    if dtype == "bool" or find_carrier(dtype).kind == "f":
        return number
    bits = 8 * ITEMSIZE[dtype]
    return np.array(int(number) % 2**bits, np.uint64).astype(find_carrier(dtype))


def load(array: Array) -> Numbers:
    """Returns the contents of a buffer in the carrier of their dtype, in their shape."""
    return decode(array).astype(find_carrier(array.dtype), copy=False).reshape(array.shape)


def cast(numbers: Numbers, source: str, dtype: str) -> tuple[Numbers, Mask | None]:
    """Casts numbers to another dtype, and returns which of the results C leaves undefined: a float out of the range of
    the integers, or beyond the largest fp8."""
    if dtype == "bool":
        return numbers != 0, None
    if is_float(dtype):
        rounded = round_floats(numbers, dtype)
        if not dtype.startswith("fp8"):
            return rounded, None
        # some devices return the largest number instead
        return rounded, ~np.isfinite(rounded)
    carrier = find_carrier(dtype)
    if not is_float(source):
        return numbers.astype(carrier), None
    return _cut_fractions(numbers, carrier)


def _cut_fractions(numbers: Numbers, carrier: np.dtype[Any]) -> tuple[Numbers, Mask | None]:
    """Rounds floats to integers, towards zero, and returns which of them are out of range."""
    limits = np.iinfo(carrier)
    with np.errstate(invalid="ignore", over="ignore"):
        cut = np.trunc(numbers.astype(np.float64))
        # the largest integer of 64 bits is no double, but the number after it is
        fits = (cut >= float(limits.min)) & (cut < float(limits.max) + 1)
    whole = np.where(fits, cut, 0).astype(carrier)
    return whole, None if fits.all() else ~fits


def bitcast(numbers: Numbers, source: str, dtype: str) -> Numbers:
    """Reads the bytes of numbers as another dtype; the last axis may get more or fewer elements."""
    stored = encode(numbers, source)
    shape = numbers.shape
    if shape:
        shape = (*shape[:-1], shape[-1] * ITEMSIZE[source] // ITEMSIZE[dtype])
    return load(Array(stored.data, dtype, shape))


Found = tuple[Numbers, Mask | None]


def _divide_towards_zero(x: Numbers, y: Numbers) -> Numbers:
    quotient, rest = np.divmod(x, y)
    # numpy rounds down
    return quotient + ((rest != 0) & ((x < 0) != (y < 0)))


def _by_divisor(divide: Callable[..., Numbers]) -> Callable[[Numbers, Numbers], Found]:
    """Returns a division that also says which quotients are undefined."""

    def compute(x: Numbers, y: Numbers) -> Found:
        undefined = _find_no_quotient(x, y)
        return divide(x, np.where(undefined, 1, y)), undefined

    return compute


def _find_no_quotient(x: Numbers, y: Numbers) -> Mask:
    """Returns where a quotient is undefined: the divisor is zero, or it is the smallest integer divided by -1."""
    by_zero = y == 0
    if x.dtype.kind != "i":
        return np.broadcast_to(by_zero, np.broadcast_shapes(x.shape, y.shape))
    return by_zero | ((x == np.iinfo(x.dtype).min) & (y == -1))


def _by_distance(shift: Callable[..., Numbers]) -> Callable[[Numbers, Numbers], Found]:
    """Returns a shift that also says which results are undefined: the distance is negative or too large."""

    def compute(x: Numbers, y: Numbers) -> Found:
        is_wrong = (y < 0) | (y >= 8 * x.dtype.itemsize)
        undefined = np.broadcast_to(is_wrong, np.broadcast_shapes(x.shape, y.shape))
        return shift(x, np.where(undefined, 0, y).astype(x.dtype)), undefined

    return compute


def _power(x: Numbers, y: Numbers) -> Found:
    if x.dtype.kind == "f":
        return np.power(x, y), None
    undefined = np.broadcast_to(y < 0, np.broadcast_shapes(x.shape, y.shape))
    return np.power(x, np.where(undefined, 0, y)), undefined


def _maximum(x: Numbers, y: Numbers) -> Found:
    largest = np.maximum(x, y)
    if x.dtype.kind != "f":
        return largest, None
    # if one of the two is NaN the result differs from device to device
    return largest, np.isnan(largest)


def _logarithm(x: Numbers) -> Found:
    found = np.log2(x)
    if not np.signbit(x).any():
        return found, None
    # tinygrad's own logarithm recognizes -0.0 by its reciprocal, and also takes a tiny negative number for -0.0: it
    # returns minus infinity, and other implementations NaN
    return found, np.isneginf(np.reciprocal(x)) & (x != 0)


def threefry(x: Numbers, key: Numbers) -> Numbers:
    """Threefry2x32 with 20 rounds, on the two halves of 64 bits, the low half first."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x = x.astype(np.uint64)
    first, second = x & low, x >> half
    key_first, key_second = key.astype(np.uint64) & low, key.astype(np.uint64) >> half
    keys = [key_second, key_first ^ key_second ^ np.uint64(0x1BD11BDA), key_first]
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    first, second = (first + keys[2]) & low, (second + keys[0]) & low
    for group in range(5):
        for rotation in rotations[group % 2]:
            first = (first + second) & low
            turned = (second << np.uint64(rotation)) | (second >> np.uint64(32 - rotation))
            second = first ^ (turned & low)
        first = (first + keys[group % 3]) & low
        second = (second + keys[(group + 1) % 3] + np.uint64(group + 1)) & low
    return first | (second << half)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": lambda x, y: x ^ y if x.dtype.kind == "b" else np.subtract(x, y),
    "mul": np.multiply,
    "max": _maximum,
    "lt": np.less,
    "ne": np.not_equal,
    "eq": np.equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _by_distance(np.left_shift),
    "shr": _by_distance(np.right_shift),
    "cdiv": _by_divisor(_divide_towards_zero),
    "cmod": _by_divisor(np.fmod),
    "floordiv": _by_divisor(np.floor_divide),
    "floormod": _by_divisor(np.mod),
    "fdiv": np.divide,
    "pow": _power,
    "neg": lambda x: ~x if x.dtype.kind == "b" else np.negative(x),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "exp2": np.exp2,
    "log2": _logarithm,
    "reciprocal": np.reciprocal,
    "trunc": np.trunc,
    "where": np.where,
    "mulacc": lambda x, y, z: x * y + z,
    "threefry": threefry,
}
"""Op -> its function on arrays of one carrier. Some also return which of the results are undefined."""

ROUNDED = frozenset({"add", "sub", "mul", "fdiv", "pow", "sqrt", "sin", "exp2", "log2", "reciprocal", "mulacc"})
"""Ops whose exact result is rounded if it is a float."""

OF_FLOATS = frozenset({"sqrt", "sin", "exp2", "log2", "reciprocal"})
"""Ops that are computed in the dtype of their result: from 0.14 on their operands may be integers."""


ALGEBRA = frozenset({"add", "sub", "mul", "fdiv"})
"""Ops that tinygrad simplifies as if there was no infinity: `x * 0` to 0, and `x / x` to 1."""


def compute(op: str, operands: list[Numbers]) -> Found:
    """Computes an op on arrays that can be broadcast against each other. If an op of ALGEBRA gives NaN for operands
    that are not NaN, as for infinity times zero, the result is undefined: tinygrad may return a number."""
    said: list[str] = []
    on_invalid = "call" if op in ALGEBRA else "ignore"
    with np.errstate(all="ignore", invalid=on_invalid, call=lambda text, _: said.append(text)):
        found = FUNCTIONS[op](*operands)
    result, undefined = found if isinstance(found, tuple) else (found, None)
    if said:
        undefined = np.isnan(result)
        for operand in operands:
            undefined = undefined & ~np.isnan(operand)
    return result, undefined
