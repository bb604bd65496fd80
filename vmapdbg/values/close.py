"""Which elements of two arrays agree within a tolerance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmapdbg.values.numbers import Numbers
from vmapdbg.values.tolerance import Tolerance


def find_largest(side: ArrayLike) -> float:
    """Returns the size of the largest finite element, 0 where there is none."""
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
    same = np.asarray(left == right)
    if left.dtype.kind != "f" and right.dtype.kind != "f":
        return same
    # infinities less each other are NaN, which is not close to anything, as it should be
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.maximum(np.abs(left), np.abs(right))
        near = np.abs(left - right) <= tolerance.relative * sizes + tolerance.absolute
    near &= np.isfinite(sizes)
    both_nan = np.isnan(left) & np.isnan(right)
    return np.asarray(same | near | both_nan)


def measure_errors(one: ArrayLike, other: ArrayLike) -> tuple[float, float]:
    """Returns by how much two arrays differ at most, and by what share of the larger of two elements.

    NaN where a NaN is beside a number, infinite where an infinity is.
    """
    left, right = widen(one), widen(other)
    unequal = ~((left == right) | (np.isnan(left) & np.isnan(right)))
    left, right = left[unequal], right[unequal]
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(left - right)
        sizes = np.maximum(np.abs(left), np.abs(right))
        shares = np.where(np.isfinite(errors), errors / sizes, errors)
    return float(errors.max(initial=0.0)), float(shares.max(initial=0.0))
