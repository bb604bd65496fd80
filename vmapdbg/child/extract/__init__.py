"""Turns what the recorder kept into the model. Runs in the child, after the snippet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.uop import Ops

from vmapdbg import model
from vmapdbg.child.extract.buffers import build_bufferizes
from vmapdbg.child.extract.kernels import KernelBuilder
from vmapdbg.child.extract.nodes import build_nodes, build_ranges, build_vmap_map
from vmapdbg.child.extract.view import PassView
from vmapdbg.child.record.recorder import PassRecord, ScheduleRecord


def build_schedules(
    records: list[ScheduleRecord], target: str, progress: Callable[[], object] | None = None
) -> tuple[model.Schedule, ...]:
    """Returns the schedules of a snippet in the order it made them, their kernels rendered for `target`. Calls
    `progress` after each kernel."""
    # a schedule from tinygrad's cache has the record of the first time: it is looked at once
    built: dict[int, dict[str, Any]] = {}
    schedules = []
    for index, record in enumerate(records):
        if record.passed is None:  # the graph was refused before the pass could look at it
            schedules.append(model.Schedule(index, record.line, 0, (), (), (), (), (), ()))
            continue
        if id(record.passed) not in built:
            built[id(record.passed)] = build_parts(record.passed, target, progress)
        parts = built[id(record.passed)]
        schedules.append(model.Schedule(index=index, line=record.line, outputs=tuple(record.outputs), **parts))
    return tuple(schedules)


def build_parts(record: PassRecord, target: str, progress: Callable[[], object] | None) -> dict[str, Any]:
    """Returns the fields of a Schedule that come from the run of the pass."""
    view = PassView(record)
    return {
        "nodes": build_nodes(view),
        "ranges": build_ranges(view),
        "vmap_map": build_vmap_map(view),
        "bufferizes": build_bufferizes(view),
        "kernels": tuple(KernelBuilder(view, target).build_all(progress)),
        "copies": sum(launched.ast.op is not Ops.SINK for launched in record.kernels),
    }
