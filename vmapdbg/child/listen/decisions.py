"""Reads a decision off the frame of the function that made it."""

from __future__ import annotations

import functools
import linecache
import os
from dataclasses import is_dataclass
from types import FrameType
from typing import Any

from vmapdbg.child.listen.deciding import Deciding, Test
from vmapdbg.child.listen.instrument import known
from vmapdbg.child.listen.records import OVERLAY, Condition, Decision, UOp
from vmapdbg.install.overlay import OVERLAY_PACKAGE, overlay_dir

_PLAIN = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset, type(None))


def is_uop(value: Any) -> bool:
    return hasattr(value, "op") and hasattr(value, "src")


def deciding_of(frame: FrameType | None) -> Deciding | None:
    """Returns what is known of the function of a frame, None where it is no deciding one."""
    if frame is None:
        return None
    code = frame.f_code
    return known.get(code.co_filename, {}).get((code.co_firstlineno, code.co_name))


def read_decision(frame: FrameType, line: int) -> Decision:
    """Returns what a statement decided: its place, the conditions it stood under, what the function was called with.

    Where a rule's lambda called the function, the lambda's conditions come first.
    """
    conditions: list[Condition] = []
    caller = frame.f_back
    if caller is not None and (rule := deciding_of(caller)) is not None:
        conditions += _read_conditions(rule, caller, caller.f_lineno)
    function = deciding_of(frame)
    if function is not None:
        conditions += _read_conditions(function, frame, line)
    code = frame.f_code
    return Decision(
        _relative(code.co_filename),
        line,
        code.co_name,
        linecache.getline(code.co_filename, line).strip(),
        tuple(conditions),
        list_operands(frame),
    )


def list_operands(frame: FrameType) -> dict[str, UOp]:
    """The UOps that a function was called with, by the names of its parameters."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    values = frame.f_locals
    return {name: values[name] for name in names if name in values and is_uop(values[name])}


def _read_conditions(function: Deciding, frame: FrameType, line: int) -> list[Condition]:
    """The tests that a line stands under; outside of a loop those that were evaluated before it, too.

    In a loop the outcome of any other test may be that of an earlier step.
    """
    values = frame.f_locals
    path = dict(function.paths.get(line, ()))
    found: list[Condition] = []
    for at, test in function.tests.items():
        outcome = values.get(test.outcome, path)
        if outcome is not path and isinstance(outcome, _PLAIN) and not test.in_loop:
            holds = bool(outcome)
        else:
            holds = path.get(at)
        evaluated = outcome is not path and line not in function.loop_lines and not test.in_loop
        if at in path or evaluated:
            found.append(_read_condition(test, holds, values))
    return found


def _read_condition(test: Test, holds: bool | None, values: dict[str, Any]) -> Condition:
    parts: dict[str, Any] = {}
    for text, name in test.parts.items():
        value: Any = values.get(name)
        is_code = callable(value) and not is_uop(value)
        # its repr is an address
        is_nameless = type(value).__repr__ is object.__repr__
        if value is None or is_code or is_nameless or isinstance(value, (set, frozenset, dict)) or _is_state(value):
            continue
        if not is_uop(value) and hasattr(value, "value") and hasattr(value, "key"):
            # a switch such as PCONTIG: what it is now
            switch: Any = value
            value = switch.value
        if isinstance(value, list):
            # it goes on to change after the test
            value = value.copy()
        parts[text] = value
    return Condition(test.line, test.text, holds, parts)


def _is_state(value: Any) -> bool:
    """Whether a value is the state of the overlay's pass. Its repr would print whole graphs."""
    is_ours = type(value).__module__.startswith(OVERLAY_PACKAGE)
    # BufferizeOpts of a node are as short as stock's
    return is_ours and is_dataclass(value) and not hasattr(value, "addrspace")


@functools.cache
def _relative(filename: str) -> str:
    """`schedule/indexing.py`, whatever folder the tinygrad is in; `overlay/schedule/indexing.py` of our pass."""
    ours = f"{overlay_dir()}{os.sep}"
    if filename.startswith(ours):
        return f"{OVERLAY}/{filename.removeprefix(ours)}"
    _, found, inside = filename.replace(os.sep, "/").rpartition("/tinygrad/")
    if not found:
        return os.path.basename(filename)
    return inside
