"""What the program computed: its outputs, and what it printed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from vmapdbg.diff.result import PrintedDiff, ValueDiff
from vmapdbg.model import Output, Schedule
from vmapdbg.values.tolerance import Tolerance, make_tolerance, spell_dtype
from vmapdbg.vocabulary import ValueStatus

# Elements that are all smaller than this are taken for what is left of numbers of this size: a gradient that cancels to
# noise is another noise in another order of its sums. `check` has the graph, and measures such rounding instead.
_LEAST_SCALE = 1.0
_WORST: tuple[ValueStatus, ...] = ("different", "close", "equal")


def compare_outputs(before: Schedule, after: Schedule) -> tuple[ValueDiff, ...]:
    """Compares the outputs of a pair of schedules, in order, within the tolerance of `estimate_terms`."""
    terms = estimate_terms(before, after)
    count = max(len(before.outputs), len(after.outputs))
    return tuple(compare_output(i, _get(before, i), _get(after, i), terms) for i in range(count))


def estimate_terms(*schedules: Schedule) -> int:
    """Returns how many numbers are summed up for an element of an output: as many as the largest reduce has.

    The graph would tell how many of them are on the way to which output, and `vmapdbg check` counts them there. A
    capture from a file has no graph that can be followed from its outputs.
    """
    ranges = [item for schedule in schedules for item in schedule.ranges]
    return max((r.size for r in ranges if r.axis_type == "REDUCE" and isinstance(r.size, int)), default=0)


def compare_output(number: int, before: Output | None, after: Output | None, terms: int) -> ValueDiff:
    """Compares one output of two runs: what was sampled of it, by the tolerance of `make_tolerance`. NaN equals NaN.

    Which side is which makes no difference to what is close.
    """
    tolerance = Tolerance(terms, 0.0, 0.0)
    changes: dict[str, Any] = {}
    if before is not None and after is not None:
        tolerance = _make_tolerance(before, after, terms)
        changes = _compare_elements(before, after, tolerance)
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
        rtol=tolerance.relative,
        atol=tolerance.absolute,
        **{**facts, **changes},
    )


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


def _get(schedule: Schedule, number: int) -> Output | None:
    return schedule.outputs[number] if number < len(schedule.outputs) else None


def _make_tolerance(before: Output, after: Output, terms: int) -> Tolerance:
    """Returns the tolerance of the side that has the smaller one. The largest element that counts is that of the side
    where it is smaller, too: a wrong element that is huge would let others pass."""
    from vmapdbg.values.close import find_largest  # numpy, which reading a capture does not need

    largest = max(_LEAST_SCALE, min(find_largest(_read_sample(side)) for side in (before, after)))
    found = [make_tolerance(spell_dtype(side.dtype), terms, largest) for side in (before, after)]
    return min(found, key=lambda tolerance: tolerance.relative)


def _read_sample(output: Output) -> list[float]:
    return [float(value) for value in output.sample]


def _compare_elements(before: Output, after: Output, tolerance: Tolerance) -> dict[str, Any]:
    from vmapdbg.values.close import find_close, measure_errors
    from vmapdbg.values.numbers import find_index, make_plain

    sampled = min(len(before.sample), len(after.sample))
    if (before.shape, before.dtype, before.digest) == (after.shape, after.dtype, after.digest):
        return {"status": "equal", "sampled": sampled}
    if before.shape != after.shape or before.dtype != after.dtype:
        return {"status": "different", "sampled": 0}
    one, other = _read_sample(before)[:sampled], _read_sample(after)[:sampled]
    wrong = (~find_close(one, other, tolerance)).nonzero()[0]
    absolute, relative = map(make_plain, measure_errors(one, other))
    facts = {"status": "close", "sampled": sampled, "different": wrong.size}
    facts |= {"max_absolute": absolute, "max_relative": relative}
    if wrong.size:
        first = int(wrong[0])
        is_whole = math.prod(before.shape) == sampled
        facts |= {"status": "different", "first": first}
        facts |= {"index": find_index(first, before.shape) if is_whole else None}
        facts |= {"value_before": before.sample[first], "value_after": after.sample[first]}
    elif not tolerance.relative:
        facts["status"] = "different"  # what differs was not sampled
    return facts
