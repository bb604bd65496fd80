"""The schedules that were observed of stock tinygrad, of any release."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace

from vmapdbg.child.capture import schedule
from vmapdbg.child.capture.kernels import KernelBuilder
from vmapdbg.child.capture.observed_view import ObservedView
from vmapdbg.child.listen.adapter import find_adapter
from vmapdbg.child.listen.records import ObservedPass, ObservedSchedule
from vmapdbg.model import capture as model


def build_schedules(
    observed: list[ObservedSchedule],
    target: str,
    progress: Callable[[], object] = lambda: None,
    keeps_failed: bool = False,
    is_brief: bool = False,
    settled: Container[int] = frozenset(),
) -> tuple[model.Schedule, ...]:
    """Returns the schedules of a snippet in the order it made them, their kernels rendered for `target`. Calls
    `progress` after each kernel. Raises what tinygrad raises for a kernel that the target cannot have, unless it
    `keeps_failed` ones, and RendererMissing. `is_brief` is that of `View`, `settled` that of
    `schedule.build_schedules`."""

    def build(passed: ObservedPass) -> model.Schedule:
        view = ObservedView(passed, is_brief)
        made = schedule.build_schedule(view, KernelBuilder(view, target, keeps_failed).build_all(progress))
        forced, released = (tuple(sorted(view.ids[u] for u in chosen)) for chosen in (passed.forced, passed.released))
        return replace(made, forced=forced, released=released)

    built = schedule.build_schedules(observed, build, schedule.choose_settled(observed, settled, target))
    return tuple(_add_cache(made, asked) for made, asked in zip(built, observed, strict=True))


def _add_cache(made: model.Schedule, asked: ObservedSchedule) -> model.Schedule:
    """Adds whether it came out of tinygrad's cache, and what its key there lacks."""
    not_in_key = {name: (str(then), str(now)) for name, (then, now) in asked.not_in_key.items()}
    return replace(made, cached=asked.cached, not_in_key=not_in_key, buffer_op=find_adapter().stage_op)
