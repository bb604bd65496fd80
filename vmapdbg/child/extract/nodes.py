"""Nodes, ranges and `vmap_map` of the model, from one run of the pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.extract.reasons import explain_realized
from vmapdbg.child.extract.view import PassView, size_of
from vmapdbg.child.memory import name_dtype
from vmapdbg.child.program.bounds import find_outside
from vmapdbg.model import capture as model


def build_nodes(view: PassView) -> tuple[model.Node, ...]:
    """Returns every node of the graph, in the order of their ids."""
    return tuple(_build_node(view, u) for u in view.ids)


def _build_node(view: PassView, u: UOp) -> model.Node:
    shape = u._shape
    in_ranges, out_ranges, outside = None, None, ()
    ranges = view.record.context.range_map.get(u)
    if ranges is not None:
        in_ranges, out_ranges = view.render_all(ranges[0]), view.render_all(ranges[1])
        if u.src:
            outside = find_outside_axes(view, ranges[0], u.src[0]._shape)
    return model.Node(
        id=view.ids[u],
        op=u.op.name,
        dtype=name_dtype(u.dtype),
        shape=None if shape is None else tuple(map(size_of, shape)),
        src=tuple(view.ids[s] for s in u.src if s in view.ids),
        in_ranges=in_ranges,
        out_ranges=out_ranges,
        ambient=view.render_all(view.record.context.vmap_map.get(u, ())),
        realized=explain_realized(view, u),
        line=view.lines.get(u),
        arg=_describe_arg(view, u),
        outside=outside,
    )


def find_outside_axes(view: PassView, indices: Sequence[UOp], sizes: Sequence[Any] | None) -> tuple[model.Outside, ...]:
    """Returns the indices that leave their axes; `sizes` has those of the axes."""
    if sizes is None or len(sizes) != len(indices):
        return ()
    found = []
    for axis, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        if isinstance(size, int) and (bounds := find_outside(index, size)) is not None:
            found.append(model.Outside(axis, view.render(index), *bounds, size))
    return tuple(found)


def _describe_arg(view: PassView, u: UOp) -> str:
    if u.op in GroupOp.Movement:
        return "(" + ", ".join(_describe_sizes(part) for part in u.marg) + ")"
    if u.op is Ops.REDUCE_AXIS:
        return f"{u.arg[0].name} {u.arg[1]}"
    if u.op.name in {"VMAPIN", "VMAPOUT"}:
        return "(" + ", ".join(view.render(v) for v in u.src[1:]) + ")"
    if u.op in {Ops.CONST, Ops.BUFFER, Ops.MSELECT, Ops.BIND, Ops.DEFINE_VAR} and u.arg is not None:
        return str(u.arg)
    if u.op is Ops.COPY:
        return str(u.device)
    return ""


def _describe_sizes(part: Any) -> str:
    if isinstance(part, tuple):
        return "(" + ", ".join(str(size_of(s)) for s in part) + ")"
    # whether a FLIP turns an axis around
    if isinstance(part, bool):
        return str(part)
    return str(size_of(part))


def build_ranges(view: PassView) -> tuple[model.Range, ...]:
    """Returns the ranges that any node has, those of vmap scopes first."""
    record = view.record
    found: dict[UOp, None] = dict.fromkeys(sorted(record.scope_ranges, key=lambda r: -r.arg[0]))
    for ins, outs, *_ in record.context.range_map.values():
        for r in (*ins, *outs):
            found.update(r.ranges)
    for ambient in record.context.vmap_map.values():
        found.update(dict.fromkeys(ambient))
    return tuple(
        model.Range(view.render(r), size_of(r.src[0]), r.arg[-1].name, r in record.scope_ranges) for r in found
    )


def build_vmap_map(view: PassView) -> tuple[model.VmapEntry, ...]:
    """Returns the entries of `vmap_map` that are about nodes."""
    entries = view.record.context.vmap_map.items()
    return tuple(model.VmapEntry(view.ids[u], view.render_all(ranges)) for u, ranges in entries if u in view.ids)
