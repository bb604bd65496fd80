"""Compares two arrays element by element, and says in what way they differ."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmapdbg.check.patterns import find_pattern
from vmapdbg.check.result import Comparison
from vmapdbg.values.close import find_close, find_largest, widen
from vmapdbg.values.numbers import Array, Numbers, decode, find_index, make_plain
from vmapdbg.values.tolerance import SMALLEST, Tolerance, make_tolerance


@dataclass(frozen=True)
class Rounding:
    """The same array computed in double precision, `exact`, and how far that moves when each input and each op's result
    is moved by as much as its dtype rounds, `spread`.
    """

    exact: ArrayLike
    spread: ArrayLike


# How much further than the expected value the one that was got may be from the exact one, where both only round: the
# expected one may be near by luck.
_LUCK = 8
# In an array of numbers that come of others by cancelling, the middle one may move by any share of itself: what a large
# one beside it may move is bounded, in relative tolerances.
_MOST_SHARE = 4


def compare(got: Array, expected: Array, terms: int) -> Comparison:
    """Compares arrays of one shape and dtype. NaN equals NaN at the same index, an infinity one of the same sign."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise ValueError(f"{got.dtype} of shape {got.shape} cannot be compared with {expected.dtype} {expected.shape}")
    ours, theirs = decode(got), decode(expected)
    tolerance = make_tolerance(expected.dtype, terms, find_largest(theirs))
    offsets = find_wrong(ours, theirs, tolerance)
    return describe(ours, theirs, expected.shape, offsets, tolerance)


def describe(
    ours: Numbers, theirs: Numbers, shape: tuple[int, ...], offsets: NDArray[np.intp], tolerance: Tolerance
) -> Comparison:
    """Returns the comparison of two flat arrays whose elements at `offsets` differ."""
    if not offsets.size:
        same = np.array_equal(ours, theirs, equal_nan=True)
        return Comparison("equal" if same else "close", theirs.size, 0, None, None, None, None, tolerance)
    first = int(offsets[0])
    return Comparison(
        status="wrong",
        total=theirs.size,
        wrong=offsets.size,
        index=find_index(first, shape),
        got=make_plain(ours[first]),
        expected=make_plain(theirs[first]),
        pattern=None,
        tolerance=tolerance,
        pattern_data=find_pattern(ours, theirs, shape, offsets, tolerance),
    )


def find_wrong(ours: ArrayLike, theirs: ArrayLike, tolerance: Tolerance) -> NDArray[np.intp]:
    """Returns the offsets of the elements that differ by more than the tolerance."""
    return np.flatnonzero(~find_close(ours, theirs, tolerance))


def find_middle(numbers: NDArray[np.float64]) -> float:
    """Returns the median of the finite numbers, 0.0 where there are none."""
    finite = numbers[np.isfinite(numbers)]
    return float(np.median(finite)) if finite.size else 0.0


def find_middle_share(moved: NDArray[np.float64], exact: NDArray[np.float64]) -> float:
    """Returns the median of what each number moves, as a share of it; 0.0 where there is none."""
    known = np.isfinite(moved) & np.isfinite(exact) & (exact != 0)
    return find_middle(moved[known] / np.abs(exact[known]))


def excuse_rounding(got: Array, expected: Array, found: Comparison, rounding: Rounding) -> Comparison:
    """Compares again, allowing for the rounding of the computation itself.

    An element is put down to rounding where it is no further from the `exact` value than 8 times what `expected` is
    from it plus what the exact value moves, plus the tolerance. A few runs may move one element of many hardly at all,
    by chance: each is taken to move at least as far as the middle one, and by at least the share of its value that the
    middle one does, up to 4 times the tolerance. What is got and is not finite is not excused;
    where only `expected` is not, a step on the way to it was too large for its dtype, and tinygrad may have rewritten
    the graph into one without that step.
    """
    ours, theirs = decode(got), decode(expected)
    offsets = find_wrong(ours, theirs, found.tolerance)
    left, right = widen(ours[offsets]), widen(theirs[offsets])
    exact, moved = np.asarray(rounding.exact)[offsets], np.asarray(rounding.spread)
    share = min(find_middle_share(moved, np.asarray(rounding.exact)), _MOST_SHARE * found.tolerance.relative)
    spread = np.fmax(moved[offsets], np.fmax(find_middle(moved), share * np.abs(exact)))
    # what is not finite is put aside first, and what is infinite less another is NaN
    with np.errstate(invalid="ignore", over="ignore"):
        luck = np.where(np.isfinite(right), np.abs(right - exact), 0)
        allowed = _LUCK * (luck + spread) + found.tolerance.relative * np.abs(exact)
        # what is smaller than any number of the dtype is zero
        allowed += SMALLEST.get(expected.dtype, 0.0)
        is_beyond = np.abs(left - exact) > allowed
    is_finite = np.isfinite(exact) & np.isfinite(left)
    again = describe(ours, theirs, expected.shape, offsets[is_beyond | ~is_finite], found.tolerance)
    if again.status == "wrong":
        return again
    return replace(again, status="rounding")
