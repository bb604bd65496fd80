"""Compares two arrays element by element, and says in what way they differ.

Also brings the contents of a kernel's buffer into the shape of its node, and finds reads at wrong steps of a scope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmapdbg.check.patterns import find_pattern
from vmapdbg.check.result import Comparison
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import (
    Array,
    Numbers,
    decode,
    find_close,
    find_index,
    find_largest,
    find_strides,
    make_plain,
    view_elements,
    widen,
)
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


# *** buffers


def align(
    data: bytes,
    right: Array,
    stored: Sequence[tuple[int | None, int]],
    closed: Sequence[int | None],
    ambient: Sequence[int],
) -> Array | str:
    """Returns the buffer in the shape of `right`, or a sentence that says why that cannot be.

    `right` has the ambient ranges first, then the node's own axes. `closed` has the range ids of the BUFFERIZE as the
    pass made it, one for each dimension, the node's own axes last; `stored` those that were left when it was stored,
    with their sizes: tinygrad drops a dimension that the value does not depend on. Such a one is read as it is by every
    step, and so it is here: that is how a lost range becomes visible.
    """
    itemsize = ITEMSIZE[right.dtype]
    sizes = [size for _, size in stored]
    if len(data) != math.prod(sizes) * itemsize:
        return f"it holds {len(data) // itemsize} elements, its ranges have {math.prod(sizes)}"
    own = len(right.shape) - len(ambient)
    keys = [*ambient, *closed[len(closed) - own :]]
    wide: dict[int | None, int] = {r: size for r, size in stored if r is not None and size > 1}
    fits = all(wide.get(key, size) == size for key, size in zip(keys, right.shape, strict=True))
    unknown = any(r is None and size > 1 for r, size in stored)
    if unknown or not fits or not set(wide) <= set(keys):
        if len(data) == len(right.data):
            return Array(data, right.dtype, right.shape)
        return "its dimensions are not those of its node"
    return Array(read_dimensions(data, itemsize, stored, keys, right.shape), right.dtype, right.shape)


def read_dimensions(
    data: bytes, itemsize: int, stored: Sequence[tuple[Any, int]], names: Sequence[Any], shape: tuple[int, ...]
) -> bytes:
    """Returns the elements of a buffer in the order of other dimensions.

    Dimensions have names, the last one fastest: `stored` has (name, size) of each of the buffer's, `names` and `shape`
    are those of the result. One that the buffer does not have is read as it is by every step.
    """
    strides = find_strides(tuple(size for _, size in stored))
    known = {name: step for (name, size), step in zip(stored, strides, strict=True) if size > 1}
    steps = [known.get(name, 0) for name in names]
    # most buffers have the order that is asked for
    if steps == [step * (size > 1) for step, size in zip(find_strides(shape), shape, strict=True)]:
        return data
    offsets = np.zeros((), np.intp)
    for step, size in zip(steps, shape, strict=True):
        offsets = offsets[..., None] + step * np.arange(size)
    return view_elements(data, itemsize)[offsets].tobytes()


# *** reads at wrong steps

MOST_COMPARED = 40_000_000
"""The most comparisons that are made: of each element at each step. About a second of them, and two bytes for each."""


def find_steps_read(
    got: ArrayLike, right: ArrayLike, by_step: Sequence[ArrayLike], tolerance: Tolerance
) -> dict[int, int] | None:
    """Returns which step of a buffer each step of its scope read, for those that read another one's than their own.

    `got` is the wrong value, `right` what it should be, and `by_step[j]` what it is where every step reads step j. None
    where no such reading gives `got`: where a wrong element is not that of one step alone, where it is that of no
    step, or where the elements of one step were read at different ones.
    """
    if np.size(got) * len(by_step) > MOST_COMPARED:
        return None
    # one row a step, one column an element
    is_own = np.array([find_close(value, right, tolerance) for value in by_step])
    is_got = np.array([find_close(value, got, tolerance) for value in by_step])
    # the same whatever is read, or made of many steps
    of_one_step = is_own.sum(axis=0) == 1
    is_right = np.asarray(find_close(got, right, tolerance))
    if not is_right[~of_one_step].all():
        return None
    own = is_own.argmax(axis=0)
    wrong: dict[int, int] = {}
    for step in np.unique(own[of_one_step]):
        fits_all = np.asarray(is_got[:, of_one_step & (own == step)].all(axis=1))
        found = np.flatnonzero(fits_all)
        if not found.size:
            return None
        if not fits_all[step]:
            wrong[int(step)] = int(found[0])
    return wrong or None
