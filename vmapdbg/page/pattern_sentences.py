"""How a wrong array comes from the right one, as sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vmapdbg.check.result import CheckReport, Comparison, Pattern, ScheduleCheck
from vmapdbg.model.wording import format_known


def describe_pattern(pattern: Pattern) -> str:
    """Returns a sentence about how a wrong array comes from the right one."""
    return _PATTERNS[pattern.rule](pattern)


def _describe_repeated(pattern: Pattern) -> str:
    assert pattern.size is not None
    names = {0: "first", pattern.size - 1: "last"}
    name = names.get(pattern.first or 0, f"number {pattern.first}")
    return f"along axis {pattern.axis} all {pattern.size} slices are the {name} one"


def _describe_constant(pattern: Pattern) -> str:
    if pattern.filled is not None:
        return f"every element is {_name_filling(pattern)}"
    if pattern.first is None or pattern.size is None:
        return "every element is the same number"
    if pattern.first == 0:
        return "every element is the first"
    if pattern.first == pattern.size - 1:
        return "every element is the last"
    return f"every element is element {pattern.first} of the right ones"


def _describe_shifted(pattern: Pattern) -> str:
    shifted = f"shifted by {pattern.shift:+d} along axis {pattern.axis}"
    if pattern.rule == "rotated":
        return f"{shifted}, going around"
    return shifted


def _describe_swapped(pattern: Pattern) -> str:
    swapped = f"axes {pattern.axis} and {pattern.other_axis} are swapped"
    if pattern.same_size:
        return swapped
    return f"{swapped} (the order of the elements, in the same shape)"


def _describe_slices(pattern: Pattern) -> str:
    assert pattern.size is not None
    slices = f"slices {pattern.first} to {pattern.last}"
    if pattern.first == pattern.last:
        slices = f"slice {pattern.first}"
    if pattern.first == pattern.size - 1:
        slices += " (the last)"
    filled = format_known(", where it is {}", pattern.filled and _name_filling(pattern))
    return f"only in {slices} along axis {pattern.axis}{filled}"


def _describe_all_but_last(pattern: Pattern) -> str:
    return f"along axis {pattern.axis} all slices but the last are {_name_filling(pattern)}"


def _name_filling(pattern: Pattern) -> str:
    if pattern.filled is None:
        return "wrong"
    return {"zero": "zero", "nan": "NaN"}[pattern.filled]


_PATTERNS: dict[str, Callable[[Pattern], str]] = {
    "repeated": _describe_repeated,
    "constant": _describe_constant,
    "reversed": lambda p: f"axis {p.axis} is reversed",
    "rotated": _describe_shifted,
    "shifted": _describe_shifted,
    "swapped": _describe_swapped,
    "summed": lambda p: f"along axis {p.axis} each slice is the sum of all {p.size}",
    "scaled": lambda p: f"every element is {p.amount:.6g} times the right one",
    "offset": lambda p: f"every element is {p.amount:.6g} more than the right one",
    "slices": _describe_slices,
    "all-but-last": _describe_all_but_last,
    "filled": lambda p: f"the wrong elements are all {_name_filling(p)}",
}


def add_pattern_sentences(report: CheckReport) -> CheckReport:
    """Returns the report with the sentence of each pattern beside its data, as its JSON has it."""
    return CheckReport(tuple(map(_add_to_schedule, report.schedules)))


def _add_to_schedule(check: ScheduleCheck) -> ScheduleCheck:
    outputs = tuple(replace(output, comparison=_add_to_comparison(output.comparison)) for output in check.outputs)
    buffers = tuple(
        replace(buffer, comparison=buffer.comparison and _add_to_comparison(buffer.comparison))
        for buffer in check.buffers
    )
    return replace(check, outputs=outputs, buffers=buffers)


def _add_to_comparison(found: Comparison) -> Comparison:
    if found.pattern_data is None:
        return found
    return replace(found, pattern=describe_pattern(found.pattern_data))
