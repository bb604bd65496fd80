"""When two computations of the same value agree: the one tolerance of diff, check and the reducer.

Two runs of one graph add the numbers of a reduce in another order, and each order rounds in its own way. The errors of
n roundings point up and down alike, so that their sum grows with the square root of n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmapdbg.values.numbers import EPSILON, Numbers

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


def make_tolerance(dtype: str, terms: int, *sides: ArrayLike) -> Tolerance:
    """Returns eps * (16 + 4 * sqrt(terms)) as the relative tolerance of a float dtype, eps its distance from 1 to the
    next number; the absolute one is 1 % of that times the largest finite element.

    Of several `sides` the one counts whose largest element is smallest: a wrong element that is huge would let others
    pass.
    """
    if dtype not in EPSILON:
        return Tolerance(terms, 0.0, 0.0)
    relative = EPSILON[dtype] * (_BASE + _DEVIATIONS * math.sqrt(max(terms, 0)))
    largest = min(map(_find_largest, sides), default=0.0)
    return Tolerance(terms, relative, relative * largest * _NEAR_ZERO)


def _find_largest(side: ArrayLike) -> float:
    numbers = np.asarray(side, dtype=np.float64)
    sizes = np.abs(numbers[np.isfinite(numbers)])
    return float(sizes.max(initial=0.0))


def widen(side: ArrayLike) -> Numbers:
    """Returns floats in double precision, so that no difference of two is rounded again; others as they are."""
    numbers = np.asarray(side)
    return numbers.astype(np.float64) if numbers.dtype.kind == "f" else numbers


def find_close(one: ArrayLike, other: ArrayLike, tolerance: Tolerance) -> NDArray[np.bool_]:
    """Returns for each pair of elements whether they agree; the arrays are broadcast against each other.

    NaN equals NaN, an infinity one of the same sign. Integers and bools must be equal.
    """
    left, right = widen(one), widen(other)
    same: Any = left == right
    if left.dtype.kind != "f" and right.dtype.kind != "f":
        return same
    # infinities less each other are NaN, which is not close to anything, as it should be
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.maximum(np.abs(left), np.abs(right))
        near = np.abs(left - right) <= tolerance.relative * sizes + tolerance.absolute
    near &= np.isfinite(sizes)
    both_nan = np.isnan(left) & np.isnan(right)
    return same | near | both_nan
