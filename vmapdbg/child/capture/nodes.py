"""Nodes, ranges and `vmap_map` of the model, from one run of the pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmapdbg.child.capture.arguments import describe_argument
from vmapdbg.child.capture.reasons import explain_realized
from vmapdbg.child.capture.view import UOp, View, size_of, sizes_of
from vmapdbg.child.memory import name_dtype
from vmapdbg.model import capture as model


def build_nodes(view: View) -> tuple[model.Node, ...]:
    """Returns every node of the graph, in the order of their ids."""
    return tuple(_build_node(view, u) for u in view.ids)


def _build_node(view: View, u: UOp) -> model.Node:
    in_ranges, out_ranges, outside = None, None, ()
    ranges = view.range_map.get(u)
    if ranges is not None:
        in_ranges, out_ranges = view.render_all(ranges[0]), view.render_all(ranges[1])
        if u.src:
            outside = find_outside_axes(view, view.find_indices(u), u.src[0]._shape)
    return model.Node(
        id=view.ids[u],
        op=u.op.name,
        dtype=name_dtype(u.dtype),
        shape=sizes_of(u._shape),
        src=tuple(view.ids[s] for s in u.src if s in view.ids),
        in_ranges=in_ranges,
        out_ranges=out_ranges,
        ambient=view.render_all(view.ambient.get(u, ())),
        realized=explain_realized(view, u),
        line=view.lines.get(u),
        arg=describe_argument(view, u),
        outside=outside,
        method=view.methods.get(u),
        unsplit=_find_unsplit(view, u),
    )


def _find_unsplit(view: View, node: UOp) -> model.Unsplit | None:
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


def find_outside_axes(view: View, indices: Sequence[UOp], sizes: Sequence[Any] | None) -> tuple[model.Outside, ...]:
    """Returns the indices that leave their axes; `sizes` has those of the axes."""
    if sizes is None or len(sizes) != len(indices):
        return ()
    found = []
    for axis, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        if isinstance(size, int) and (bounds := view.find_outside(index, size)) is not None:
            found.append(model.Outside(axis, view.render(index), *bounds, size))
    return tuple(found)


def build_ranges(view: View) -> tuple[model.Range, ...]:
    """Returns the ranges that any node has, those of vmap scopes first."""
    # thousands of nodes share few index expressions
    indices = dict.fromkeys(r for ins, outs, *_ in view.range_map.values() for r in (*ins, *outs))
    found: dict[UOp, None] = dict.fromkeys(sorted(view.scope_ranges, key=lambda r: -r.arg[0]))
    for index in indices:
        found.update(index.ranges)
    for ambient in view.ambient.values():
        found.update(dict.fromkeys(ambient))
    return tuple(model.Range(view.render(r), size_of(r.src[0]), r.arg[-1].name, r in view.scope_ranges) for r in found)


def build_vmap_map(view: View) -> tuple[model.VmapEntry, ...]:
    """Returns the entries of `vmap_map` that are about nodes."""
    entries = view.ambient.items()
    return tuple(model.VmapEntry(view.ids[u], view.render_all(ranges)) for u, ranges in entries if u in view.ids)
