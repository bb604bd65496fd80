"""The schedules of the model, from what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from vmapdbg.child.capture.buffers import build_bufferizes
from vmapdbg.child.capture.kernels import KernelBuilder
from vmapdbg.child.capture.nodes import build_nodes, build_ranges, build_vmap_map
from vmapdbg.child.capture.view import View
from vmapdbg.child.listen.records import ScheduleRecord, find_passes
from vmapdbg.child.listen.releases import stage_op
from vmapdbg.model import capture as model

# the schedule of a graph that was refused before the pass could look at it
_REFUSED = model.Schedule(0, None, 0, (), (), (), (), (), ())


def build_schedules(
    asked: Sequence[ScheduleRecord],
    target: str,
    progress: Callable[[], object] = lambda: None,
    keeps_failed: bool = False,
    is_brief: bool = False,
) -> tuple[model.Schedule, ...]:
    """Returns the schedules in the order they were asked for, their kernels rendered for `target`. Calls `progress`
    after each kernel.

    Raises RendererMissing, and what tinygrad raises for a kernel that the target cannot have; with `keeps_failed` the
    kernel has that error. `is_brief` is that of `View`.
    """
    built: dict[int, model.Schedule] = {}
    for passed in find_passes(asked):
        view = View(passed, is_brief)
        built[id(passed)] = _build_schedule(view, KernelBuilder(view, target, keeps_failed).build_all(progress))
    return tuple(_place(built.get(id(one.passed), _REFUSED), index, one) for index, one in enumerate(asked))


def _place(made: model.Schedule, index: int, asked: ScheduleRecord) -> model.Schedule:
    """Adds what belongs to one time that the schedule was asked for."""
    outputs = () if made is _REFUSED else tuple(asked.outputs)
    # the switches that tinygrad's cache does not have in its key
    not_in_key = {name: (str(then), str(now)) for name, (then, now) in asked.not_in_key.items()}
    return replace(
        made,
        index=index,
        line=asked.line,
        outputs=outputs,
        cached=asked.cached,
        not_in_key=not_in_key,
        buffer_op=stage_op(),
    )


def _build_schedule(view: View, kernels: Iterable[model.Kernel]) -> model.Schedule:
    passed = view.passed
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
        forced=tuple(sorted(view.ids[u] for u in passed.forced)),
        released=tuple(sorted(view.ids[u] for u in passed.released)),
    )
