"""Says in what way an array is wrong: a lost range, a shift, zeros, a transposed read, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any

from vmapdbg.check.numbers import find_strides

Numbers = Sequence[Any]
Shape = tuple[int, ...]
Close = Callable[[float, float], bool]

LARGEST = 100_000
"""No pattern is looked for in an array with more elements."""


def find_pattern(ours: Numbers, theirs: Numbers, shape: Shape, places: Sequence[int], close: Close) -> str | None:
    """Returns a sentence about how `ours` comes from `theirs`, the right values; None where no pattern fits.

    `places` are those that differ. What explains every element comes first, then where the wrong ones are.
    """
    if not places or len(ours) > LARGEST:
        return None
    for describe in (_repeated, _one_value, _shifted, _swapped, _summed, _scaled):
        found = describe(ours, theirs, shape, close)
        if found is not None:
            return found
    return _where(ours, shape, places)


def _same(ours: Numbers, theirs: Iterable[float], close: Close) -> bool:
    return all(close(a, b) for a, b in zip(ours, theirs, strict=True))


def _one_value(ours: Numbers, theirs: Numbers, shape: Shape, close: Close) -> str | None:
    first = ours[0]
    if len(ours) < 2 or not all(x == first or (x != x and first != first) for x in ours):
        return None
    if first != first:
        return "every element is NaN"
    if first == 0:
        return "every element is zero"
    place = next((i for i, x in enumerate(theirs) if close(first, x)), None)
    if place is None:
        return "every element is the same number"
    which = "first" if place == 0 else "last" if close(first, theirs[-1]) else f"element {place}"
    return (
        f"every element is the {which}" if which in ("first", "last") else f"every element is {which} of the right ones"
    )


def _repeated(ours: Numbers, theirs: Numbers, shape: Shape, close: Close) -> str | None:
    """All slices along one axis are one of the right ones: a range that is lost."""
    for axis, size in enumerate(shape):
        if size < 2:
            continue
        for which in dict.fromkeys((size - 1, 0, *range(1, min(size, 64)))):
            if _same(ours, (theirs[i] for i in _take(shape, axis, lambda _, w=which: w)), close):
                name = "last" if which == size - 1 else "first" if which == 0 else f"number {which}"
                return f"along axis {axis} all {size} slices are the {name} one"
    return None


def _shifted(ours: Numbers, theirs: Numbers, shape: Shape, close: Close) -> str | None:
    """Slices along one axis are in another place: shifted (going around or not), or in reverse."""
    for axis, size in enumerate(shape):
        if size < 2:
            continue
        if size > 2 or len(shape) == 1:
            mirrored = (theirs[i] for i in _take(shape, axis, lambda k, n=size: n - 1 - k))
            if _same(ours, mirrored, close):
                return f"axis {axis} is reversed"
        for shift in _shifts(size):
            around = [theirs[i] for i in _take(shape, axis, lambda k, s=shift, n=size: (k + s) % n)]
            if _same(ours, around, close):
                return f"shifted by {_count(shift)} along axis {axis}, going around"
            inside = [i for i, k in enumerate(_coordinates(shape, axis)) if 0 <= k + shift < size]
            # a wider shift leaves too little to compare
            if abs(shift) <= size // 2 and all(close(ours[i], around[i]) for i in inside):
                return f"shifted by {_count(shift)} along axis {axis}"
    return None


def _shifts(size: int) -> list[int]:
    return [s for k in range(1, min(size // 2, 8) + 1) for s in (k, -k)]


def _count(shift: int) -> str:
    return f"{shift:+d}"


def _swapped(ours: Numbers, theirs: Numbers, shape: Shape, close: Close) -> str | None:
    """Read in the order of other axes."""
    for one, other in combinations([axis for axis, size in enumerate(shape) if size > 1], 2):
        order = list(range(len(shape)))
        order[one], order[other] = order[other], order[one]
        strides = find_strides(shape)
        moved = [sum(k * strides[a] for k, a in zip(index, order, strict=True))
                 for index in product(*[range(shape[a]) for a in order])]  # fmt: skip
        if _same(ours, (theirs[i] for i in moved), close):
            same = " (the order of the elements, in the same shape)" if shape[one] != shape[other] else ""
            return f"axes {one} and {other} are swapped{same}"
    return None


def _summed(ours: Numbers, theirs: Numbers, shape: Shape, close: Close) -> str | None:
    """Each slice is the sum of all of them: a range reduced that should stay."""
    for axis, size in enumerate(shape):
        if size < 2:
            continue
        totals: dict[int, float] = {}
        groups = list(_take(shape, axis, lambda _: 0))
        for group, value in zip(groups, theirs, strict=True):
            totals[group] = totals.get(group, 0) + value
        if _same(ours, (totals[group] for group in groups), close):
            return f"along axis {axis} each slice is the sum of all {size}"
    return None


def _scaled(ours: Numbers, theirs: Numbers, shape: Shape, close: Close) -> str | None:
    """A constant factor, or a constant difference."""
    if len(ours) < 3:
        return None
    place = max(range(len(theirs)), key=lambda i: abs(theirs[i]) if math.isfinite(theirs[i]) else -1)
    if not (math.isfinite(ours[place]) and theirs[place]):
        return None
    factor = ours[place] / theirs[place]
    if factor and factor != 1 and _same(ours, (x * factor for x in theirs), close):
        return f"every element is {factor:.6g} times the right one"
    offset = ours[place] - theirs[place]
    if offset and _same(ours, (x + offset for x in theirs), close):
        return f"every element is {offset:.6g} more than the right one"
    return None


def _where(ours: Numbers, shape: Shape, places: Sequence[int]) -> str | None:
    """Where the wrong elements are, and what they are, when that is simple."""
    if len(places) == len(ours):
        return None
    what = (
        "zero" if all(ours[i] == 0 for i in places) else "NaN" if all(ours[i] != ours[i] for i in places) else "wrong"
    )
    for axis, size in enumerate(shape):
        along = _coordinates(shape, axis)
        wrong = sorted({along[i] for i in places})
        if size < 2 or len(wrong) == size:
            continue
        if wrong == list(range(size - 1)) and size > 2:
            return f"along axis {axis} all slices but the last are {what}"
        if wrong[-1] - wrong[0] + 1 == len(wrong):
            name = f"slice {wrong[0]}" if len(wrong) == 1 else f"slices {wrong[0]} to {wrong[-1]}"
            is_last = " (the last)" if wrong == [size - 1] else ""
            return f"only in {name}{is_last} along axis {axis}{f', where it is {what}' if what != 'wrong' else ''}"
    return None if what == "wrong" else f"the wrong elements are all {what}"


def _take(shape: Shape, axis: int, source: Callable[[int], int]) -> Iterable[int]:
    """For each element in order, the place of the element whose coordinate along `axis` is `source` of its own."""
    stride = find_strides(shape)[axis]
    for place, k in enumerate(_coordinates(shape, axis)):
        yield place + (source(k) - k) * stride


def _coordinates(shape: Shape, axis: int) -> list[int]:
    """The coordinate along `axis` of each element in order."""
    stride = find_strides(shape)[axis]
    return [place // stride % shape[axis] for place in range(math.prod(shape))]
