"""Names the rule behind each realized node, with the operands that say it: which consumers ask for which ranges, which
ranges end where.

Known by what the conditions are about and by which UOp the rule was called with, not by line numbers, so that a release
that moves the code keeps its names. What is not known is `decided-at`: its decision has place, text and values.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vmapdbg.child.listen.records import Decision, PassRecord, RealizeDecision, UOp

OUTPUT, ALWAYS, SOURCE_OF, ASSIGN = "output", "always", "source-of", "assign"
OUTER_REDUCE, DISAGREE, ENDING, UNKNOWN = "outer-reduce", "consumers-disagree", "ending-ranges", "decided-at"
_STORES = frozenset({"ASSIGN", "STORE"})


@dataclass(frozen=True)
class Cause:
    """Why a node is realized, as the overlay names it.

    `axes` are those that this decision realized, None for all. `because` is the node that asks for it (`source-of`,
    `assign`, `output`). `asked` has, for each axis (or ambient range) on which the consumers disagree, (consumer, range
    it asks for).
    `ending` maps each range that ends to the node it ends at: an EXPAND, or the consumer that broadcasts.
    """

    rule: str
    node: UOp
    axes: tuple[int, ...] | None
    decision: Decision
    because: UOp | None = None
    asked: dict[int | UOp, tuple[tuple[UOp, UOp], ...]] = field(default_factory=dict)
    ending: dict[UOp, UOp] = field(default_factory=dict)


def find_causes(passed: PassRecord, node: UOp) -> tuple[Cause, ...]:
    """Returns the causes of a realized node, the first one first; empty for a node that is not realized."""
    return tuple(name_cause(passed, decided) for decided in passed.realized.get(node, ()))


def name_cause(passed: PassRecord, decided: RealizeDecision) -> Cause:
    node, axes, decision = decided.node, decided.axes, decided.decision
    about = [c.text for c in decision.conditions if c.holds]
    if any("ending_ranges" in text for text in about):
        ranges = next(
            (v for c in decision.conditions for text, v in c.values.items() if text.startswith("ending_ranges")), ()
        )
        ranges = [passed.loops.get(r, r) for r in ranges]
        return Cause(ENDING, node, axes, decision, ending=find_endings(passed, node, ranges))
    if any("consumer_rngs" in text for text in about):
        asked = find_asked_in_scope(passed, node, decision) if passed.scope_ranges else find_asked(passed, node)
        return Cause(DISAGREE, node, axes, decision, asked=asked)
    return _name_rule(passed, node, axes, decision, about)


def _name_rule(
    passed: PassRecord, node: UOp, axes: tuple[int, ...] | None, decision: Decision, about: list[str]
) -> Cause:
    """One of the rules that realize a node whatever its ranges are: known by the UOps it was called with."""
    called_with = list(decision.operands.values())
    others = [u for u in called_with if u is not node]
    if any("OUTER" in text for text in about):
        return Cause(OUTER_REDUCE, node, axes, decision)
    if any(u is node for u in called_with):
        if not others:
            rule = ASSIGN if node.op.name == "ASSIGN" else ALWAYS
            return Cause(rule, node, axes, decision)
        # called with the target and the value of a STORE: what is stored reads the target
        for consumer in passed.consumers.get(node, ()):
            if consumer.op.name in _STORES:
                return Cause(ASSIGN, node, axes, decision, because=consumer)
        return Cause(UNKNOWN, node, axes, decision)
    if len(others) == 1 and others[0] in passed.toposort:
        asker = others[0]
        if asker is passed.tsink and "tsink" not in decision.operands:
            return Cause(OUTPUT, node, axes, decision, because=asker)
        if asker.op.name in _STORES:
            return Cause(ASSIGN, node, axes, decision, because=asker)
        if asker is not passed.tsink:
            return Cause(SOURCE_OF, node, axes, decision, because=asker)
    return Cause(UNKNOWN, node, axes, decision)


# *** operands


def asked_of(passed: PassRecord, consumer: UOp, node: UOp) -> tuple[UOp, ...] | None:
    """Returns the ranges that a consumer indexes a node with; None where it has no ranges.

    Where broadcasting is implicit (0.14 on), a consumer has more ranges than it indexes its source with.
    """
    ranges = passed.range_map.get(consumer)
    if ranges is None:
        return None
    broadcast: Any = getattr(sys.modules.get("tinygrad.schedule.indexing"), "broadcast_rngs", None)
    if broadcast is None:
        return ranges[0]
    return broadcast(consumer, node, ranges[0])


def find_asked_in_scope(
    passed: PassRecord, node: UOp, decision: Decision
) -> dict[int | UOp, tuple[tuple[UOp, UOp], ...]]:
    """Returns the same for the first axis that our pass found, or for an ambient range, if there is no such axis. Loops
    that differed are one RANGE by now, so they cannot be compared again."""
    consumers = [c for c in passed.consumers.get(node, ()) if c in passed.range_map]
    axes, ambient = decision.find_value("differ"), decision.find_value("batch_differs")
    if axes:
        return {axes[0]: tuple((c, passed.range_map[c][0][axes[0]]) for c in consumers)}
    if ambient:
        r = ambient[0]
        return {r: tuple((c, ambient_of(passed, c).get(r, r)) for c in consumers)}
    return {}


def ambient_of(passed: PassRecord, node: UOp) -> dict[UOp, UOp]:
    """Returns what each ambient range of the inputs of a node is bound to; empty for stock tinygrad."""
    ranges: Any = passed.range_map[node]
    return ranges[2] if len(ranges) > 2 else {}


def find_asked(passed: PassRecord, node: UOp) -> dict[int | UOp, tuple[tuple[UOp, UOp], ...]]:
    """Returns axis -> (consumer, range it asks for), for each axis on which the consumers disagree, valids apart."""
    found = [(c, asked) for c in passed.consumers.get(node, ()) if (asked := asked_of(passed, c, node)) is not None]
    disagree: dict[int | UOp, tuple[tuple[UOp, UOp], ...]] = {}
    for axis in range(min((len(asked) for _, asked in found), default=0)):
        if len({asked[axis].get_idx() for _, asked in found}) > 1:
            disagree[axis] = tuple((consumer, asked[axis]) for consumer, asked in found)
    return disagree


def find_endings(passed: PassRecord, node: UOp, ranges: Iterable[UOp]) -> dict[UOp, UOp]:
    """Returns each range that ends below a node -> the node it ends at.

    From the node to its consumers and theirs, the nearest first.
    """
    wanted, found = dict.fromkeys(ranges), dict[UOp, UOp]()
    todo, seen = [node], {node}
    while todo and len(found) < len(wanted):
        below = todo.pop(0)
        for consumer in passed.consumers.get(below, ()):
            ended = ended_at(passed, consumer, below)
            for r in wanted:
                if r in ended:
                    found.setdefault(r, consumer)
            if consumer not in seen:
                seen.add(consumer)
                todo.append(consumer)
    return found


def ended_at(passed: PassRecord, consumer: UOp, source: UOp) -> set[UOp]:
    """Returns the ranges that a consumer has on axes on which it indexes its source with something else: those that an
    EXPAND adds, and those that an op broadcasts its source over. Axes are aligned at the last one."""
    own, asked = passed.range_map.get(consumer), asked_of(passed, consumer, source)
    if own is None or asked is None:
        return set()
    outside = own[1] if consumer.op.name == "EXPAND" else own[0]
    added = max(len(outside) - len(asked), 0)
    differ = [there for there, here in zip(outside[added:], asked, strict=False) if there is not here]
    # what is outside of a scope is the same for each step of it
    entered = [bound for r, bound in ambient_of(passed, consumer).items() if r not in passed.ambient.get(source, ())]
    return ranges_of(*outside[:added], *differ, *entered)


def ranges_of(*expressions: UOp) -> set[UOp]:
    """The RANGEs that index expressions are made of."""
    return {r for expression in expressions for r in expression.ranges}
