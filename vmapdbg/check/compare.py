"""Compares two arrays element by element, within a tolerance that grows with the length of the reduces behind them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vmapdbg.check.numbers import EPSILON, Array, Numbers, decode, find_index
from vmapdbg.check.patterns import find_pattern


@dataclass(frozen=True)
class Tolerance:
    """What two computations of the same float may differ by.

    `terms` is how many numbers are summed up on the longest way from an input to the value. An element may differ by
    `relative` times its size plus `absolute`. Both are 0 for integers and bools: they must be equal.
    """

    terms: int
    relative: float
    absolute: float


@dataclass(frozen=True)
class Comparison:
    """What came of comparing one array.

    `status` is `equal` (to the bit, or the same numbers), `close` (within the tolerance), `rounding` (beyond it, but no
    further than the computation's own rounding, measured in double precision) or `wrong`. `wrong` counts the elements
    beyond the tolerance of the `total`. `index`, `got` and `expected` are those of the first wrong one.
    """

    status: str
    total: int
    wrong: int
    index: tuple[int, ...] | None
    got: float | int | str | None
    expected: float | int | str | None
    pattern: str | None
    tolerance: Tolerance


@dataclass(frozen=True)
class Rounding:
    """The same array computed in double precision, `exact`, and how far that moves when each input and each op's result
    is moved by as much as its dtype rounds, `spread`.
    """

    exact: Numbers
    spread: Numbers


def make_tolerance(dtype: str, terms: int, expected: Numbers) -> Tolerance:
    """Returns eps * (16 + 4 * sqrt(terms)) as the relative tolerance of a float dtype, eps its distance from 1 to the
    next number; the absolute one is 1 % of that times the largest finite element."""
    if dtype not in EPSILON:
        return Tolerance(terms, 0.0, 0.0)
    relative = EPSILON[dtype] * (16 + 4 * math.sqrt(max(terms, 0)))
    largest = max((abs(x) for x in expected if math.isfinite(x)), default=0.0)
    return Tolerance(terms, relative, relative * largest / 100)


def compare(got: Array, expected: Array, terms: int) -> Comparison:
    """Compares arrays of one shape and dtype. NaN equals NaN at the same place, an infinity one of the same sign."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise ValueError(f"{got.dtype} of shape {got.shape} cannot be compared with {expected.dtype} {expected.shape}")
    ours, theirs = decode(got), decode(expected)
    tolerance = make_tolerance(expected.dtype, terms, theirs)
    places = [] if got.data == expected.data else find_wrong(ours, theirs, tolerance)
    return describe(ours, theirs, expected.shape, places, tolerance)


def describe(
    ours: Numbers, theirs: Numbers, shape: tuple[int, ...], places: list[int], tolerance: Tolerance
) -> Comparison:
    """Returns the comparison of two arrays whose elements differ at `places`."""
    total = len(theirs)
    if not places:
        same = all(a == b or (a != a and b != b) for a, b in zip(ours, theirs, strict=True))
        return Comparison("equal" if same else "close", total, 0, None, None, None, None, tolerance)
    first = places[0]
    return Comparison(
        status="wrong",
        total=total,
        wrong=len(places),
        index=find_index(first, shape),
        got=_plain(ours[first]),
        expected=_plain(theirs[first]),
        pattern=find_pattern(ours, theirs, shape, places, lambda a, b: is_close(a, b, tolerance)),
        tolerance=tolerance,
    )


def find_wrong(ours: Numbers, theirs: Numbers, tolerance: Tolerance) -> list[int]:
    """Returns the places at which the elements differ by more than the tolerance."""
    pairs = zip(ours, theirs, strict=True)
    return [i for i, (a, b) in enumerate(pairs) if a != b and not is_close(a, b, tolerance)]


def is_close(one: float, other: float, tolerance: Tolerance) -> bool:
    if one == other or (one != one and other != other):
        return True
    if not (math.isfinite(one) and math.isfinite(other)):
        return False
    return abs(one - other) <= tolerance.relative * max(abs(one), abs(other)) + tolerance.absolute


def excuse_rounding(got: Array, expected: Array, found: Comparison, rounding: Rounding) -> Comparison:
    """Compares again, allowing for the rounding of the computation itself.

    An element is put down to rounding where it is no further from the `exact` value than 8 times what `expected` is
    from it plus what the exact value moves, plus the tolerance. What is not finite is not excused.
    """
    ours, theirs = decode(got), decode(expected)
    places = []
    for i in find_wrong(ours, theirs, found.tolerance):
        exact, spread = rounding.exact[i], rounding.spread[i]
        finite = math.isfinite(exact) and math.isfinite(ours[i]) and math.isfinite(theirs[i])
        allowed = 8 * (abs(theirs[i] - exact) + spread) + found.tolerance.relative * abs(exact)
        if not finite or abs(ours[i] - exact) > allowed:
            places.append(i)
    again = describe(ours, theirs, expected.shape, places, found.tolerance)
    if again.status != "wrong":
        return Comparison("rounding", again.total, 0, None, None, None, None, found.tolerance)
    return again


def _plain(value: float) -> float | int | str:
    """JSON has no NaN and no infinities."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
