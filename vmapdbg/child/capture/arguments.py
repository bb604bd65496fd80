"""What else makes an op of the tensor graph what it is, in words: the same for every release of tinygrad."""

from __future__ import annotations

from typing import Any

from vmapdbg.child.capture.view import UOp, View, size_of

_MOVES = frozenset({"RESHAPE", "PERMUTE", "EXPAND", "PAD", "SHRINK", "FLIP"})
_PLAIN = frozenset({"CONST", "BUFFER", "MSELECT", "BIND", "DEFINE_VAR"})


def describe_argument(view: View, u: UOp) -> str:
    """Returns the axes of a reduce, the sizes of a movement op, the value of a constant, the slot of a PARAM, the
    name of a variable with its bounds; empty for an op without an argument of its own."""
    name = u.op.name
    if name in _MOVES:
        return "(" + ", ".join(_describe_sizes(part) for part in u.marg) + ")"
    if name in {"REDUCE_AXIS", "REDUCE"} and isinstance(u.arg, tuple):
        return _describe_reduce(*u.arg[:2])
    if name in {"VMAPIN", "VMAPOUT"}:
        return "(" + ", ".join(view.render(v) for v in u.src[1:]) + ")"
    if hasattr(u.arg, "slot"):
        return _describe_param(u.arg)
    if name == "PARAM":
        return f"slot {u.arg}"
    if name in _PLAIN and u.arg is not None:
        return _describe_plain(u.arg)
    if name == "COPY":
        return str(u.device)
    return ""


def _describe_plain(arg: Any) -> str:
    # a float of tinygrad's own is shown as a float
    if isinstance(arg, float):
        return str(float(arg))
    return str(arg)


def _describe_reduce(op: Any, axes: tuple[int, ...] | int) -> str:
    # from 0.14 on it is the number of axes, which come first
    if isinstance(axes, int):
        axes = tuple(range(axes))
    return f"{op.name} {axes}"


def _describe_param(arg: Any) -> str:
    """The argument of a PARAM from 0.14 on, where variables are PARAMs, too."""
    if getattr(arg, "name", None) is None:
        return f"slot {arg.slot}"
    bounds = getattr(arg, "vmin_vmax", None)
    if bounds is None:
        return arg.name
    return f"{arg.name} {bounds[0]}..{bounds[1]}"


def _describe_sizes(part: Any) -> str:
    if isinstance(part, tuple):
        return "(" + ", ".join(str(size_of(s)) for s in part) + ")"
    # whether a FLIP turns an axis around
    if isinstance(part, bool):
        return str(part)
    return str(size_of(part))
