"""Which rule of the overlay decided that a node is realized, and that its buffer is kept or removed. Rules and operands
only: `render/sentences.py` makes the sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype import AddrSpace
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.listen.overlay_recorder import BufferizeRecord, Disagreement, Verdict
from vmapdbg.model.capture import Realized, Reason
from vmapdbg.model.vocabulary import RealizedReason

if TYPE_CHECKING:
    from vmapdbg.child.capture.overlay_view import PassView

# stock's cost function lets a value be computed where it is read if that reads no more buffers than this
# (tinygrad 0.12.0, schedule/rangeify.py, remove_bufferize)
_MOST_BUFFERS = 3
# remove_bufferize looks for these first, whatever they cost
_NEVER_REMOVED = {Ops.CONTIGUOUS, Ops.COPY, Ops.ASSIGN, Ops.ENCDEC, Ops.NOOP}


# *** a node is realized


def explain_realized(view: PassView, u: UOp) -> Realized | None:
    """Returns why a node is written to a buffer, None for one that is not."""
    record = view.record
    if u in record.forced:
        reason, cause = record.forced[u]
        return Realized(tuple(range(len(u.shape))), reason, "", (_explain_forced(view, u, reason, cause),))
    disagreement, ending = record.disagreements.get(u), record.endings.get(u)
    if disagreement is None and ending is None:
        return None
    reasons: list[Reason] = []
    refusal = record.refusals.get(u)
    if refusal is not None:
        reasons.append(Reason(refusal.rule, numbers=dict(refusal.numbers)))
    if disagreement is not None:
        reasons.append(_explain_disagreement(view, disagreement))
    if ending is not None:
        ends_at = tuple(view.ids[expand] for expand in ending.ranges.values())
        reasons.append(Reason("ending-ranges", ends_at, view.render_all(ending.ranges)))
    axes = record.context.realize_map.get(u) or ()
    return Realized(tuple(sorted(axes)), _name_decision(refusal, disagreement), "", tuple(reasons))


def _name_decision(refusal: Any, disagreement: Disagreement | None) -> RealizedReason:
    # a patch that refused a fusion comes before what asked for the buffer in the first place
    if refusal is not None:
        return refusal.patch
    if disagreement is not None:
        return "consumers-disagree"
    return "ending-ranges"


def _explain_forced(view: PassView, u: UOp, reason: str, cause: UOp) -> Reason:
    if reason == "always":
        if u.op.name == "VMAPOUT" and u.arg is not None:
            return Reason("kept-scope", (view.ids[u],))
        return Reason("always", (view.ids[u],))
    if reason == "assign":
        if cause is u:
            return Reason("assign")
        return Reason("assigned-value", (view.ids[cause],))
    if reason == "source-of":
        return Reason("source-of", (view.ids[cause],))
    if reason == "outer-reduce":
        return Reason("outer-reduce")
    return Reason("output")


def _explain_disagreement(view: PassView, found: Disagreement) -> Reason:
    axis = found.where
    if not isinstance(axis, int):
        axis = view.render(axis)
    first: dict[str, int] = {}
    for consumer, r in found.asked:
        first.setdefault(view.render(r), view.ids[consumer])
    if len(first) > 1:
        return Reason("consumers-disagree", tuple(first.values()), tuple(first), axis=axis)
    # they ask for loops over the same RANGE, which are not one loop
    return Reason("loops-not-shared", tuple(view.ids[consumer] for consumer, _ in found.asked), tuple(first), axis=axis)


# *** a buffer is kept or removed


def explain_outcome(view: PassView, node: UOp, record: BufferizeRecord) -> Reason:
    """Returns which rule decided what became of a BUFFERIZE."""
    if not view.record.kernels and not record.stored:
        return Reason("schedule-failed")
    # what the cost function said does not count where a later rule did something else
    if record.verdict is not None and record.verdict.kept == record.stored:
        return explain_verdict(record.verdict)
    if not record.stored:
        return Reason("folded")
    if view.is_output(node):
        return Reason("output")
    return Reason("no-rule")


def explain_verdict(verdict: Verdict) -> Reason:
    """Returns which test of the cost function decided, with its numbers: the same tests in the same order as
    `remove_bufferize` of tinygrad 0.12.0 (schedule/rangeify.py) has them."""
    src, buffer, kept = verdict.value, verdict.buffer, verdict.kept
    if src.op in _NEVER_REMOVED:
        return Reason("never-removed", numbers={"op": src.op.name})
    if not buffer.arg.removable:
        return Reason("not-removable")
    if verdict.again:
        return Reason("computed-again")
    if verdict.reused is not None:
        return Reason(verdict.reused.rule, numbers=dict(verdict.reused.numbers))
    if src.op is Ops.THREEFRY:
        return Reason("never-buffered", numbers={"op": src.op.name})
    accessed, reduces = _find_accessed(src)
    buffers: dict[str, int | float | str] = {"buffers": accessed, "limit": _MOST_BUFFERS}
    if accessed > _MOST_BUFFERS and kept:
        return Reason("many-buffers", numbers=buffers)
    readers = sum(_reads_buffer(r.src[0]) for r in reduces)
    if readers:
        rule = "reduce-reads-buffer" if kept else "reduce-computed-again"
        return Reason(rule, numbers={"reduces": readers})
    if kept:
        return Reason("cost-function")
    return Reason("few-buffers", numbers=buffers)


def _find_accessed(src: UOp) -> tuple[int, list[UOp]]:
    """Returns how many buffers a value reads, and the reduces in it. What a LOCAL buffer holds is part of it."""
    inside, read = _walk_down(src, lambda x: x.op is Ops.BUFFER or _is_global_bufferize(x))
    return len(read), [x for x in inside if x.op is Ops.REDUCE]


def _reads_buffer(value: UOp) -> bool:
    _, read = _walk_down(value, lambda x: x.op in {Ops.BUFFER, Ops.BUFFERIZE})
    return bool(read)


def _walk_down(value: UOp, stops: Callable[[UOp], bool]) -> tuple[list[UOp], set[UOp]]:
    """Returns what a value is made of, and where `stops` ends the walk."""
    if stops(value):
        return [], {value}
    inside = list(value.toposort(gate=lambda x: not stops(x)))
    return inside, {s for x in inside for s in x.src if stops(s)}


def _is_global_bufferize(x: UOp) -> bool:
    return x.op is Ops.BUFFERIZE and x.arg.addrspace == AddrSpace.GLOBAL
