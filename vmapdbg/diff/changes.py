"""Compares the decisions of the rangeify pass: nodes, `vmap_map`, BUFFERIZE."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from difflib import SequenceMatcher

from vmapdbg.diff.neutral import Reading
from vmapdbg.diff.pairing import Renaming, choose_ranges, find_ranges
from vmapdbg.diff.result import BufferizeChange, NodeChange, SameNode, VmapChange
from vmapdbg.model.capture import Bufferize, Node, Realized, Reason, Schedule
from vmapdbg.model.schedule_index import index_of
from vmapdbg.model.vocabulary import BufferizeField, ChangeStatus, NodeField

# The reason in a capture of stock tinygrad: it is unknown.
_NO_REASON = "stock"
# A range is created for a buffer; other nodes inherit it, so the buffer's vote outweighs theirs.
_BUFFER_WEIGHT = 100_000


def choose_renaming(before: Schedule, after: Schedule, nodes: Mapping[int, int]) -> Renaming:
    """Returns the names of the ranges of before after, given the paired nodes."""
    index = index_of(after)
    pairs: list[tuple[tuple[str, ...], tuple[str, ...], int]] = []
    for node in before.nodes:
        other = index.node(nodes.get(node.id))
        if other is not None:
            pairs.append((node.in_ranges or (), other.in_ranges or (), 1))
            pairs.append((node.out_ranges or (), other.out_ranges or (), 1))
    for item in before.bufferizes:
        buffer = index.find_kept(nodes.get(item.node, -1))
        if buffer is not None and item.outcome == "kept":
            left, right = (tuple(filter(find_ranges, made.closed_ranges)) for made in (item, buffer))
            if len(left) == len(right):
                pairs.append((left, right, _BUFFER_WEIGHT))
    ranges = choose_ranges(pairs, before.ranges, after.ranges)
    return Renaming(ranges, nodes, {item.name for item in before.ranges} - ranges.keys())


def compare_nodes(
    before: Reading, after: Reading, renaming: Renaming, edited: Container[int] = ()
) -> tuple[tuple[NodeChange, ...], tuple[SameNode, ...]]:
    """Returns the paired nodes that changed and the unchanged pairs, by their ids after. `edited` are nodes of before
    that may compute something else than their partners."""
    nodes_before, nodes_after = index_of(before.compared).nodes, index_of(after.compared).nodes
    changes: list[NodeChange] = []
    same: list[SameNode] = []
    for one, other in sorted(renaming.nodes.items(), key=lambda pair: pair[1]):
        node, twin = nodes_before[one], nodes_after[other]
        changed = _find_changed(node, twin, renaming)
        if one in edited and tuple(map(renaming.nodes.get, node.src)) != twin.src:
            changed = (*changed, "src")
        if "realized" in changed:
            changes.append(NodeChange(before.realized(one), after.realized(other), changed))
        elif changed:
            changes.append(NodeChange(before.node(one), after.node(other), changed))
        else:
            shown = after.node(other)
            same.append(SameNode(one, other, shown.op, shown.shape, shown.out_ranges, shown.line))
    return tuple(changes), tuple(same)


def _find_changed(before: Node, after: Node, renaming: Renaming) -> tuple[NodeField, ...]:
    same: dict[NodeField, bool] = {
        "in_ranges": renaming.translate_all(before.in_ranges) == after.in_ranges,
        "out_ranges": renaming.translate_all(before.out_ranges) == after.out_ranges,
        "ambient": renaming.translate_all(before.ambient) == after.ambient,
        "realized": _is_same_realized(before.realized, after.realized, renaming),
    }
    return tuple(name for name, equal in same.items() if not equal)


def _is_same_realized(before: Realized | None, after: Realized | None, renaming: Renaming) -> bool:
    if before is None or after is None:
        return before is after
    if before.axes != after.axes or _NO_REASON in (before.reason, after.reason):
        return before.axes == after.axes
    if before.reason != after.reason:
        return False
    if not before.reasons or not after.reasons:
        # an older capture has only a sentence, which is not compared
        return True
    translated = [renaming.translate_reason(_forget_place(reason)) for reason in before.reasons]
    return translated == [_forget_place(reason) for reason in after.reasons]


def compare_vmap_map(before: Schedule, after: Schedule, renaming: Renaming) -> tuple[VmapChange, ...]:
    """Returns the nodes of both sides whose ambient ranges in `vmap_map` changed, by their ids after."""
    ranges_before = {entry.node: entry.ranges for entry in before.vmap_map}
    ranges_after = {entry.node: entry.ranges for entry in after.vmap_map}
    index = index_of(after)
    changes: list[VmapChange] = []
    for one, other in sorted(renaming.nodes.items(), key=lambda pair: pair[1]):
        left, right = ranges_before.get(one, ()), ranges_after.get(other, ())
        if renaming.translate_all(left) != right:
            changes.append(VmapChange(one, other, index.op(other), left, right))
    return tuple(changes)


def compare_bufferizes(before: Reading, after: Reading, renaming: Renaming) -> tuple[BufferizeChange, ...]:
    """Returns every BUFFERIZE of both sides in the order of after; those of before alone come last."""
    made_before, made_after = before.compared.bufferizes, after.compared.bufferizes
    left = {renaming.nodes[made.node]: made for made in made_before if made.node in renaming.nodes}
    pairs: list[tuple[Bufferize | None, Bufferize | None]] = [(left.get(made.node), made) for made in made_after]
    paired = {made.node for made in made_after}
    pairs += [(made, None) for made in made_before if renaming.nodes.get(made.node) not in paired]
    return tuple(_compare_bufferize(before, after, *pair, renaming) for pair in pairs)


def _compare_bufferize(
    before: Reading, after: Reading, left: Bufferize | None, right: Bufferize | None, renaming: Renaming
) -> BufferizeChange:
    changed: tuple[BufferizeField, ...] = ()
    status: ChangeStatus = "unchanged"
    if left is None:
        status = "only-after"
    elif right is None:
        status = "only-before"
    elif changed := _find_changed_fields(left, right, renaming):
        status = "changed"
    added, removed = _find_added(_list_closed(left), _list_closed(right), renaming)
    sides = [(reading, made) for reading, made in ((before, left), (after, right)) if made is not None]
    reading, made = sides[-1]
    ambient = [name for reading, made in sides for name in index_of(reading.compared).ambient_of(made.node)]
    return BufferizeChange(
        status=status,
        op=reading.realized(made.node).op,
        before=before.bufferize(left),
        after=after.bufferize(right),
        changed=changed,
        added_ranges=added,
        removed_ranges=removed,
        ambient=tuple(dict.fromkeys(ambient)),
        lost_before=index_of(before.compared).find_lost(left),
        lost_after=index_of(after.compared).find_lost(right),
    )


def _list_closed(made: Bufferize | None) -> tuple[str, ...]:
    return () if made is None else made.closed_ranges


def _find_changed_fields(left: Bufferize, right: Bufferize, renaming: Renaming) -> tuple[BufferizeField, ...]:
    same: dict[BufferizeField, bool] = {
        "closed_ranges": renaming.translate_all(left.closed_ranges) == right.closed_ranges,
        "ambient": renaming.translate_all(left.ambient) == right.ambient,
        "size": left.size == right.size,
        "bytes": left.bytes == right.bytes,
        "addrspace": left.addrspace == right.addrspace,
        "outcome": left.outcome == right.outcome,
        "reason": _is_same_decision(left, right, renaming),
    }
    return tuple(name for name, equal in same.items() if not equal)


def _is_same_decision(left: Bufferize, right: Bufferize, renaming: Renaming) -> bool:
    if left.decided is None or right.decided is None:
        # an older capture has only a sentence, without ranges and nodes
        return left.reason == right.reason
    return renaming.translate_reason(_forget_place(left.decided)) == _forget_place(right.decided)


def _forget_place(reason: Reason) -> Reason:
    """Returns a reason without the line of tinygrad's source that decided: it differs between releases. A rule without
    a name keeps the statement."""
    if reason.at is None:
        return reason
    numbers = dict(reason.numbers)
    if reason.rule == "decided-at":
        numbers["text"] = reason.at.text
    return replace(reason, numbers=numbers, at=None)


def _find_added(
    before: tuple[str, ...], after: tuple[str, ...], renaming: Renaming
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    left = renaming.translate_all(before) or ()
    added: list[str] = []
    removed: list[str] = []
    for tag, i, j, k, m in SequenceMatcher(None, left, after, autojunk=False).get_opcodes():
        if tag != "equal":
            removed += before[i:j]
            added += after[k:m]
    return tuple(added), tuple(removed)
