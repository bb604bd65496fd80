"""What TinyJit captures and replays: ExecItems with Buffers (0.12), or a LINEAR with UOps (since March 2026)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

UOp = Any


def find_jit_class() -> Any:
    """Returns the class of what TinyJit makes: in 0.14 TinyJit is a function."""
    from tinygrad.engine import jit

    return getattr(jit, "_TinyJit", jit.TinyJit)


def watch_replays(changes: Any, on_call: Callable[..., Any], on_replay: Callable[..., Any]) -> None:
    """Has calls of TinyJits and replays of what they captured go through `on_call` and `on_replay`. `changes` are
    declared, not made. Raises UnknownShape."""
    from tinygrad.engine import jit

    changes.wrap(find_jit_class(), "__call__", on_call, "self", "args", "kwargs")
    parameters = inspect.signature(jit.CapturedJit.__call__).parameters
    given = next((name for name in parameters if name.startswith("input_")), "input_buffers")
    changes.wrap(jit.CapturedJit, "__call__", on_replay, "self", given, "var_vals")


def watch_captures(changes: Any, around: Callable[..., Any]) -> None:
    """Has `around` called with what keeps a schedule of a call that is captured, where it runs later (0.13 on)."""
    kind = find_jit_class()
    if hasattr(kind, "add_linear"):
        changes.wrap(kind, "add_linear", around, "self", "linear", "var_vals")


def find_buffer(given: Any) -> Any:
    """Returns the buffer of an input of TinyJit: it is that itself, or its UOp."""
    return getattr(given, "buffer", given)


def list_written(linear: UOp) -> list[UOp]:
    """Returns what the launches of a captured schedule write, as UOps."""
    return [call.src[1] for call in linear.src if len(call.src) > 1]


def find_used_buffers(captured: Any) -> set[UOp] | None:
    """Returns the BUFFERs that a CapturedJit uses: those that it reads or writes in other memory than at the time of
    capture are not among them. None where it uses the Buffers of that time (0.12)."""
    linear = getattr(captured, "linear", None)
    return None if linear is None else {u for u in linear.toposort() if u.op.name == "BUFFER"}


def runs_captured_now() -> bool:
    """Tells whether a TinyJit captures what is realized, and runs it when the call is done: 0.13 on, 0.12 runs it."""
    from tinygrad.engine import realize
    from tinygrad.uop import Ops

    return hasattr(Ops, "CALL") and bool(getattr(realize, "capturing", ()))
