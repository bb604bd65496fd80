"""A schedule of the model, from one run of the pass."""

from __future__ import annotations

from collections.abc import Iterable

from vmapdbg.child.extract.buffers import build_bufferizes
from vmapdbg.child.extract.nodes import build_nodes, build_ranges, build_vmap_map
from vmapdbg.child.extract.view import View
from vmapdbg.model import capture as model


def build_schedule(view: View, kernels: Iterable[model.Kernel]) -> model.Schedule:
    """Returns what comes from the run of the pass; index, line and outputs are those of each time it is asked for."""
    return model.Schedule(
        index=0,
        line=None,
        copies=sum(not launch.is_compute for launch in view.launches),
        nodes=build_nodes(view),
        ranges=build_ranges(view),
        vmap_map=build_vmap_map(view),
        bufferizes=build_bufferizes(view),
        kernels=tuple(kernels),
        outputs=(),
    )


def empty_schedule(index: int, line: str | None) -> model.Schedule:
    """Returns that of a graph that was refused before the pass could look at it."""
    return model.Schedule(index, line, 0, (), (), (), (), (), ())
