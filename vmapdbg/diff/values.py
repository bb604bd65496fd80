"""Compares what two runs computed: their outputs, and what they printed."""

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, zip_longest

from vmapdbg.diff.result import PrintedDiff, ValueDiff
from vmapdbg.model.capture import Output, Schedule
from vmapdbg.model.vocabulary import ValueLeft, ValueStatus
from vmapdbg.values.tolerance import WIDER, Tolerance, make_tolerance, spell_dtype

# Arrays with smaller elements only are compared as if these had this size: a gradient that cancels to noise is another
# noise if its sums have another order. `check` has the graph and measures such rounding.
_LEAST_SCALE = 1.0
# Without the graph, the roundings of elementwise ops are not counted: so many are allowed to bfloat16 and fp8.
_UNSEEN = 240
_BY_SEVERITY: tuple[ValueStatus, ...] = ("unknown", "equal", "close", "different")


def compare_outputs(before: Schedule, after: Schedule, terms: int, left: ValueLeft = "") -> tuple[ValueDiff, ...]:
    """Compares the outputs of a pair of schedules, in order, within the tolerance of `terms` (see `estimate_terms`).
    `left` is why they are not compared, or "": tensors of one shape may be different values."""
    if not left and len(before.outputs) != len(after.outputs):
        left = "output-count"
    pairs = zip_longest(before.outputs, after.outputs)
    return tuple(compare_output(i, one, other, terms, left) for i, (one, other) in enumerate(pairs))


def estimate_terms(schedules: Iterable[Schedule]) -> list[int]:
    """Estimates for each schedule how many numbers are summed for an output element: the largest reduce so far, because
    rounding is inherited. Outputs of a capture have no nodes to follow; `vmapdbg check` counts in the graph."""
    reduced = (
        [item.size for item in schedule.ranges if item.axis_type == "REDUCE" and isinstance(item.size, int)]
        for schedule in schedules
    )
    return list(accumulate((max(sizes, default=0) for sizes in reduced), max))


def compare_output(
    number: int, before: Output | None, after: Output | None, terms: int, left: ValueLeft = ""
) -> ValueDiff:
    """Compares the samples of one output of two runs, within the tolerance of `make_tolerance`. NaN equals NaN."""
    found = ValueDiff(
        number=number,
        status="unknown",
        shape_before=before and before.shape,
        shape_after=after and after.shape,
        dtype_before=before and before.dtype,
        dtype_after=after and after.dtype,
        rtol=0.0,
        atol=0.0,
        max_absolute=None,
        max_relative=None,
        first=None,
        index=None,
        value_before=None,
        value_after=None,
        different=0,
        sampled=0,
    )
    if left or before is None or after is None:
        return replace(found, left=left or "one-side")
    from vmapdbg.values.numbers import find_largest  # imports numpy, which reading a capture does not need

    # the smaller of both largest elements counts: a huge wrong element must not let others pass
    largest = max(_LEAST_SCALE, min(find_largest(_read_sample(side)) for side in (before, after)))
    dtypes = [spell_dtype(side.dtype) for side in (before, after)]
    tolerances = [make_tolerance(dtype, terms + _UNSEEN * (dtype in WIDER), largest) for dtype in dtypes]
    tolerance = min(tolerances, key=lambda one: one.relative)
    found = replace(found, rtol=tolerance.relative, atol=tolerance.absolute)
    if before.shape != after.shape or before.dtype != after.dtype:
        return replace(found, status="different")
    found = replace(found, sampled=min(len(before.sample), len(after.sample)))
    if before.digest == after.digest:
        return replace(found, status="equal")
    return _compare_elements(found, before, after, tolerance)


def find_worst(statuses: Iterable[ValueStatus]) -> ValueStatus:
    """Returns the first of `different`, `close` and `equal` that occurs; `unknown` if nothing was compared."""
    found: tuple[ValueStatus, ...] = ("unknown", *statuses)
    return max(found, key=_BY_SEVERITY.index)


def compare_printed(before: str, after: str, again: str | None = None) -> PrintedDiff:
    """Compares printed text by line. A line that differs `again`, in a second run of before, is no change."""
    if before == after:
        return PrintedDiff(True, None, None, None)
    left, right = before.splitlines(), after.splitlines()
    repeated = (before if again is None else again).splitlines()
    for number, (one, other, same) in enumerate(zip_longest(left, right, repeated), 1):
        if one != same and len(left) != len(repeated):
            # from here on it is not known which lines are the same
            break
        if one == same and one != other:
            return PrintedDiff(False, number, one, other)
    if again is not None and again != before:
        return PrintedDiff(False, None, None, None, "not-deterministic")
    return PrintedDiff(False, len(left), None, None)  # only the ends of lines differ


def _read_sample(output: Output) -> list[float]:
    return list(map(float, output.sample))


def _compare_elements(found: ValueDiff, before: Output, after: Output, tolerance: Tolerance) -> ValueDiff:
    from vmapdbg.values.numbers import find_close, find_index, make_plain, measure_errors

    one, other = _read_sample(before)[: found.sampled], _read_sample(after)[: found.sampled]
    wrong = (~find_close(one, other, tolerance)).nonzero()[0]
    absolute, relative = map(make_plain, measure_errors(one, other))
    found = replace(found, different=int(wrong.size), max_absolute=absolute, max_relative=relative)
    if not wrong.size:
        # of integers, the elements that differ were not sampled
        return replace(found, status="close" if tolerance.relative else "different")
    first = int(wrong[0])
    if math.prod(before.shape) == found.sampled:
        found = replace(found, index=find_index(first, before.shape))
    values = {"value_before": before.sample[first], "value_after": after.sample[first]}
    return replace(found, status="different", first=first, **values)
