"""The schedules that the overlay's recorder kept."""

from __future__ import annotations

from collections.abc import Callable, Container

from vmapdbg.child.capture import schedule
from vmapdbg.child.capture.kernels import KernelBuilder
from vmapdbg.child.capture.overlay_view import PassView
from vmapdbg.child.listen.overlay_recorder import PassRecord, ScheduleRecord
from vmapdbg.model import capture as model


def build_schedules(
    records: list[ScheduleRecord],
    target: str,
    progress: Callable[[], object] = lambda: None,
    keeps_failed: bool = False,
    is_brief: bool = False,
    settled: Container[int] = frozenset(),
) -> tuple[model.Schedule, ...]:
    """Returns the schedules of a snippet in the order it made them, their kernels rendered for `target`. Calls
    `progress` after each kernel. A kernel that tinygrad makes no program of raises, or `keeps_failed` has it kept.
    `is_brief` is that of `View`, `settled` that of `schedule.build_schedules`."""

    def build(record: PassRecord) -> model.Schedule:
        view = PassView(record, is_brief)
        return schedule.build_schedule(view, KernelBuilder(view, target, keeps_failed).build_all(progress))

    return tuple(schedule.build_schedules(records, build, schedule.choose_settled(records, settled, target)))
