"""The schedules of the model, from the records; and decisions that a job makes in place of the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vmapdbg.child.capture.buffers import build_bufferizes
from vmapdbg.child.capture.kernels import KernelBuilder
from vmapdbg.child.capture.nodes import build_node, build_ranges, build_vmap_map
from vmapdbg.child.capture.view import PassView, list_nodes
from vmapdbg.child.listen.records import PassRecord, ScheduleRecord, find_passes
from vmapdbg.child.listen.releases import stage_op
from vmapdbg.install.job import Choice
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
    kernel has that error. For `is_brief` see `PassView`.
    """
    built: dict[int, model.Schedule] = {}
    for passed in find_passes(asked):
        view = PassView(passed, is_brief)
        kernels = tuple(KernelBuilder(view, target, keeps_failed).build_all(progress))
        built[id(passed)] = _build_schedule(view, kernels)
    return tuple(_place(built.get(id(one.passed), _REFUSED), index, one) for index, one in enumerate(asked))


def _place(made: model.Schedule, index: int, asked: ScheduleRecord) -> model.Schedule:
    """Returns the schedule of one time that it was asked for."""
    return replace(
        made,
        index=index,
        line=asked.line,
        outputs=() if made is _REFUSED else tuple(asked.outputs),
        cached=asked.cached,
        not_in_key={name: (str(then), str(now)) for name, (then, now) in asked.not_in_key.items()},
        buffer_op=stage_op(),
    )


def _build_schedule(view: PassView, kernels: tuple[model.Kernel, ...]) -> model.Schedule:
    passed = view.passed
    return model.Schedule(
        index=0,
        line=None,
        copies=sum(not launch.is_compute for launch in view.launches),
        nodes=tuple(build_node(view, u) for u in view.ids),
        ranges=build_ranges(view),
        vmap_map=build_vmap_map(view),
        bufferizes=build_bufferizes(view),
        kernels=kernels,
        outputs=(),
        forced=tuple(sorted(view.ids[u] for u in passed.forced)),
        released=tuple(sorted(view.ids[u] for u in passed.released)),
    )


def make_choices(choices: Sequence[Choice], passed: PassRecord, schedule: int) -> str | None:
    """Sets the nodes of a pass that are forced and released, before it decides anything; choices name nodes by their
    ids in a Capture.

    Returns a line if the schedule has no such node with the same op: another choice removed it.
    """
    asked = [choice for choice in choices if choice.schedule == schedule]
    if not asked:
        return None
    nodes = dict(enumerate(list_nodes(passed)))
    known = [(choice, nodes.get(choice.node)) for choice in asked]
    meant = [(choice, node) for choice, node in known if node is not None and node.op.name == choice.op]
    passed.forced = frozenset(node for choice, node in meant if choice.realized)
    passed.released = frozenset(node for choice, node in meant if not choice.realized)
    if len(meant) == len(asked):
        return None
    return f"{len(asked) - len(meant)} of {len(asked)} choices: schedule {schedule} has no such nodes"
