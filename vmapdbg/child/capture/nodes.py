"""Nodes, ranges and `vmap_map` of the model, from one run of the pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmapdbg.child.capture.reasons import explain_realized
from vmapdbg.child.capture.view import PassView, size_of, sizes_of
from vmapdbg.child.listen.records import UOp
from vmapdbg.child.memory import name_dtype
from vmapdbg.model import capture as model

_MOVES = frozenset({"RESHAPE", "PERMUTE", "EXPAND", "PAD", "SHRINK", "FLIP"})
# the argument is shown as it is
_PLAIN = frozenset({"CONST", "BUFFER", "MSELECT", "BIND", "DEFINE_VAR"})


def build_node(view: PassView, u: UOp) -> model.Node:
    in_ranges, out_ranges, outside = None, None, ()
    ranges, origin = view.passed.range_map.get(u), view.passed.origins.get(u)
    if ranges is not None:
        in_ranges, out_ranges = view.render_all(ranges[0]), view.render_all(ranges[1])
        if u.src:
            outside = find_outside_axes(view, view.asked_of(u, u.src[0]) or (), u.src[0]._shape)
    return model.Node(
        id=view.ids[u],
        op=u.op.name,
        dtype=name_dtype(u.dtype),
        shape=sizes_of(u._shape),
        src=tuple(view.ids[s] for s in u.src if s in view.ids),
        in_ranges=in_ranges,
        out_ranges=out_ranges,
        ambient=view.render_all(view.passed.ambient.get(u, ())),
        realized=explain_realized(view, u),
        line=origin and origin.line,
        arg=describe_argument(view, u),
        outside=outside,
        method=origin and origin.method,
        unsplit=_find_unsplit(view, u),
    )


def _find_unsplit(view: PassView, node: UOp) -> model.Unsplit | None:
    """Returns why a reduce is not split in two kernels as stock tinygrad would; None for any other node."""
    unsplit = view.passed.unsplit
    if node.op.name != "REDUCE_AXIS" or not unsplit:
        return None
    # the ranges of a scope got other ids after the report: the reduce is another UOp now, with the same tag
    tagged = (whole for u, whole in unsplit.items() if u.tag and u.tag == node.tag)
    whole = unsplit.get(node) or next(tagged, None)
    if whole is None:
        return None
    return model.Unsplit("gather", whole.axes, whole.rest, whole.source, whole.between, whole.result)


def find_outside_axes(view: PassView, indices: Sequence[UOp], sizes: Sequence[Any] | None) -> tuple[model.Outside, ...]:
    """Returns the indices that leave their axes; `sizes` are the sizes of the axes."""
    if sizes is None or len(sizes) != len(indices):
        return ()
    found = []
    for axis, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        if isinstance(size, int) and (bounds := view.outside_of(index, size)) is not None:
            found.append(model.Outside(axis, view.render(index), *bounds, size))
    return tuple(found)


# *** the argument of a node, in words: the same for every release of tinygrad


def describe_argument(view: PassView, u: UOp) -> str:
    """Returns the axes of a reduce, the sizes of a movement op, the value of a constant, the slot of a PARAM, the
    name of a variable with its bounds; empty for an op without an argument of its own."""
    name = u.op.name
    if name in _MOVES:
        return "(" + ", ".join(map(_describe_sizes, u.marg)) + ")"
    if name in {"REDUCE_AXIS", "REDUCE"} and isinstance(u.arg, tuple):
        op, axes = u.arg[:2]
        if isinstance(axes, int):
            # from 0.14 on it is the number of axes, which come first
            axes = tuple(range(axes))
        return f"{op.name} {axes}"
    if name in {"VMAPIN", "VMAPOUT"}:
        return "(" + ", ".join(view.render_all(u.src[1:])) + ")"
    if hasattr(u.arg, "slot"):
        return _describe_param(u.arg)
    if name == "PARAM":
        return f"slot {u.arg}"
    if name in _PLAIN and u.arg is not None:
        # a float of tinygrad's own class is shown as a float
        if isinstance(u.arg, float):
            return str(float(u.arg))
        return str(u.arg)
    if name == "COPY":
        return str(u.device)
    return ""


def _describe_param(arg: Any) -> str:
    """Describes the argument of a PARAM from 0.14 on, where variables are PARAMs, too."""
    if getattr(arg, "name", None) is None:
        return f"slot {arg.slot}"
    bounds = getattr(arg, "vmin_vmax", None)
    if bounds is None:
        return arg.name
    return f"{arg.name} {bounds[0]}..{bounds[1]}"


def _describe_sizes(part: Any) -> str:
    if isinstance(part, tuple):
        return "(" + ", ".join(str(size_of(s)) for s in part) + ")"
    if isinstance(part, bool):
        # a FLIP has a bool for each axis
        return str(part)
    return str(size_of(part))


# *** ranges


def build_ranges(view: PassView) -> tuple[model.Range, ...]:
    """Returns the ranges that any node has, those of vmap scopes first."""
    passed = view.passed
    # thousands of nodes share few index expressions
    indices = dict.fromkeys(r for ins, outs, *_ in passed.range_map.values() for r in (*ins, *outs))
    scopes = passed.scope_ranges
    found: dict[UOp, None] = dict.fromkeys(sorted(scopes, key=lambda r: -r.arg[0]))
    for index in indices:
        found.update(index.ranges)
    for ambient in passed.ambient.values():
        found.update(dict.fromkeys(ambient))
    return tuple(model.Range(view.render(r), size_of(r.src[0]), r.arg[-1].name, r in scopes) for r in found)


def build_vmap_map(view: PassView) -> tuple[model.VmapEntry, ...]:
    """Returns the entries of `vmap_map` that are about nodes."""
    entries = view.passed.ambient.items()
    return tuple(model.VmapEntry(view.ids[u], view.render_all(ranges)) for u, ranges in entries if u in view.ids)
