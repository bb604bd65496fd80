"""Compares arrays by element; finds how a wrong one follows from the right one: lost range, shift, zeros, transpose."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmapdbg.check.result import Comparison, Filling, Pattern
from vmapdbg.values.numbers import Array, Numbers, decode, find_close, find_index, find_largest, make_plain, widen
from vmapdbg.values.tolerance import EPSILON, SMALLEST, Tolerance, make_tolerance

# An element may be so many times further from the exact value than the expected value, which may be near by luck. Of
# fp8, a rounding is up to an eighth of the value: eight of them would excuse everything.
_LUCK, _LUCK_FP8 = 8, 2
# The median element may move by any share of itself if sums cancel: this many relative tolerances count.
_MOST_SHARE = 4
_LARGEST = 10_000_000
"""The most elements of an array in which a pattern is looked for: each element takes about a hundred bytes."""
_MOST_SLICES = 64
_MOST_SHIFT = 8
# A pattern is tried on so many elements before it is tried on all: nearly all wrong patterns end there.
_SAMPLED = 1000

Shape = tuple[int, ...]


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
        status = "equal" if np.array_equal(ours, theirs, equal_nan=True) else "close"
        return Comparison(status, theirs.size, 0, None, None, None, None, tolerance)
    first = int(offsets[0])
    index, got, expected = find_index(first, shape), make_plain(ours[first]), make_plain(theirs[first])
    pattern = find_pattern(ours, theirs, shape, offsets, tolerance)
    return Comparison("wrong", theirs.size, offsets.size, index, got, expected, None, tolerance, pattern)


def _find_wrong(ours: Numbers, theirs: Numbers, tolerance: Tolerance) -> NDArray[np.intp]:
    return np.flatnonzero(~find_close(ours, theirs, tolerance))


def _find_median(numbers: NDArray[np.float64]) -> float:
    finite = numbers[np.isfinite(numbers)]
    return 0.0 if not finite.size else float(np.median(finite))


def excuse_rounding(got: Array, expected: Array, found: Comparison, precise: Sequence[ArrayLike]) -> Comparison:
    """Compares again, allowing for the rounding of the computation itself.

    `precise` is the array in double precision: first exact, then, if needed, with each input and each op's result moved
    by as much as its dtype rounds. An element may be away from the exact value by 8 times the distance of `expected`
    from it, plus what the exact value moves, plus the tolerance. A few runs may hardly move some elements, by chance:
    each moves at least as far as the median element and the median share of its value, up to 4 times the tolerance.
    An element of `got` that is not finite is wrong; if only `expected` is not finite, a step was too large for its
    dtype, and tinygrad may have rewritten the graph into one without that step."""
    ours, theirs = decode(got), decode(expected)
    offsets, is_fp8 = _find_wrong(ours, theirs, found.tolerance), expected.dtype.startswith("fp8")
    left, right = widen(ours[offsets]), widen(theirs[offsets])
    every, *others = (np.asarray(numbers, np.float64) for numbers in precise)
    # the difference of two infinities is NaN
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.fmax.reduce([np.abs(other - every) for other in others or [every]])
    known = np.isfinite(moved) & np.isfinite(every) & (every != 0)
    share = _find_median(moved[known] / np.abs(every[known]))
    share = min(share, _MOST_SHARE * found.tolerance.relative)
    exact = every[offsets]
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.fmax(moved[offsets], np.fmax(_find_median(moved), share * np.abs(exact)))
        luck = np.where(np.isfinite(right), np.abs(right - exact), 0)
        allowed = (_LUCK_FP8 if is_fp8 else _LUCK) * (luck + spread) + found.tolerance.relative * np.abs(exact)
        # what is smaller than any number of the dtype is zero; of fp8, tinygrad has no subnormal numbers
        small = SMALLEST.get(expected.dtype, 0.0)
        allowed += small / EPSILON[expected.dtype] if is_fp8 else small
        is_beyond = np.abs(left - exact) > allowed
    is_finite = np.isfinite(exact) & np.isfinite(left)
    again = describe(ours, theirs, expected.shape, offsets[is_beyond | ~is_finite], found.tolerance)
    return again if again.status == "wrong" else replace(again, status="rounding")


# *** patterns


def find_pattern(
    ours: Numbers, theirs: Numbers, shape: Shape, offsets: NDArray[np.intp], tolerance: Tolerance
) -> Pattern | None:
    """Returns how `ours` follows from `theirs`, the right values, both flat; None if no pattern fits. Patterns that
    explain all elements come first, then the place of the wrong ones, at `offsets`. Integers wrap as in a kernel."""
    if not offsets.size or ours.size > _LARGEST:
        return None
    arrays = _Arrays(_make_addable(ours), _make_addable(theirs), shape, offsets, tolerance)
    finders = (_find_repeated, _find_constant, _find_moved, _find_swapped, _find_summed)
    return next(chain.from_iterable(find(arrays) for find in finders), None) or _find_where(arrays)


def _make_addable(numbers: Numbers) -> Numbers:
    """Floats in double precision; bools as numbers, so that a sum of them counts."""
    wider = {"f": np.float64, "b": np.int64}.get(numbers.dtype.kind)
    return numbers.astype(wider or numbers.dtype, copy=False)


class _Arrays:
    """The wrong and the right values, and some offsets to try a pattern on."""

    def __init__(self, ours: Numbers, theirs: Numbers, shape: Shape, offsets: NDArray[np.intp], tolerance: Tolerance):
        self.ours, self.theirs, self.shape, self.offsets, self.tolerance = ours, theirs, shape, offsets, tolerance
        every = np.arange(ours.size)
        # with wrong elements: if most elements are right, a pattern that explains nothing fits nearly everywhere
        self.sample = np.concatenate([_spread(offsets), _spread(every)])

    def split(self, axis: int) -> tuple[Numbers, Numbers]:
        """Returns both arrays with the axis in the middle of three."""
        return _split(self.ours, self.shape, axis), _split(self.theirs, self.shape, axis)

    def wide_axes(self) -> list[int]:
        return [axis for axis, size in enumerate(self.shape) if size > 1]

    def agree(self, ours: Numbers, theirs: Numbers) -> bool:
        """Returns whether all elements of two arrays of one shape agree; a sample is tried first."""
        where = np.unravel_index(self.sample % ours.size, ours.shape)
        pairs = ((ours[where], theirs[where]), (ours, theirs))
        return all(find_close(*pair, self.tolerance).all() for pair in pairs)

    def fits(self, candidate: Numbers) -> bool:
        """Returns whether `ours` has the values of an array of any shape, in its order."""
        return self.agree(self.ours.reshape(candidate.shape), candidate)


def _split(numbers: Numbers, shape: Shape, axis: int) -> Numbers:
    """Returns a flat array in three dimensions: before the axis, the axis, after it."""
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return numbers.reshape(before, shape[axis], after)


def _spread(offsets: NDArray[np.intp]) -> NDArray[np.intp]:
    """Returns some of the offsets, from everywhere. Equal steps meet the same index of an axis if its size divides
    them; steps of the golden ratio do not."""
    if offsets.size <= _SAMPLED:
        return offsets
    fractions = np.arange(_SAMPLED) * (math.sqrt(5) - 1) / 2 % 1
    return offsets[(fractions * offsets.size).astype(np.intp)]


def _find_repeated(arrays: _Arrays) -> Iterator[Pattern]:
    """Finds one right slice repeated along an axis: a lost range."""
    for axis in arrays.wide_axes():
        size = arrays.shape[axis]
        ours, theirs = arrays.split(axis)
        # the last slice first: a lost range leaves the last iteration
        for number in dict.fromkeys((size - 1, 0, *range(1, min(size, _MOST_SLICES)))):
            if arrays.fits(np.broadcast_to(theirs[:, number : number + 1], ours.shape)):
                yield Pattern("repeated", axis=axis, size=size, first=number)


def _find_constant(arrays: _Arrays) -> Iterator[Pattern]:
    ours, theirs = arrays.ours, arrays.theirs
    if ours.size < 2:
        return
    filled = _find_filling(ours)
    if filled is not None:
        yield Pattern("constant", filled=filled)
        return
    if not (ours == ours[0]).all():
        return
    found = np.flatnonzero(find_close(theirs, ours[0], arrays.tolerance))
    first: int | None = None
    if found.size:
        first = int(found[0])
        if first != 0 and found[-1] == ours.size - 1:
            first = ours.size - 1
    yield Pattern("constant", size=ours.size, first=first)


def _find_moved(arrays: _Arrays) -> Iterator[Pattern]:
    """Finds slices along an axis in another order: in reverse, or shifted (going around or not)."""
    for axis in arrays.wide_axes():
        size = arrays.shape[axis]
        ours, theirs = arrays.split(axis)
        if (size > 2 or len(arrays.shape) == 1) and arrays.fits(theirs[:, ::-1]):
            yield Pattern("reversed", axis=axis)
        # a shift by more than half of the axis would leave too little to compare
        for distance in range(1, min(size // 2, _MOST_SHIFT) + 1):
            first, last = slice(None, -distance), slice(distance, None)
            for shift, at, read in ((distance, first, last), (-distance, last, first)):
                if not arrays.agree(ours[:, at], theirs[:, read]):
                    continue
                goes_around = arrays.fits(np.roll(theirs, -shift, axis=1))
                yield Pattern("rotated" if goes_around else "shifted", axis=axis, shift=shift)


def _find_swapped(arrays: _Arrays) -> Iterator[Pattern]:
    """Finds elements in the order of other axes."""
    shape = arrays.shape
    for one, other in combinations(arrays.wide_axes(), 2):
        if arrays.fits(arrays.theirs.reshape(shape).swapaxes(one, other)):
            yield Pattern("swapped", axis=one, other_axis=other, same_size=shape[one] == shape[other])


def _find_summed(arrays: _Arrays) -> Iterator[Pattern]:
    """Finds slices that are each the sum of all: a range that should stay is reduced."""
    for axis in arrays.wide_axes():
        ours, theirs = arrays.split(axis)
        with np.errstate(invalid="ignore", over="ignore"):
            totals = theirs.sum(axis=1, keepdims=True, dtype=theirs.dtype)
        if arrays.fits(np.broadcast_to(totals, ours.shape)):
            yield Pattern("summed", axis=axis, size=arrays.shape[axis])


def _find_where(arrays: _Arrays) -> Pattern | None:
    """Returns where the wrong elements are and their value, if that is simple."""
    ours, offsets = arrays.ours, arrays.offsets
    if offsets.size == ours.size:
        return None
    filled = _find_filling(ours[offsets])
    is_wrong = np.zeros(ours.size, bool)
    is_wrong[offsets] = True
    for axis in arrays.wide_axes():
        size = arrays.shape[axis]
        wrong = np.flatnonzero(_split(is_wrong, arrays.shape, axis).any(axis=(0, 2)))
        first, last = int(wrong[0]), int(wrong[-1])
        if wrong.size == size or wrong.size != last - first + 1:
            continue
        is_all_but_last = first == 0 and last == size - 2 and size > 2
        rule = "all-but-last" if is_all_but_last else "slices"
        return Pattern(rule, axis=axis, size=size, first=first, last=last, filled=filled)
    return None if filled is None else Pattern("filled", filled=filled)


def _find_filling(wrong: Numbers) -> Filling | None:
    if (wrong == 0).all():
        return "zero"
    return "nan" if (wrong != wrong).all() else None
