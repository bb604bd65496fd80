"""How often each rule realized a node, kept or removed a buffer, and left a reduce whole."""

from __future__ import annotations

from dataclasses import dataclass

from vmapdbg.model.capture import Bufferize, Capture, Reason, Schedule
from vmapdbg.model.schedule_index import index_of


@dataclass
class RealizedCount:
    """The nodes that one rule realized: how many, and what became of their buffers. `bytes` is what the kept ones
    hold. `example` is the first of them, a node of `schedule`, with its reason."""

    rule: str
    schedule: int
    example: int
    reason: Reason | None
    nodes: int = 0
    kept: int = 0
    bytes: int = 0


@dataclass
class OutcomeCount:
    """The buffers about which one rule decided."""

    outcome: str
    rule: str
    buffers: int = 0
    bytes: int = 0


def count_realized(capture: Capture) -> list[RealizedCount]:
    """Returns for each rule that realized nodes, and each place in tinygrad's source that did so without one, how many;
    the most first."""
    found: dict[tuple[str, str], RealizedCount] = {}
    for schedule in capture.schedules:
        for node in schedule.nodes:
            if node.realized is None:
                continue
            reason = next(iter(node.realized.reasons), None)
            rule = node.realized.reason if reason is None else reason.rule
            key = rule, _place_of(reason)
            count = found.setdefault(key, RealizedCount(rule, schedule.index, node.id, reason))
            count.nodes += 1
            _add_buffer(count, schedule, node.id)
    return sorted(found.values(), key=lambda count: -count.nodes)


def _place_of(reason: Reason | None) -> str:
    """What has no rule is told apart by where it was decided."""
    if reason is None or reason.at is None or reason.rule != "decided-at":
        return ""
    return f"{reason.at.file}:{reason.at.line}"


def _add_buffer(count: RealizedCount, schedule: Schedule, node: int) -> None:
    made: Bufferize | None = index_of(schedule).bufferizes.get(node)
    if made is not None and made.outcome == "kept":
        count.kept += 1
        count.bytes += made.bytes


def count_outcomes(capture: Capture) -> list[OutcomeCount]:
    """Returns for each rule by which a buffer was kept or removed how many it decided about, the most first."""
    found: dict[tuple[str, str], OutcomeCount] = {}
    for schedule in capture.schedules:
        for made in schedule.bufferizes:
            rule = made.outcome if made.decided is None else made.decided.rule
            count = found.setdefault((made.outcome, rule), OutcomeCount(made.outcome, rule))
            count.buffers += 1
            count.bytes += made.bytes
    return sorted(found.values(), key=lambda count: (count.outcome, -count.buffers))


@dataclass
class UnsplitCount:
    """The reduces that a patch leaves whole where stock tinygrad splits them, by the rule. `example` is the first of
    them, a node of `schedule`."""

    rule: str
    schedule: int
    example: int
    nodes: int = 0


def count_unsplit(capture: Capture) -> list[UnsplitCount]:
    """Returns for each rule by which reduces are not split how many they are, the most first."""
    found: dict[str, UnsplitCount] = {}
    for schedule in capture.schedules:
        for node in schedule.nodes:
            if node.unsplit is not None:
                rule = node.unsplit.rule
                found.setdefault(rule, UnsplitCount(rule, schedule.index, node.id)).nodes += 1
    return sorted(found.values(), key=lambda count: -count.nodes)
