"""Compares two arrays element by element, and says in what way they differ.

Also brings the contents of a kernel's buffer into the shape of its node, and finds reads at wrong steps of a scope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

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

# How much further from the exact value than the expected value an element may be if both only round: the expected value
# may be near by luck.
_LUCK = 8
# The median element may move by any share of itself if sums cancel: this many relative tolerances count.
_MOST_SHARE = 4


def compare(got: Array, expected: Array, terms: int) -> Comparison:
    """Compares arrays of one shape and dtype. NaN equals NaN, and an infinity equals an infinity of the same sign."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise ValueError(f"{got.dtype} of shape {got.shape} cannot be compared with {expected.dtype} {expected.shape}")
    ours, theirs = decode(got), decode(expected)
    tolerance = make_tolerance(expected.dtype, terms, find_largest(theirs))
    return describe(ours, theirs, expected.shape, _find_wrong(ours, theirs, tolerance), tolerance)


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


def _find_wrong(ours: Numbers, theirs: Numbers, tolerance: Tolerance) -> NDArray[np.intp]:
    return np.flatnonzero(~find_close(ours, theirs, tolerance))


def _find_median(numbers: NDArray[np.float64]) -> float:
    """Returns the median of the finite numbers, 0.0 if there is none."""
    finite = numbers[np.isfinite(numbers)]
    return float(np.median(finite)) if finite.size else 0.0


def excuse_rounding(got: Array, expected: Array, found: Comparison, precise: Sequence[ArrayLike]) -> Comparison:
    """Compares again, allowing for the rounding of the computation itself.

    `precise` is the same array in double precision: first exact, then with each input and the result of each op moved
    by as much as its dtype rounds. An element may be away from the exact value by 8 times the distance of `expected`
    from it plus what the exact value moves, plus the tolerance. A few runs may hardly move some elements, by chance. So
    each element moves at least as far as the median element, and by at least the median share of its value, up to 4
    times the tolerance. An element of `got` that is not finite is wrong. If only `expected` is not finite, a step of
    its computation was too large for its dtype, and tinygrad may have rewritten the graph into one without that step.
    """
    ours, theirs = decode(got), decode(expected)
    offsets = _find_wrong(ours, theirs, found.tolerance)
    left, right = widen(ours[offsets]), widen(theirs[offsets])
    every, *others = (np.asarray(numbers, np.float64) for numbers in precise)
    # the difference of two infinities is NaN
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.fmax.reduce([np.abs(other - every) for other in others])
    known = np.isfinite(moved) & np.isfinite(every) & (every != 0)
    share = _find_median(moved[known] / np.abs(every[known]))
    share = min(share, _MOST_SHARE * found.tolerance.relative)
    exact = every[offsets]
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.fmax(moved[offsets], np.fmax(_find_median(moved), share * np.abs(exact)))
        luck = np.where(np.isfinite(right), np.abs(right - exact), 0)
        allowed = _LUCK * (luck + spread) + found.tolerance.relative * np.abs(exact)
        # what is smaller than any number of the dtype is zero
        allowed += SMALLEST.get(expected.dtype, 0.0)
        is_beyond = np.abs(left - exact) > allowed
    is_finite = np.isfinite(exact) & np.isfinite(left)
    again = describe(ours, theirs, expected.shape, offsets[is_beyond | ~is_finite], found.tolerance)
    return again if again.status == "wrong" else replace(again, status="rounding")


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
    pass made it, one for each dimension, the node's own axes last. `stored` has the ranges that were left when it was
    stored, with their sizes: tinygrad drops a dimension that the value does not depend on. Each step of a dropped
    dimension reads the same elements, here as well, so a lost range becomes visible.
    """
    itemsize = ITEMSIZE[right.dtype]
    sizes = tuple(size for _, size in stored)
    if len(data) != math.prod(sizes) * itemsize:
        return f"it holds {len(data) // itemsize} elements, its ranges have {math.prod(sizes)}"
    rank = len(right.shape) - len(ambient)
    keys = [*ambient, *closed[len(closed) - rank :]]
    wide = {r: size for r, size in stored if size > 1}
    fits = all(wide.get(key, size) == size for key, size in zip(keys, right.shape, strict=True))
    if None in wide or not fits or not set(wide) <= set(keys):
        if len(data) == len(right.data):
            return Array(data, right.dtype, right.shape)
        return "its dimensions are not those of its node"
    strides = {r: stride for (r, _), stride in zip(stored, find_strides(sizes), strict=True) if r in wide}
    steps = [strides.get(key, 0) for key in keys]
    # most buffers have the order of the node's axes
    if steps != [step * (size > 1) for step, size in zip(find_strides(right.shape), right.shape, strict=True)]:
        offsets = np.zeros((), np.intp)
        for step, size in zip(steps, right.shape, strict=True):
            offsets = offsets[..., None] + step * np.arange(size)
        data = view_elements(data, itemsize)[offsets].tobytes()
    return Array(data, right.dtype, right.shape)


# *** reads at wrong steps

MOST_COMPARED = 40_000_000
"""The most elements times steps that are compared: about a second, and two bytes for each."""


def find_steps_read(
    got: ArrayLike, right: ArrayLike, by_step: Sequence[ArrayLike], tolerance: Tolerance
) -> dict[int, int] | None:
    """Maps each step of a scope that read another step's part of a buffer to that step.

    `got` is the wrong value, `right` what it should be, and `by_step[j]` what it is if every step reads step j. None
    if no such reading gives `got`: a wrong element depends on several steps or on none, or the elements of one step
    were read at different steps.
    """
    if np.size(got) * len(by_step) > MOST_COMPARED:
        return None
    # one row a step, one column an element
    is_own = np.array([find_close(value, right, tolerance) for value in by_step])
    is_got = np.array([find_close(value, got, tolerance) for value in by_step])
    # the same for every read, or the result of many steps
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
