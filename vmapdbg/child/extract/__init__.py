"""Turns what the recorder kept into the model. Runs in the child, after the snippet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinygrad.uop import Ops

from vmapdbg.child.extract.buffers import build_bufferizes
from vmapdbg.child.extract.kernels import KernelBuilder
from vmapdbg.child.extract.nodes import build_nodes, build_ranges, build_vmap_map
from vmapdbg.child.extract.view import PassView
from vmapdbg.child.record.recorder import PassRecord, ScheduleRecord
from vmapdbg.model import capture as model


def build_schedules(
    records: list[ScheduleRecord], target: str, progress: Callable[[], object] = lambda: None
) -> tuple[model.Schedule, ...]:
    """Returns the schedules of a snippet in the order it made them, their kernels rendered for `target`. Calls
    `progress` after each kernel."""
    # a schedule from tinygrad's cache has the record of the first time: it is looked at once
    built: dict[int, model.Schedule] = {}
    schedules = []
    for index, record in enumerate(records):
        passed = record.passed
        if passed is None:  # the graph was refused before the pass could look at it
            schedules.append(model.Schedule(index, record.line, 0, (), (), (), (), (), ()))
            continue
        if id(passed) not in built:
            built[id(passed)] = build_schedule(passed, target, progress)
        outputs = tuple(record.outputs)
        schedules.append(replace(built[id(passed)], index=index, line=record.line, outputs=outputs))
    return tuple(schedules)


def build_schedule(record: PassRecord, target: str, progress: Callable[[], object]) -> model.Schedule:
    """Returns what comes from the run of the pass; index, line and outputs are those of each time it is asked for."""
    view = PassView(record)
    return model.Schedule(
        index=0,
        line=None,
        copies=sum(launched.ast.op is not Ops.SINK for launched in record.kernels),
        nodes=build_nodes(view),
        ranges=build_ranges(view),
        vmap_map=build_vmap_map(view),
        bufferizes=build_bufferizes(view),
        kernels=tuple(KernelBuilder(view, target).build_all(progress)),
        outputs=(),
    )
