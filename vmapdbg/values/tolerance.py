"""When two computations of the same value agree: the one tolerance of diff, check and the reducer.

Two runs of one graph add the numbers of a reduce in another order, and each order rounds in its own way. The errors of
n roundings point up and down alike, so that their sum grows with the square root of n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# dtype -> distance from 1 to the next larger number. The names are those of repr(dtype), without "dtypes."
EPSILON = {
    "double": 2.0**-52,
    "float": 2.0**-23,
    "half": 2.0**-10,
    "bfloat16": 2.0**-7,
    "fp8e4m3": 2.0**-3,
    "fp8e5m2": 2.0**-2,
}
# dtype -> the smallest number above zero
SMALLEST = {
    "double": 2.0**-1074,
    "float": 2.0**-149,
    "half": 2.0**-24,
    "bfloat16": 2.0**-133,
    "fp8e4m3": 2.0**-9,
    "fp8e5m2": 2.0**-16,
}
# other names of the same dtypes, in other releases and in renderers
_SPELLINGS = {"float64": "double", "float32": "float", "float16": "half", "bfloat": "bfloat16", "__bf16": "bfloat16"}

# Roundings that no reduce accounts for: exp, log and their like are off by a few units in the last place, and each
# device has its own.
_BASE = 16
# Some of the roundings point the same way: this is how many standard deviations of their sum are let pass.
_DEVIATIONS = 4
# An element near zero is often what is left of larger ones: it may be off by a share of what these may.
_NEAR_ZERO = 0.01


@dataclass(frozen=True)
class Tolerance:
    """What two computations of the same float may differ by.

    `terms` is how many numbers are summed up on the longest way from an input to the value. An element may differ by
    `relative` times its size plus `absolute`. Both are 0 for integers and bools: they must be equal.
    """

    terms: int
    relative: float
    absolute: float


def spell_dtype(name: str) -> str:
    """Returns the name that this module has for a dtype."""
    return _SPELLINGS.get(name, name)


def is_float(dtype: str) -> bool:
    return dtype in EPSILON


def make_tolerance(dtype: str, terms: int, largest: float) -> Tolerance:
    """Returns eps * (16 + 4 * sqrt(terms)) as the relative tolerance of a float dtype, eps its distance from 1 to the
    next number; the absolute one is 1 % of that times the `largest` finite element of the array."""
    if not is_float(dtype):
        return Tolerance(terms, 0.0, 0.0)
    relative = EPSILON[dtype] * (_BASE + _DEVIATIONS * math.sqrt(max(terms, 0)))
    return Tolerance(terms, relative, relative * largest * _NEAR_ZERO)


def measure_rounding(dtype: str, count: float) -> float:
    """Returns what so many roundings to a dtype add to the variance of a value's relative error. It is that of one
    rounding of `count_terms`, with the dtype's own eps; 0 for integers and bools."""
    if not is_float(dtype):
        return 0.0
    return count * EPSILON[dtype] ** 2


def count_terms(dtype: str, variance: float) -> int:
    """Returns how many roundings to a dtype make up the variance of a value of this dtype, whose way from the inputs
    may have gone through coarser and finer dtypes: the `terms` of its tolerance."""
    if not is_float(dtype):
        return 0
    return math.ceil(variance / EPSILON[dtype] ** 2)
