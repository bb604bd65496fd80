"""Why a node is realized: rules and operands; `page/sentences.py` makes the sentences. A rule is known by the subject
of its conditions and the UOps of its call, because lines move. Others are `decided-at`, with place, text and values."""

from collections.abc import Iterable
from typing import Any

from vmapdbg.child.capture.view import PassView, Ranges
from vmapdbg.child.listen.records import DecisionRecord, RealizeDecision, UOp
from vmapdbg.model import capture as model
from vmapdbg.model.capture import Realized, Reason
from vmapdbg.model.ops import STORES
from vmapdbg.model.vocabulary import RealizedReason

FORCED = "forced"
UNKNOWN = "decided-at"
# rules whose one word is another; the word of any other rule is its name
WORDS: dict[str, RealizedReason] = {
    "kept-scope": "always",
    "loops-not-shared": "consumers-disagree",
    "assigned-value": "assign",
}


def explain_realized(view: PassView, node: UOp) -> Realized | None:
    """Returns why a node is written to a buffer, every cause with its operands; None if it is not written."""
    decisions = view.passed.realized.get(node, [])
    is_forced = node in view.passed.forced
    if not decisions and not is_forced:
        return None
    reasons = [_explain_decision(view, node, decided) for decided in decisions]
    every_axis = tuple(range(len(node._shape or ())))  # on some commits a STORE has no shape
    if is_forced:
        return Realized(every_axis, FORCED, "", (Reason(FORCED), *reasons))
    axes = decisions[-1].axes  # each time the pass lists all axes so far
    if axes is None or any(decided.axes is None for decided in decisions):
        axes = every_axis
    word: Any = WORDS.get(reasons[0].rule, reasons[0].rule)
    refusal = view.passed.refusals.get(node)
    if refusal is not None:
        # a patch that refused a fusion comes before what asked for the buffer in the first place
        word = refusal.patch
        reasons.insert(0, Reason(refusal.rule, numbers=dict(refusal.numbers)))
    return Realized(tuple(sorted(axes)), word, "", tuple(reasons))


def _explain_decision(view: PassView, node: UOp, decided: RealizeDecision) -> Reason:
    at = view.describe_decision(decided.decision)
    if decided.decision.find_condition("ending_ranges") is not None:
        return _explain_ending(view, node, decided.decision, at)
    if decided.decision.find_condition("consumer_rngs") is not None:
        return _explain_disagreement(view, node, decided, at)
    if decided.decision.find_condition("OUTER") is not None:
        return Reason("outer-reduce", at=at)
    return _explain_rule(view, node, decided.decision, at)


def _explain_rule(view: PassView, node: UOp, decision: DecisionRecord, at: model.Decision) -> Reason:
    """Explains a rule that ignores the node's ranges, by the UOps that it was called with."""
    others = [u for u in decision.operands.values() if u is not node]
    asker = None
    if len(others) == len(decision.operands):
        asker = others[0] if len(others) == 1 else None
    elif others:
        # called with target and value of a STORE: what is stored reads the target
        asker = next((c for c in view.passed.consumers.get(node, ()) if c.op.name in STORES), None)
    elif node.op.name == "ASSIGN":
        return Reason("assign", at=at)
    else:
        is_kept = node.op.name == "VMAPOUT" and node.arg is not None
        return Reason("kept-scope" if is_kept else "always", (view.ids[node],), at=at)
    if asker is view.passed.tsink and "tsink" not in decision.operands:
        return Reason("output", at=at)
    if asker is None or asker not in view.ids:
        return Reason(UNKNOWN, at=at)
    if asker.op.name not in STORES:
        return Reason("source-of", (view.ids[asker],), at=at)
    if node.op.name == "ASSIGN":
        return Reason("assign", at=at)
    return Reason("assigned-value", (view.ids[asker],), at=at)


