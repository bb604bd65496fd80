"""A schedule of the model, from one run of the pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from vmapdbg.child.extract.buffers import build_bufferizes
from vmapdbg.child.extract.nodes import build_nodes, build_ranges, build_vmap_map
from vmapdbg.child.extract.view import View
from vmapdbg.child.record.recording import Asked, find_passes
from vmapdbg.model import capture as model

Pass = TypeVar("Pass")

# that of a graph that was refused before the pass could look at it
_REFUSED = model.Schedule(0, None, 0, (), (), (), (), (), ())


def build_schedules(asked: Sequence[Asked[Pass]], build: Callable[[Pass], model.Schedule]) -> list[model.Schedule]:
    """Returns the schedules in the order they were asked for. `build` makes one of a run of the pass, once for
    each run."""
    built = {id(passed): build(passed) for passed in find_passes(asked)}
    schedules: list[model.Schedule] = []
    for index, schedule in enumerate(asked):
        made = _REFUSED
        if schedule.passed is not None:
            made = replace(built[id(schedule.passed)], outputs=tuple(schedule.outputs))
        schedules.append(replace(made, index=index, line=schedule.line))
    return schedules


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
