"""A schedule of the model, from one run of the pass."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from vmapdbg.child.capture.buffers import build_bufferizes
from vmapdbg.child.capture.nodes import build_nodes, build_ranges, build_vmap_map
from vmapdbg.child.capture.view import View
from vmapdbg.child.listen.lowering import is_compiled
from vmapdbg.child.listen.recording import Asked, find_passes
from vmapdbg.model import capture as model

Pass = TypeVar("Pass")

# that of a graph that was refused before the pass could look at it, and of one of which nothing is to be told
_REFUSED = model.Schedule(0, None, 0, (), (), (), (), (), ())


def build_schedules(
    asked: Sequence[Asked[Pass]], build: Callable[[Pass], model.Schedule], settled: Container[int] = ()
) -> list[model.Schedule]:
    """Returns the schedules in the order they were asked for. `build` makes one of a run of the pass, once for
    each run. Of those whose numbers are `settled` nobody asks more than that they are there."""
    told = [schedule for number, schedule in enumerate(asked) if number not in settled]
    built = {id(passed): build(passed) for passed in find_passes(told)}
    schedules: list[model.Schedule] = []
    for index, schedule in enumerate(asked):
        made = _REFUSED
        if id(schedule.passed) in built:
            made = replace(built[id(schedule.passed)], outputs=tuple(schedule.outputs))
        schedules.append(replace(made, index=index, line=schedule.line))
    return schedules


def choose_settled(asked: Sequence[Asked[Any]], settled: Container[int], target: str) -> frozenset[int]:
    """Returns those of the numbers of `settled` schedules that can be left out: all of their kernels were compiled for
    the target while they ran. To compile others counts up the names of kernels that follow."""
    numbered = enumerate(asked)
    return frozenset(number for number, one in numbered if number in settled and _is_compiled(one.passed, target))


def _is_compiled(passed: Any, target: str) -> bool:
    kernels = () if passed is None else passed.kernels
    return all(is_compiled(kernel.ast, target) for kernel in kernels if kernel.is_compute)


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
