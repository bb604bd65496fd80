"""The schedules that the overlay's recorder kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vmapdbg.child.extract.kernels import KernelBuilder
from vmapdbg.child.extract.overlay_view import PassView
from vmapdbg.child.extract.schedule import build_schedule, empty_schedule
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
        if passed is None:
            schedules.append(empty_schedule(index, record.line))
            continue
        if id(passed) not in built:
            built[id(passed)] = _build_schedule(passed, target, progress)
        outputs = tuple(record.outputs)
        schedules.append(replace(built[id(passed)], index=index, line=record.line, outputs=outputs))
    return tuple(schedules)


def _build_schedule(record: PassRecord, target: str, progress: Callable[[], object]) -> model.Schedule:
    view = PassView(record)
    return build_schedule(view, KernelBuilder(view, target).build_all(progress))
