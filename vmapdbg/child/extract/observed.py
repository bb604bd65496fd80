"""The schedules that were observed of stock tinygrad, of any release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vmapdbg.child.adapters import find_adapter
from vmapdbg.child.extract.kernels import KernelBuilder
from vmapdbg.child.extract.observed_view import ObservedView
from vmapdbg.child.extract.schedule import build_schedule, empty_schedule
from vmapdbg.child.record.observe import ObservedPass, ObservedSchedule
from vmapdbg.model import capture as model


def build_schedules(
    observed: list[ObservedSchedule], target: str, progress: Callable[[], object] = lambda: None
) -> tuple[model.Schedule, ...]:
    """Returns the schedules of a snippet in the order it made them, their kernels rendered for `target`. Calls
    `progress` after each kernel. Raises what tinygrad raises for a kernel that the target cannot have, and
    RendererMissing."""
    # a schedule from tinygrad's cache has the pass of the first time: it is looked at once
    built: dict[int, model.Schedule] = {}
    schedules: list[model.Schedule] = []
    for index, schedule in enumerate(observed):
        passed = schedule.passed
        if passed is None:
            made = empty_schedule(index, schedule.line)
        else:
            if id(passed) not in built:
                built[id(passed)] = _build_schedule(passed, target, progress)
            outputs = tuple(schedule.outputs)
            made = replace(built[id(passed)], index=index, line=schedule.line, outputs=outputs)
        not_in_key = {name: (str(then), str(now)) for name, (then, now) in schedule.not_in_key.items()}
        made = replace(made, cached=schedule.cached, not_in_key=not_in_key, buffer_op=find_adapter().stage_op)
        schedules.append(made)
    return tuple(schedules)


def _build_schedule(passed: ObservedPass, target: str, progress: Callable[[], object]) -> model.Schedule:
    view = ObservedView(passed)
    schedule = build_schedule(view, KernelBuilder(view, target).build_all(progress))
    forced, released = (tuple(sorted(view.ids[u] for u in chosen)) for chosen in (passed.forced, passed.released))
    return replace(schedule, forced=forced, released=released)
