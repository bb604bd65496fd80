"""The BUFFERIZE decisions of the model, from one run of the pass."""

from __future__ import annotations

import math

from vmapdbg.child.capture.nodes import find_outside_axes
from vmapdbg.child.capture.reasons import explain_outcome
from vmapdbg.child.capture.view import Ranges, UOp, View, largest_of
from vmapdbg.child.listen.records import BufferRecord
from vmapdbg.model import capture as model


def build_bufferizes(view: View) -> tuple[model.Bufferize, ...]:
    """Returns each BUFFERIZE that the pass made for a node, in the order it made them."""
    return tuple(
        _build_bufferize(view, made.node, made)
        for made in view.passed.buffers
        if made.node is not None and made.node in view.ids
    )


def _build_bufferize(view: View, node: UOp, made: BufferRecord) -> model.Bufferize:
    buffer = made.stage
    size = math.prod(largest_of(s) for s in buffer.shape)
    return model.Bufferize(
        node=view.ids[node],
        closed_ranges=view.render_all(buffer.src[1:]),
        ambient=view.render_all(_find_ambient(view, node, buffer)),
        size=size,
        bytes=size * buffer.dtype.itemsize,
        addrspace=buffer.arg.addrspace.name,
        outcome="kept" if made.stored else "removed",
        reason="",
        decided=explain_outcome(view, made),
        outside=_find_outside_reads(view, made),
        left_open=view.render_all(r for r in made.left_open if r.arg[-1].name != "OUTER"),
    )


def _find_ambient(view: View, node: UOp, buffer: UOp) -> Ranges:
    """The ambient ranges that a buffer closes: it has them before the ranges of its axes."""
    ambient = view.ambient.get(node, ())
    if buffer.arg.addrspace.name == "GLOBAL" and buffer.src[1 : 1 + len(ambient)] == ambient:
        return ambient
    return ()


def _find_outside_reads(view: View, made: BufferRecord) -> tuple[model.Outside, ...]:
    """The indices at which a reader leaves the buffer, those of the first reader that does."""
    if not made.stored:
        return ()
    found = (find_outside_axes(view, index.src[1:], buffer.shape) for buffer, index in made.readers)
    return next((outside for outside in found if outside), ())
