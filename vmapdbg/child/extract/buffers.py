"""The BUFFERIZE decisions of the model, from one run of the pass."""

from __future__ import annotations

import math

from tinygrad.uop.ops import AxisType, UOp

from vmapdbg.child.extract.nodes import find_outside_axes
from vmapdbg.child.extract.reasons import explain_outcome
from vmapdbg.child.extract.view import PassView
from vmapdbg.child.record.recorder import BufferizeRecord
from vmapdbg.model import capture as model


def build_bufferizes(view: PassView) -> tuple[model.Bufferize, ...]:
    """Returns each BUFFERIZE that the pass made for a node, in the order it made them."""
    made = view.record.bufferizes.items()
    return tuple(_build_bufferize(view, node, record) for node, record in made if node in view.ids)


def _build_bufferize(view: PassView, node: UOp, record: BufferizeRecord) -> model.Bufferize:
    buffer = record.buffer
    size = math.prod(int(s) for s in buffer.shape)
    return model.Bufferize(
        node=view.ids[node],
        closed_ranges=view.render_all(buffer.src[1:]),
        ambient=view.render_all(record.ambient),
        size=size,
        bytes=size * buffer.dtype.itemsize,
        addrspace=buffer.arg.addrspace.name,
        outcome="kept" if record.stored else "removed",
        reason="",
        decided=explain_outcome(view, node, record),
        outside=_find_outside_reads(view, record) if record.stored else (),
        left_open=view.render_all(r for r in record.left_open if r.arg[-1] is not AxisType.OUTER),
    )


def _find_outside_reads(view: PassView, record: BufferizeRecord) -> tuple[model.Outside, ...]:
    """The indices at which a reader leaves the buffer, those of the first reader that does."""
    found = (find_outside_axes(view, index.src[1:], buffer.shape) for buffer, index in record.readers)
    return next((outside for outside in found if outside), ())
