"""A decision of tinygrad's source as the model has it: the values in its conditions become short text."""

from __future__ import annotations

from typing import Any

from vmapdbg.child.capture.view import View
from vmapdbg.child.listen.records import Decision
from vmapdbg.model import capture as model

MOST_SHOWN = 4
"""So many parts of a list are shown."""
MOST_CHARACTERS = 80


def describe_decision(view: View, decision: Decision) -> model.Decision:
    """Returns a decision with its values rendered: a node as `EXPAND 50`, a range as tinygrad renders it."""
    conditions = tuple(
        model.Condition(c.line, c.text, c.holds, {text: describe_value(view, v) for text, v in c.values.items()})
        for c in decision.conditions
    )
    return model.Decision(decision.file, decision.line, decision.function, decision.text, conditions)


def describe_value(view: View, value: Any) -> str:
    """Returns a value in one short line."""
    if isinstance(value, (list, tuple)):
        return _describe_parts(view, value)
    if hasattr(value, "op") and hasattr(value, "src"):
        return shorten(_describe_uop(view, value))
    return shorten(" ".join(str(value).split()))


def _describe_parts(view: View, parts: list[Any] | tuple[Any, ...]) -> str:
    shown = [describe_value(view, part) for part in parts[:MOST_SHOWN]]
    if len(parts) > MOST_SHOWN:
        shown.append(f"and {len(parts) - MOST_SHOWN} more")
    inside = ", ".join(shown)
    if isinstance(parts, list):
        return f"[{inside}]"
    return f"({inside})"


def _describe_uop(view: View, u: Any) -> str:
    if u in view.ids:
        return f"{u.op.name} {view.ids[u]}"
    # an index expression
    if str(u.dtype) in {"dtypes.index", "dtypes.weakint"}:
        return view.render(u)
    return u.op.name


def shorten(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return text[: MOST_CHARACTERS - 3] + "..."