def _explain_disagreement(view: PassView, node: UOp, decided: RealizeDecision, at: model.Decision) -> Reason:
    """Names the first consumer that asks for each range, on the first axis on which the consumers disagree."""
    where, asked = _find_disagreement(view, node, decided)
    axis = view.render(where) if not isinstance(where, int) else where
    consumers = [(view.ids[consumer], view.render(r)) for consumer, r in asked if consumer in view.ids]
    first: dict[str, int] = {}
    for consumer, name in consumers:
        first.setdefault(name, consumer)
    if len(first) > 1:
        return Reason("consumers-disagree", tuple(first.values()), tuple(first), axis=axis, at=at)
    if asked and view.passed.scope_ranges:
        # they ask for loops over the same RANGE, which are not one loop
        return Reason("loops-not-shared", tuple(one for one, _ in consumers), tuple(first), axis=axis, at=at)
    return Reason(UNKNOWN, at=at)


def _find_disagreement(view: PassView, node: UOp, decided: RealizeDecision) -> tuple[int | UOp, list[tuple[UOp, UOp]]]:
    """Returns the first axis or ambient range on which consumers disagree, and (consumer, its range) for each."""
    consumers, range_map = view.passed.consumers.get(node, ()), view.passed.range_map
    axes, ambient = decided.decision.find_value("differ"), decided.decision.find_value("batch_differs")
    if view.passed.scope_ranges and axes is not None:
        # loops that differed are one RANGE by now, so they cannot be compared again: our pass names the axis
        if axes and (decided.axes is None or axes[0] in decided.axes):
            return axes[0], [(c, range_map[c][0][axes[0]]) for c in consumers if c in range_map]
        if ambient and not axes:
            bound = {c: _ambient_of(view, c) for c in consumers if c in range_map}
            return ambient[0], [(c, names.get(ambient[0], ambient[0])) for c, names in bound.items()]
        return 0, []
    found = [(c, asked) for c in consumers if (asked := view.asked_of(c, node)) is not None]
    for axis in range(min((len(asked) for _, asked in found), default=0)):
        differs = len({asked[axis].get_idx() for _, asked in found}) > 1  # valids apart
        if differs and (decided.axes is None or axis in decided.axes):
            return axis, [(consumer, asked[axis]) for consumer, asked in found]
    return 0, []


def _ambient_of(view: PassView, node: UOp) -> dict[UOp, UOp]:
    """Returns the binding of each ambient range of the inputs of a node; empty for stock tinygrad."""
    return getattr(view.passed.range_map[node], "ambient", {})


def _explain_ending(view: PassView, node: UOp, decision: DecisionRecord, at: model.Decision) -> Reason:
    values = (item for condition in decision.conditions for item in condition.values.items())
    ranges = next((value for text, value in values if text.startswith("ending_ranges")), ())
    ending = _find_ends(view, node, [view.passed.loops.get(r, r) for r in ranges])
    ends = {r: view.ids[ended] for r, ended in ending.items() if ended in view.ids}
    if not ends:
        return Reason(UNKNOWN, at=at)
    return Reason("ending-ranges", tuple(ends.values()), view.render_all(ends), at=at)


def _find_ends(view: PassView, node: UOp, ranges: Iterable[UOp]) -> dict[UOp, UOp]:
    """Maps each range that ends below a node to the nearest node with its end: an EXPAND or a broadcasting consumer."""
    wanted, found = dict.fromkeys(ranges), dict[UOp, UOp]()
    todo, seen = [node], {node}
    while todo and len(found) < len(wanted):
        below = todo.pop(0)
        for consumer in view.passed.consumers.get(below, ()):
            ended = _ended_at(view, consumer, below)
            for r in filter(ended.__contains__, wanted):
                found.setdefault(r, consumer)
            if consumer not in seen:
                seen.add(consumer)
                todo.append(consumer)
    return found


def _ended_at(view: PassView, consumer: UOp, source: UOp) -> set[UOp]:
    """Returns the ranges that an EXPAND or a broadcast of a consumer adds to its source; axes align at the last."""
    ranges, asked = view.passed.range_map.get(consumer), view.asked_of(consumer, source)
    if ranges is None or asked is None:
        return set()
    outside: Ranges = ranges[1] if consumer.op.name == "EXPAND" else ranges[0]
    added = max(len(outside) - len(asked), 0)
    differ = [there for there, here in zip(outside[added:], asked, strict=False) if there is not here]
    ambient = view.passed.ambient.get(source, ())  # what is outside of a scope is the same for each step
    entered = [bound for r, bound in _ambient_of(view, consumer).items() if r not in ambient]
    return {r for index in (*outside[:added], *differ, *entered) for r in index.ranges}
