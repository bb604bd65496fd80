"""The schedules of the model, from the records, and decisions that a job makes in place of the scheduler."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, takewhile
from typing import Any

from vmapdbg.child.capture.kernels import KernelBuilder
from vmapdbg.child.capture.reasons import FORCED, UNKNOWN, explain_realized
from vmapdbg.child.capture.titles import add_titles
from vmapdbg.child.capture.view import PassView, largest_of, list_nodes, size_of, sizes_of
from vmapdbg.child.listen.guard import leave_out
from vmapdbg.child.listen.records import BufferRecord, DecisionRecord, PassRecord, ScheduleRecord, UOp, find_passes
from vmapdbg.child.listen.releases import stage_op
from vmapdbg.child.listen.rendering import RendererMissing
from vmapdbg.child.memory import name_dtype
from vmapdbg.install.job import Choice
from vmapdbg.model import capture as model
from vmapdbg.model.capture import Reason
from vmapdbg.model.ops import RESHAPING, STAGE_OPS
from vmapdbg.model.vocabulary import Rule

Numbers = dict[str, int | float | str]
_REFUSED = model.Schedule(0, None, 0, (), (), (), (), (), ())  # refused before the pass saw it
_PLAIN = frozenset({"CONST", "BUFFER", "MSELECT", "BIND", "DEFINE_VAR"})  # the argument is shown as it is
_READ = frozenset({"BUFFER", "PARAM", "AFTER", *STAGE_OPS})


def build_schedules(
    asked: Sequence[ScheduleRecord], target: str, keeps_failed: bool = False, is_brief: bool = False
) -> tuple[model.Schedule, ...]:
    """Returns the schedules in the order of the requests, rendered for `target`; for `is_brief` see `PassView`. Raises
    RendererMissing and tinygrad's errors; with `keeps_failed` the kernel has tinygrad's error."""
    built: dict[PassRecord | None, model.Schedule] = {}
    for passed in find_passes(asked):
        try:
            view = PassView(passed, is_brief)
            builder = KernelBuilder(view, target, keeps_failed)
            launches = [launch for launch in view.launches if launch.is_compute]
            kernels = tuple(builder.build_kernel(launch, number) for number, launch in enumerate(launches))
            built[passed] = add_titles(_build_schedule(view, kernels))
        except RendererMissing:
            raise
        except Exception as error:
            if not keeps_failed:
                raise
            leave_out("a schedule", error)
    schedules: list[model.Schedule] = []
    for index, one in enumerate(asked):
        made = built.get(one.passed, _REFUSED)
        outputs = () if made is _REFUSED else tuple(one.outputs)
        not_in_key = {name: (str(then), str(now)) for name, (then, now) in one.not_in_key.items()}
        made = replace(made, index=index, line=one.line, outputs=outputs, cached=one.cached, not_in_key=not_in_key)
        schedules.append(replace(made, buffer_op=stage_op()))
    return tuple(schedules)


def _build_schedule(view: PassView, kernels: tuple[model.Kernel, ...]) -> model.Schedule:
    passed, ids = view.passed, view.ids
    # derived if the pass has no map of its own
    ambient = (passed.ambient if passed.vmap_map is None else passed.vmap_map).items()
    return model.Schedule(
        index=0,
        line=None,
        copies=sum(not launch.is_compute for launch in view.launches),
        nodes=tuple(_build_node(view, u) for u in ids),
        ranges=_build_ranges(view),
        vmap_map=tuple(model.VmapEntry(ids[u], view.render_all(ranges)) for u, ranges in ambient if u in ids),
        bufferizes=tuple(_build_bufferize(view, made) for made in passed.buffers if made.node in ids),
        kernels=kernels,
        outputs=(),
        forced=tuple(sorted(ids[u] for u in passed.forced)),
        released=tuple(sorted(ids[u] for u in passed.released)),
    )


def _build_ranges(view: PassView) -> tuple[model.Range, ...]:
    passed, scopes = view.passed, view.passed.scope_ranges
    # thousands of nodes share few index expressions
    indices = dict.fromkeys(r for ins, outs, *_ in passed.range_map.values() for r in (*ins, *outs))
    used = chain.from_iterable([*(index.ranges for index in indices), *passed.ambient.values()])
    found = dict.fromkeys([*sorted(scopes, key=lambda r: -r.arg[0]), *used])
    return tuple(model.Range(view.render(r), size_of(r.src[0]), r.arg[-1].name, r in scopes) for r in found)


# *** nodes


def _build_node(view: PassView, u: UOp) -> model.Node:
    in_ranges, out_ranges, outside = None, None, ()
    ranges, origin = view.passed.range_map.get(u), view.passed.origins.get(u)
    if ranges is not None:
        in_ranges, out_ranges = view.render_all(ranges[0]), view.render_all(ranges[1])
        if u.src:
            outside = _list_outside(view, view.asked_of(u, u.src[0]) or (), u.src[0]._shape)
    return model.Node(
        id=view.ids[u],
        op=u.op.name,
        dtype=name_dtype(u.dtype),
        shape=sizes_of(u._shape),
        src=tuple(view.ids[s] for s in u.src if s in view.ids),
        in_ranges=in_ranges,
        out_ranges=out_ranges,
        ambient=view.render_all(view.passed.ambient.get(u, ())),
        realized=explain_realized(view, u),
        line=origin and origin.line,
        arg=_describe_argument(view, u),
        outside=outside,
        method=origin and origin.method,
        unsplit=_unsplit_of(view, u),
        function=origin and origin.function,
        phase=origin and origin.phase,
    )


def _unsplit_of(view: PassView, node: UOp) -> model.Unsplit | None:
    """Returns why a reduce is not split in two kernels as stock tinygrad would; None for any other node."""
    unsplit = view.passed.unsplit
    if node.op.name != "REDUCE_AXIS" or not unsplit:
        return None
    # the ranges of a scope got other ids after the report: the reduce is another UOp now, with the same tag
    whole = unsplit.get(node) or next((whole for u, whole in unsplit.items() if u.tag and u.tag == node.tag), None)
    return whole and model.Unsplit("gather", whole.axes, whole.rest, whole.source, whole.between, whole.result)


def _list_outside(view: PassView, indices: Sequence[UOp], sizes: Sequence[Any] | None) -> tuple[model.Outside, ...]:
    """Returns the indices that leave their axes; `sizes` are the sizes of the axes."""
    if view.is_brief or sizes is None or len(sizes) != len(indices):
        return ()
    found = []
    for axis, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        if isinstance(size, int) and (bounds := view.find_outside(index, size)) is not None:
            found.append(model.Outside(axis, view.render(index), *bounds, size))
    return tuple(found)


def _describe_argument(view: PassView, u: UOp) -> str:
    """Returns the argument of a node in words, the same for every release; empty if it has none of its own."""
    name = u.op.name
    if name in RESHAPING:
        return "(" + ", ".join(map(_describe_sizes, u.marg)) + ")"
    if name in {"REDUCE_AXIS", "REDUCE"} and isinstance(u.arg, tuple):
        op, axes = u.arg[:2]
        if isinstance(axes, int):
            axes = tuple(range(axes))  # their number from 0.14 on: they come first
        return f"{op.name} {axes}"
    if name in {"VMAPIN", "VMAPOUT"}:
        return "(" + ", ".join(view.render_all(u.src[1:])) + ")"
    # from 0.14 on variables are PARAMs, too
    if getattr(u.arg, "name", None) is not None and hasattr(u.arg, "slot"):
        bounds = getattr(u.arg, "vmin_vmax", None)
        return u.arg.name if bounds is None else f"{u.arg.name} {bounds[0]}..{bounds[1]}"
    if name == "PARAM" or hasattr(u.arg, "slot"):
        return f"slot {getattr(u.arg, 'slot', u.arg)}"
    if name in _PLAIN and u.arg is not None:
        return str(float(u.arg) if isinstance(u.arg, float) else u.arg)  # tinygrad has a float class of its own
    return str(u.device) if name == "COPY" else ""


def _describe_sizes(part: Any) -> str:
    if isinstance(part, tuple):
        return "(" + ", ".join(map(_describe_sizes, part)) + ")"
    return str(part if isinstance(part, bool) else size_of(part))  # a FLIP has a bool for each axis


# *** buffers, and why each was kept or removed: the tests of the cost function are known by their subject


def _build_bufferize(view: PassView, made: BufferRecord) -> model.Bufferize:
    buffer = made.stage
    size = math.prod(map(largest_of, buffer.shape))
    # a buffer has its ambient ranges before the ranges of its axes
    is_global = buffer.arg.addrspace.name == "GLOBAL"
    ambient = set(view.passed.ambient.get(made.node, ()) if is_global else ())
    # the indices at which a reader leaves the buffer, from the first reader that does
    outside = (_list_outside(view, index.src[1:], stage.shape) for stage, index in made.readers if made.stored)
    return model.Bufferize(
        node=view.ids[made.node],
        closed_ranges=view.render_all(buffer.src[1:]),
        ambient=view.render_all(takewhile(ambient.__contains__, buffer.src[1:])),
        size=size,
        bytes=size * buffer.dtype.itemsize,
        addrspace=buffer.arg.addrspace.name,
        outcome="kept" if made.stored else "removed",
        reason="",
        decided=_explain_outcome(view, made),
        outside=next(filter(None, outside), ()),
        left_open=view.render_all(r for r in made.left_open if r.arg[-1].name != "OUTER"),
    )


def _explain_outcome(view: PassView, buffer: BufferRecord) -> Reason:
    passed = view.passed
    if passed.end != "scheduled" and not buffer.stored and "removed" not in buffer.verdicts:
        is_too_early = passed.end == "failed" and not any(made.stored for made in passed.buffers)
        return Reason("schedule-failed" if is_too_early else "not-followed")
    if buffer.stored and buffer.node in passed.forced:
        return Reason(FORCED)
    # the last verdict that agrees with the buffer's fate
    verdict = buffer.verdicts.get("kept" if buffer.stored else "removed")
    if verdict is not None:
        if verdict.decision is None:
            overlay_rule: Any = verdict.rule
            return Reason(overlay_rule, numbers=verdict.numbers)
        rule, numbers = _name_rule(buffer, verdict.stage, verdict.reader, verdict.decision)
        return Reason(rule, numbers=numbers, at=view.describe_decision(verdict.decision))
    if not buffer.stored:
        return Reason("folded")
    if buffer.made_by is not None:
        return Reason("buffer-limit", at=view.describe_decision(buffer.made_by))
    if any(source.base is buffer.node for source in passed.tsink.src):
        return Reason("output")
    return Reason("no-rule")


def _name_rule(buffer: BufferRecord, stage: UOp, reader: UOp | None, decision: DecisionRecord) -> tuple[Rule, Numbers]:
    value, op = stage.src[0], buffer.stage.src[0].op.name
    if reader is None:
        if value.op.name == "CONST":
            return "constant", {}
        if value.op.name == "INDEX" and value.src[1:] == stage.src[1:]:
            return "same-index", {}
        return UNKNOWN, {}
    if (test := decision.find_condition("removable")) is not None:
        if any(text.endswith("removable") and held is False for text, held in test.values.items()):
            return "not-removable", {}
        return "never-removed", {"op": op}
    if decision.find_condition("out_in_ratio") is not None or decision.find_condition("is_subs") is not None:
        return UNKNOWN, {}
    if decision.find_condition("buffer_in_reduce") is not None:
        # down to the buffers that the value itself reads
        nodes = value.toposort(gate=lambda u: u.op.name not in _READ)
        reduces = sum(u.op.name == "REDUCE" and _reads_buffer(u.src[0]) for u in nodes)
        return "reduce-reads-buffer" if buffer.stored else "reduce-computed-again", {"reduces": reduces}
    if decision.find_condition("accessed_buffers") is not None:
        return "many-buffers", _count_buffers(decision)
    if buffer.stored:
        return UNKNOWN, {}
    if value.op.name == "THREEFRY":
        return "never-buffered", {"op": op}
    return "few-buffers", _count_buffers(decision)


def _count_buffers(decision: DecisionRecord) -> Numbers:
    """Returns how many buffers the value reads, and its limit if a condition has one: a number, or a known name."""
    values = (c.values["accessed_buffers"] for c in decision.conditions if "accessed_buffers" in c.values)
    buffers = len(next(values, ()))
    for condition in decision.conditions:
        if compared := re.search(r"len\(accessed_buffers\) [<>]=? ([\w.]+)", condition.text):
            limit = int(compared[1]) if compared[1].isdecimal() else condition.values.get(compared[1])
            if limit:
                return {"buffers": buffers, "limit": limit}
    return {"buffers": buffers}


def _reads_buffer(value: UOp) -> bool:
    nodes = value.toposort(gate=lambda u: u.op.name not in _READ)
    return value.op.name in _READ or any(s.op.name in _READ for u in nodes for s in u.src)


# *** decisions of a job


def make_choices(choices: Sequence[Choice], passed: PassRecord, schedule: int) -> str | None:
    """Sets the nodes of a pass that are forced and released, before it decides anything; choices name nodes by their
    ids in a Capture. Returns a line if the schedule has no such node with the same op: another choice removed it."""
    asked = [choice for choice in choices if choice.schedule == schedule]
    if not asked:
        return None
    nodes = list_nodes(passed)
    meant = [choice for choice in asked if choice.node < len(nodes) and nodes[choice.node].op.name == choice.op]
    passed.forced = frozenset(nodes[choice.node] for choice in meant if choice.realized)
    passed.released = frozenset(nodes[choice.node] for choice in meant if not choice.realized)
    if len(meant) == len(asked):
        return None
    return f"{len(asked) - len(meant)} of {len(asked)} choices: schedule {schedule} has no such nodes"
