"""Compares what two runs computed: their outputs, and what they printed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from vmapdbg.diff.result import PrintedDiff, ValueDiff
from vmapdbg.model.capture import Output, Schedule
from vmapdbg.model.vocabulary import ValueStatus
from vmapdbg.values.tolerance import Tolerance, make_tolerance, spell_dtype

# If all elements are smaller than this, they are compared as if they had this size: a gradient that cancels to noise is
# a different noise if its sums have another order. `check` has the graph and measures such rounding.
_LEAST_SCALE = 1.0
_BY_SEVERITY: tuple[ValueStatus, ...] = ("unknown", "equal", "close", "different")


def compare_outputs(before: Schedule, after: Schedule) -> tuple[ValueDiff, ...]:
    """Compares the outputs of a pair of schedules, in order, within the tolerance of `estimate_terms`."""
    terms = estimate_terms(before, after)
    pairs = zip_longest(before.outputs, after.outputs)
    return tuple(compare_output(i, one, other, terms) for i, (one, other) in enumerate(pairs))


def estimate_terms(*schedules: Schedule) -> int:
    """Estimates how many numbers are summed for an element of an output: the size of the largest reduce.

    `vmapdbg check` counts them in the graph. In a capture, outputs cannot be followed to their nodes.
    """
    ranges = [item for schedule in schedules for item in schedule.ranges]
    return max((r.size for r in ranges if r.axis_type == "REDUCE" and isinstance(r.size, int)), default=0)


def compare_output(number: int, before: Output | None, after: Output | None, terms: int) -> ValueDiff:
    """Compares the samples of one output of two runs, within the tolerance of `make_tolerance`. NaN equals NaN.

    The result is symmetric in the sides.
    """
    tolerance = Tolerance(terms, 0.0, 0.0)
    compared: dict[str, Any] = {}
    if before is not None and after is not None:
        tolerance = _make_tolerance(before, after, terms)
        compared = _compare_elements(before, after, tolerance)
    facts: dict[str, Any] = {
        **dict.fromkeys(("max_absolute", "max_relative", "first", "index", "value_before", "value_after")),
        "status": "unknown",
        "different": 0,
        "sampled": 0,
        **compared,
    }
    return ValueDiff(
        number=number,
        shape_before=before and before.shape,
        shape_after=after and after.shape,
        dtype_before=before and before.dtype,
        dtype_after=after and after.dtype,
        rtol=tolerance.relative,
        atol=tolerance.absolute,
        **facts,
    )


def find_worst(statuses: Iterable[ValueStatus]) -> ValueStatus:
    """Returns the first of `different`, `close` and `equal` that occurs; `unknown` if nothing was compared."""
    found: tuple[ValueStatus, ...] = ("unknown", *statuses)
    return max(found, key=_BY_SEVERITY.index)


def compare_printed(before: str, after: str) -> PrintedDiff:
    """Compares what two snippets printed, line by line."""
    if before == after:
        return PrintedDiff(True, None, None, None)
    left, right = before.splitlines(), after.splitlines()
    for number, (one, other) in enumerate(zip_longest(left, right), 1):
        if one != other:
            return PrintedDiff(False, number, one, other)
    return PrintedDiff(False, len(left), None, None)  # only the ends of lines differ


def _make_tolerance(before: Output, after: Output, terms: int) -> Tolerance:
    """Returns the smaller of the two sides' tolerances.

    It is based on the smaller of the two largest elements: a huge wrong element must not let other elements pass.
    """
    from vmapdbg.values.numbers import find_largest  # imports numpy, which reading a capture does not need

    largest = max(_LEAST_SCALE, min(find_largest(_read_sample(side)) for side in (before, after)))
    found = [make_tolerance(spell_dtype(side.dtype), terms, largest) for side in (before, after)]
    return min(found, key=lambda tolerance: tolerance.relative)


def _read_sample(output: Output) -> list[float]:
    return [float(value) for value in output.sample]


def _compare_elements(before: Output, after: Output, tolerance: Tolerance) -> dict[str, Any]:
    from vmapdbg.values.numbers import find_close, find_index, make_plain, measure_errors

    sampled = min(len(before.sample), len(after.sample))
    if (before.shape, before.dtype, before.digest) == (after.shape, after.dtype, after.digest):
        return {"status": "equal", "sampled": sampled}
    if before.shape != after.shape or before.dtype != after.dtype:
        return {"status": "different", "sampled": 0}
    one, other = _read_sample(before)[:sampled], _read_sample(after)[:sampled]
    wrong = (~find_close(one, other, tolerance)).nonzero()[0]
    absolute, relative = map(make_plain, measure_errors(one, other))
    facts: dict[str, Any] = {"status": "close", "sampled": sampled, "different": wrong.size}
    facts |= {"max_absolute": absolute, "max_relative": relative}
    if wrong.size:
        first = int(wrong[0])
        facts |= {"status": "different", "first": first}
        facts |= {"value_before": before.sample[first], "value_after": after.sample[first]}
        if math.prod(before.shape) == sampled:
            facts["index"] = find_index(first, before.shape)
    elif not tolerance.relative:
        facts["status"] = "different"  # the differing elements were not sampled
    return facts
