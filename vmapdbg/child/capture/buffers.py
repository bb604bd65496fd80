"""The BUFFERIZE decisions of the model, from one run of the pass: each buffer, and why it was kept or removed.

The tests of the cost function are known by their subject; any other answer is `decided-at`.
"""

from __future__ import annotations

import math
import re
from typing import Any

from vmapdbg.child.capture.nodes import find_outside_axes
from vmapdbg.child.capture.reasons import FORCED, UNKNOWN
from vmapdbg.child.capture.view import PassView, largest_of
from vmapdbg.child.listen.records import BufferRecord, ConditionRecord, DecisionRecord, UOp, Verdict
from vmapdbg.model import capture as model
from vmapdbg.model.capture import Reason
from vmapdbg.model.ops import STAGE_OPS

_READ = frozenset({"BUFFER", "PARAM", "AFTER", *STAGE_OPS})


def build_bufferizes(view: PassView) -> tuple[model.Bufferize, ...]:
    """Returns each BUFFERIZE that the pass made for a node, in the order it made them."""
    return tuple(_build_bufferize(view, made) for made in view.passed.buffers if made.node in view.ids)


def _build_bufferize(view: PassView, made: BufferRecord) -> model.Bufferize:
    buffer = made.stage
    size = math.prod(largest_of(s) for s in buffer.shape)
    # a buffer has its ambient ranges before the ranges of its axes
    ambient = view.passed.ambient.get(made.node, ())
    if buffer.arg.addrspace.name != "GLOBAL" or buffer.src[1 : 1 + len(ambient)] != ambient:
        ambient = ()
    # the indices at which a reader leaves the buffer, from the first reader that does
    readers = made.readers if made.stored else ()
    outside = (find_outside_axes(view, index.src[1:], stage.shape) for stage, index in readers)
    return model.Bufferize(
        node=view.ids[made.node],
        closed_ranges=view.render_all(buffer.src[1:]),
        ambient=view.render_all(ambient),
        size=size,
        bytes=size * buffer.dtype.itemsize,
        addrspace=buffer.arg.addrspace.name,
        outcome="kept" if made.stored else "removed",
        reason="",
        decided=explain_outcome(view, made),
        outside=next(filter(None, outside), ()),
        left_open=view.render_all(r for r in made.left_open if r.arg[-1].name != "OUTER"),
    )


def explain_outcome(view: PassView, buffer: BufferRecord) -> Reason:
    """Returns the rule that kept or removed a BUFFERIZE, with its numbers."""
    passed = view.passed
    if not passed.kernels and not buffer.stored:
        return Reason("schedule-failed")
    if buffer.stored and buffer.node in passed.forced:
        return Reason(FORCED)
    verdict = _find_verdict(buffer)
    if verdict is not None and verdict.decision is not None:
        return _name_rule(buffer, verdict, verdict.decision, view.describe_decision(verdict.decision))
    if verdict is not None:
        rule: Any = verdict.rule
        return Reason(rule, numbers=verdict.numbers)
    if not buffer.stored:
        return Reason("folded")
    if buffer.made_by is not None:
        return Reason("buffer-limit", at=view.describe_decision(buffer.made_by))
    if any(source.base is buffer.node for source in passed.tsink.src):
        return Reason("output")
    return Reason("no-rule")


def _find_verdict(buffer: BufferRecord) -> Verdict | None:
    """Returns the last verdict that agrees with the buffer's fate. Only a rule that looks at a reader refuses to remove
    a buffer: other rules do not apply."""
    wanted = "removed"
    if buffer.stored:
        wanted = "kept"
    verdicts = reversed(buffer.verdicts.values())
    return next((v for v in verdicts if v.outcome == wanted and (v.reader is not None or not buffer.stored)), None)


def _name_rule(buffer: BufferRecord, verdict: Verdict, decision: DecisionRecord, at: model.Decision) -> Reason:
    value, op = verdict.stage.src[0], buffer.stage.src[0].op.name
    if verdict.reader is None:
        if value.op.name == "CONST":
            return Reason("constant", at=at)
        if value.op.name == "INDEX" and value.src[1:] == verdict.stage.src[1:]:
            return Reason("same-index", at=at)
        return Reason(UNKNOWN, at=at)
    if (test := decision.find_condition("removable")) is not None:
        if any(text.endswith("removable") and held is False for text, held in test.values.items()):
            return Reason("not-removable", at=at)
        return Reason("never-removed", numbers={"op": op}, at=at)
    if decision.find_condition("out_in_ratio") is not None or decision.find_condition("is_subs") is not None:
        return Reason(UNKNOWN, at=at)
    if decision.find_condition("buffer_in_reduce") is not None:
        rule = "reduce-computed-again"
        if buffer.stored:
            rule = "reduce-reads-buffer"
        return Reason(rule, numbers={"reduces": _count_reading_reduces(value)}, at=at)
    if decision.find_condition("accessed_buffers") is not None:
        return Reason("many-buffers", numbers=_count_buffers(decision), at=at)
    if buffer.stored:
        return Reason(UNKNOWN, at=at)
    if value.op.name == "THREEFRY":
        return Reason("never-buffered", numbers={"op": op}, at=at)
    return Reason("few-buffers", numbers=_count_buffers(decision), at=at)


def _count_buffers(decision: DecisionRecord) -> dict[str, int | float | str]:
    """Returns how many buffers the value reads, and the limit that a condition compares that with, if any."""
    values = (c.values["accessed_buffers"] for c in decision.conditions if "accessed_buffers" in c.values)
    numbers: dict[str, int | float | str] = {"buffers": len(next(values, ()))}
    limit = next(filter(None, map(_find_limit, decision.conditions)), None)
    if limit is not None:
        numbers["limit"] = limit
    return numbers


def _find_limit(condition: ConditionRecord) -> int | None:
    """Returns the number that `len(accessed_buffers)` is compared with: a literal, or a name with a known value."""
    compared = re.search(r"len\(accessed_buffers\) [<>]=? ([\w.]+)", condition.text)
    if compared is None:
        return None
    if compared[1].isdecimal():
        return int(compared[1])
    return condition.values.get(compared[1])


def _count_reading_reduces(value: UOp) -> int:
    """Counts the reduces in a value that read a buffer, down to the buffers that the value itself reads."""
    nodes = value.toposort(gate=lambda u: u.op.name not in _READ)
    return sum(u.op.name == "REDUCE" and _reads_buffer(u.src[0]) for u in nodes)


def _reads_buffer(value: UOp) -> bool:
    nodes = value.toposort(gate=lambda u: u.op.name not in _READ)
    return value.op.name in _READ or any(s.op.name in _READ for u in nodes for s in u.src)
