"""What the program computed: its outputs, and what it printed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from math import prod

from vmapdbg.diff.result import PrintedDiff, ValueDiff
from vmapdbg.model import Output, Schedule
from vmapdbg.vocabulary import ValueStatus

# The relative tolerance of a dtype; of any other one values must be equal.
_RTOL = {"double": 1e-12, "float": 1e-5, "half": 1e-2, "bfloat16": 1e-2, "__bf16": 1e-2, "fp8e4m3": 0.1, "fp8e5m2": 0.1}
_SPELLINGS = {"float64": "double", "float32": "float", "float16": "half", "bfloat": "bfloat16"}
# Against numbers near zero, which are what is left of larger ones.
_ATOL_SHARE = 1e-2
# A sum over more elements than this may differ by more: rounding grows with the square root of their number.
_SUMMED = 1024
_WORST: tuple[ValueStatus, ...] = ("different", "close", "equal")


def compare_outputs(before: Schedule, after: Schedule) -> tuple[ValueDiff, ...]:
    """Compares the outputs of a pair of schedules, in order.

    The relative tolerance is 1e-12 for double, 1e-5 for float, 1e-2 for half and bfloat16, each times
    sqrt(n / 1024) where a reduce of the schedule has n > 1024 elements; the absolute one is a hundredth of it. Other
    dtypes must be equal. NaN equals NaN.
    """
    summed = max((item.size for item in _ranges(before, after) if isinstance(item.size, int)), default=0)
    scale = math.sqrt(max(summed / _SUMMED, 1.0))
    count = max(len(before.outputs), len(after.outputs))
    return tuple(_compare_output(i, _get(before, i), _get(after, i), scale) for i in range(count))


def find_worst(statuses: Iterable[ValueStatus]) -> ValueStatus:
    """Returns `different`, `close` or `equal`, the first that occurs; `unknown` where nothing was compared."""
    found = set(statuses)
    for status in _WORST:
        if status in found:
            return status
    return "unknown"


def compare_printed(before: str, after: str) -> PrintedDiff:
    """Compares what two snippets printed, line by line."""
    if before == after:
        return PrintedDiff(True, None, None, None)
    left, right = before.splitlines(), after.splitlines()
    for number in range(max(len(left), len(right))):
        one = left[number] if number < len(left) else None
        other = right[number] if number < len(right) else None
        if one != other:
            return PrintedDiff(False, number + 1, one, other)
    return PrintedDiff(False, len(left), None, None)  # only the ends of lines differ


def _ranges(before: Schedule, after: Schedule) -> list:
    return [item for side in (before, after) for item in side.ranges if item.axis_type == "REDUCE"]


def _get(schedule: Schedule, number: int) -> Output | None:
    return schedule.outputs[number] if number < len(schedule.outputs) else None


def _compare_output(number: int, before: Output | None, after: Output | None, scale: float) -> ValueDiff:
    rtol = 0.0
    if before is not None and after is not None:
        rtol = scale * min(_find_rtol(before.dtype), _find_rtol(after.dtype))
    changes = _compare_elements(before, after, rtol) if before is not None and after is not None else {}
    facts = {
        "status": "unknown",
        "max_absolute": None,
        "max_relative": None,
        "first": None,
        "index": None,
        "value_before": None,
        "value_after": None,
        "different": 0,
        "sampled": 0,
    }
    return ValueDiff(
        number=number,
        shape_before=None if before is None else before.shape,
        shape_after=None if after is None else after.shape,
        dtype_before=None if before is None else before.dtype,
        dtype_after=None if after is None else after.dtype,
        rtol=rtol,
        atol=rtol * _ATOL_SHARE,
        **{**facts, **changes},
    )


def _find_rtol(dtype: str) -> float:
    return _RTOL.get(_SPELLINGS.get(dtype, dtype), 0.0)


def _compare_elements(before: Output, after: Output, rtol: float) -> dict:
    sampled = min(len(before.sample), len(after.sample))
    if (before.shape, before.dtype, before.digest) == (after.shape, after.dtype, after.digest):
        return {"status": "equal", "sampled": sampled}
    if before.shape != after.shape or before.dtype != after.dtype:
        return {"status": "different", "sampled": 0}
    pairs = [(float(one), float(other)) for one, other in zip(before.sample, after.sample, strict=False)]
    wrong = [i for i, pair in enumerate(pairs) if not _is_close(*pair, rtol)]
    facts = {"status": "close", "sampled": sampled, "different": len(wrong), **_measure_errors(pairs)}
    if wrong:
        first = wrong[0]
        facts |= {"status": "different", "first": first, "index": _find_index(before, first)}
        facts |= {"value_before": before.sample[first], "value_after": after.sample[first]}
    elif not rtol:
        facts["status"] = "different"  # what differs was not sampled
    return facts


def _is_close(one: float, other: float, rtol: float) -> bool:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return True
    if not (math.isfinite(one) and math.isfinite(other)):
        return False
    return abs(one - other) <= rtol * max(abs(one), abs(other)) + rtol * _ATOL_SHARE


def _measure_errors(pairs: list[tuple[float, float]]) -> dict:
    unequal = [(one, other) for one, other in pairs if one != other and not (math.isnan(one) and math.isnan(other))]
    errors = [(abs(one - other), max(abs(one), abs(other))) for one, other in unequal]
    absolute = [error for error, _ in errors]
    relative = [error / size if math.isfinite(error) else error for error, size in errors]
    return {"max_absolute": _find_most(absolute), "max_relative": _find_most(relative)}


def _find_most(errors: list[float]) -> float | str:
    if any(math.isnan(error) for error in errors):
        return "nan"
    most = max(errors, default=0.0)
    return "inf" if math.isinf(most) else most


def _find_index(output: Output, place: int) -> tuple[int, ...] | None:
    """The index of an element in the tensor, where the sample has all of them."""
    if prod(output.shape) != len(output.sample):
        return None
    index: list[int] = []
    for size in reversed(output.shape):
        index.append(place % size)
        place //= size
    return tuple(reversed(index))
