"""Why a node is realized, and its buffer kept or removed: what was recorded, as the model has it.

Rules and operands only: `page/sentences.py` makes the sentences.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from vmapdbg.child.capture.shown_values import describe_decision
from vmapdbg.child.capture.view import UOp, View
from vmapdbg.child.listen import classify, verdicts
from vmapdbg.child.listen.classify import Cause, find_causes
from vmapdbg.child.listen.records import BufferRecord, Decision
from vmapdbg.child.listen.verdicts import BufferReason, explain_buffer
from vmapdbg.model.capture import Realized, Reason
from vmapdbg.model.vocabulary import RealizedReason, Rule

UNKNOWN = "decided-at"
FORCED = "forced"

# what observing calls a cause, and which reason of the model that is
_REASONS: dict[str, RealizedReason] = {
    classify.OUTPUT: "output",
    classify.ALWAYS: "always",
    classify.SOURCE_OF: "source-of",
    classify.ASSIGN: "assign",
    classify.OUTER_REDUCE: "outer-reduce",
    classify.DISAGREE: "consumers-disagree",
    classify.ENDING: "ending-ranges",
}
_BUFFER_RULES: dict[str, Rule] = {
    verdicts.NEVER_REMOVED: "never-removed",
    verdicts.NOT_REMOVABLE: "not-removable",
    verdicts.MANY_BUFFERS: "many-buffers",
    verdicts.CHEAP: "few-buffers",
    verdicts.SAME_INDEX: "same-index",
    verdicts.CONSTANT: "constant",
    verdicts.THREEFRY: "never-buffered",
    verdicts.OUTPUT: "output",
    verdicts.NO_RULE: "no-rule",
    verdicts.FOLDED: "folded",
    verdicts.TOO_MANY: "buffer-limit",
}


# *** a node is realized


def explain_realized(view: View, node: UOp) -> Realized | None:
    """Returns why a node is written to a buffer, every cause with its operands; None for one that is not."""
    causes = find_causes(view.passed, node)
    reasons = [_explain_cause(view, cause) for cause in causes]
    if node in view.passed.forced:
        return Realized(tuple(range(len(node.shape))), FORCED, "", (Reason(FORCED), *reasons))
    if not causes:
        return None
    # each time the pass lists all axes so far
    axes = causes[-1].axes
    if axes is None or any(cause.axes is None for cause in causes):
        axes = tuple(range(len(node.shape)))
    decided: RealizedReason = UNKNOWN
    if reasons[0].rule != UNKNOWN:
        decided = _REASONS[causes[0].rule]
    refusal = view.passed.refusals.get(node)
    if refusal is not None:
        # a patch that refused a fusion comes before what asked for the buffer in the first place
        decided = refusal.patch
        reasons.insert(0, Reason(refusal.rule, numbers=dict(refusal.numbers)))
    return Realized(tuple(sorted(axes)), decided, "", tuple(reasons))


def _explain_cause(view: View, cause: Cause) -> Reason:
    at = describe_decision(view, cause.decision)
    if cause.rule == classify.OUTPUT:
        return Reason("output", at=at)
    if cause.rule == classify.OUTER_REDUCE:
        return Reason("outer-reduce", at=at)
    if cause.rule == classify.ALWAYS and cause.node.op.name == "VMAPOUT" and cause.node.arg is not None:
        return Reason("kept-scope", (view.ids[cause.node],), at=at)
    if cause.rule == classify.ALWAYS:
        return Reason("always", (view.ids[cause.node],), at=at)
    if cause.rule == classify.DISAGREE:
        return _explain_disagreement(view, cause, Reason(UNKNOWN, at=at))
    if cause.rule == classify.ENDING:
        ends = {r: view.ids[node] for r, node in cause.ending.items() if node in view.ids}
        if ends:
            return Reason("ending-ranges", tuple(ends.values()), view.render_all(ends), at=at)
    if cause.rule == classify.ASSIGN and cause.node.op.name == "ASSIGN":
        return Reason("assign", at=at)
    if cause.rule == classify.ASSIGN and cause.because in view.ids:
        return Reason("assigned-value", (view.ids[cause.because],), at=at)
    if cause.rule == classify.SOURCE_OF and cause.because in view.ids:
        return Reason("source-of", (view.ids[cause.because],), at=at)
    return Reason(UNKNOWN, at=at)


def _explain_disagreement(view: View, cause: Cause, unknown: Reason) -> Reason:
    """The first axis on which the consumers disagree, with the first consumer that asks for each range."""
    known = {axis: asked for axis, asked in cause.asked.items() if _is_realized(cause, axis)}
    if not known:
        return unknown
    where, asked = next(iter(known.items()))
    axis = where if isinstance(where, int) else view.render(where)
    asking = [(view.ids[consumer], view.render(r)) for consumer, r in asked if consumer in view.ids]
    first: dict[str, int] = {}
    for consumer, name in asking:
        first.setdefault(name, consumer)
    if len(first) > 1:
        return Reason("consumers-disagree", tuple(first.values()), tuple(first), axis=axis, at=unknown.at)
    if view.scope_ranges:
        # they ask for loops over the same RANGE, which are not one loop
        consumers = tuple(consumer for consumer, _ in asking)
        return Reason("loops-not-shared", consumers, tuple(first), axis=axis, at=unknown.at)
    return unknown


def _is_realized(cause: Cause, axis: int | UOp) -> bool:
    """Whether this decision realized an axis. An ambient range is no axis of its own."""
    return cause.axes is None or not isinstance(axis, int) or axis in cause.axes


# *** a buffer is kept or removed


def explain_outcome(view: View, buffer: BufferRecord) -> Reason:
    """Returns which rule decided what became of a BUFFERIZE, with its numbers."""
    if not view.passed.kernels and not buffer.stored:
        return Reason("schedule-failed")
    if buffer.stored and buffer.node in view.passed.forced:
        return Reason(FORCED)
    found = explain_buffer(view.passed, buffer)
    if found.numbers is not None:
        rule: Any = found.rule
        return Reason(rule, numbers=found.numbers)
    rule = _name_rule(found)
    reason = Reason(rule, numbers=_find_numbers(rule, found, buffer))
    if found.decision is None:
        return reason
    return replace(reason, at=describe_decision(view, found.decision))


def _name_rule(found: BufferReason) -> Rule:
    if found.rule == verdicts.REDUCE_READS:
        return "reduce-reads-buffer" if found.kept else "reduce-computed-again"
    return _BUFFER_RULES.get(found.rule, UNKNOWN)


def _find_numbers(rule: str, found: BufferReason, buffer: BufferRecord) -> dict[str, int | float | str]:
    if rule in {"never-removed", "never-buffered"}:
        return {"op": buffer.stage.src[0].op.name}
    if rule in {"reduce-reads-buffer", "reduce-computed-again"}:
        return {"reduces": len(found.reduces)}
    if rule in {"many-buffers", "few-buffers"}:
        numbers: dict[str, int | float | str] = {"buffers": len(found.accessed)}
        limit = find_limit(found.decision, "accessed_buffers")
        if limit is not None:
            numbers["limit"] = limit
        return numbers
    return {}


def find_limit(decision: Decision | None, counted: str) -> int | None:
    """Returns the number that the length of `counted` was compared with; None where no condition compares it."""
    if decision is None:
        return None
    for condition in decision.conditions:
        if counted not in condition.text:
            continue
        try:
            tree = ast.parse(condition.text, mode="eval")
        except SyntaxError:
            continue
        for part in ast.walk(tree):
            if isinstance(part, ast.Compare) and counted in ast.unparse(part.left):
                limit = _read_number(part.comparators[0], condition.values)
                if limit is not None:
                    return limit
    return None


def _read_number(part: ast.expr, values: dict[str, Any]) -> int | None:
    value = values.get(ast.unparse(part))
    if isinstance(part, ast.Constant):
        value = part.value
    if isinstance(value, int):
        return value
    return None
