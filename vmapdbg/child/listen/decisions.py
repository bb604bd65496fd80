"""Reads a decision off the frame of the function that made it."""

from __future__ import annotations

import functools
import linecache
import os
from dataclasses import is_dataclass
from types import FrameType
from typing import Any

from vmapdbg.child.listen.instrument import Deciding, Test, known
from vmapdbg.child.listen.records import OVERLAY, ConditionRecord, DecisionRecord, UOp
from vmapdbg.install.overlay import OVERLAY_PACKAGE, overlay_dir

_PLAIN = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset, type(None))


def deciding_of(frame: FrameType | None) -> Deciding | None:
    """Returns the deciding function of a frame, None for any other function."""
    if frame is None:
        return None
    code = frame.f_code
    return known.get(code.co_filename, {}).get((code.co_firstlineno, code.co_name))


def read_decision(frame: FrameType, line: int) -> DecisionRecord:
    """Returns the decision of a statement: its place, the conditions before it, the UOps that the function was called
    with.

    If a rule's lambda called the function, the lambda's conditions come first.
    """
    conditions: list[ConditionRecord] = []
    caller = frame.f_back
    if caller is not None and (rule := deciding_of(caller)) is not None:
        conditions += _read_conditions(rule, caller, caller.f_lineno)
    function = deciding_of(frame)
    if function is not None:
        conditions += _read_conditions(function, frame, line)
    code = frame.f_code
    text = linecache.getline(code.co_filename, line).strip()
    place = _relative(code.co_filename), line, code.co_name, text
    return DecisionRecord(*place, tuple(conditions), list_operands(frame))


def list_operands(frame: FrameType) -> dict[str, UOp]:
    """Returns the UOps that a function was called with, by the names of its parameters."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    values = frame.f_locals
    return {name: values[name] for name in names if name in values and _is_uop(values[name])}


def _read_conditions(function: Deciding, frame: FrameType, line: int) -> list[ConditionRecord]:
    """Returns the tests on the path to a line; outside of a loop also the other tests that were evaluated before it.

    In a loop the outcome of any other test may be that of an earlier step.
    """
    values = frame.f_locals
    path = dict(function.paths.get(line, ()))
    found: list[ConditionRecord] = []
    for at, test in function.tests.items():
        is_evaluated = test.outcome in values and not test.in_loop
        if at not in path and (not is_evaluated or line in function.loop_lines):
            continue
        holds = path.get(at)
        if is_evaluated and isinstance(values[test.outcome], _PLAIN):
            holds = bool(values[test.outcome])
        found.append(ConditionRecord(test.line, test.text, holds, _read_parts(test, values)))
    return found


def _read_parts(test: Test, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of the parts of a test, by their texts; without parts that were not evaluated, or whose value
    has no short text."""
    parts: dict[str, Any] = {}
    for text, name in test.parts.items():
        value: Any = values.get(name)
        if value is None or not _is_shown(value):
            continue
        if not _is_uop(value) and hasattr(value, "value") and hasattr(value, "key"):
            # a switch such as PCONTIG: what it is now
            value = value.value
        if isinstance(value, list):
            # it goes on to change after the test
            value = value.copy()
        parts[text] = value
    return parts


def _is_uop(value: Any) -> bool:
    return hasattr(value, "op") and hasattr(value, "src")


def _is_shown(value: Any) -> bool:
    """Whether a value has a short text: code and plain objects have addresses, collections and the state of the
    overlay's pass may have whole graphs."""
    if isinstance(value, (set, frozenset, dict)) or type(value).__repr__ is object.__repr__:
        return False
    if callable(value) and not _is_uop(value):
        return False
    is_ours = type(value).__module__.startswith(OVERLAY_PACKAGE)
    # BufferizeOpts of a node are as short as stock's
    return not is_ours or not is_dataclass(value) or hasattr(value, "addrspace")


@functools.cache
def _relative(filename: str) -> str:
    """Returns `schedule/indexing.py` for any folder of tinygrad, `overlay/schedule/indexing.py` for our pass."""
    ours = f"{overlay_dir()}{os.sep}"
    if filename.startswith(ours):
        return f"{OVERLAY}/{filename.removeprefix(ours)}"
    _, found, relative = filename.replace(os.sep, "/").rpartition("/tinygrad/")
    return relative if found else os.path.basename(filename)
