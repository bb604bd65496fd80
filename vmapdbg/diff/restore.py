"""Puts the schedules themselves into a diff that was made of their neutral forms: what is shown keeps its own names."""

from __future__ import annotations

from dataclasses import replace

from vmapdbg.diff.neutral import Reading
from vmapdbg.diff.result import BufferizeChange, KernelChange, KernelSide, NodeChange, SameNode, ScheduleDiff
from vmapdbg.model.capture import Bufferize, Node, Range
from vmapdbg.model.schedule_index import ScheduleIndex, index_of


def restore_shown(diff: ScheduleDiff, before: Reading, after: Reading) -> ScheduleDiff:
    """Returns a diff of the compared forms of two schedules with the nodes, ranges, buffers and kernels of the
    schedules."""
    if not (before.is_neutral or after.is_neutral):
        return diff
    left, right = _Side(before), _Side(after)
    return replace(
        diff,
        removed_ranges=tuple(map(left.find_range, diff.removed_ranges)),
        added_ranges=tuple(map(right.find_range, diff.added_ranges)),
        nodes=tuple(_restore_node(item, left, right) for item in diff.nodes),
        nodes_only_before=tuple(left.find_node(node.id) for node in diff.nodes_only_before),
        nodes_only_after=tuple(right.find_node(node.id) for node in diff.nodes_only_after),
        same_nodes=tuple(_restore_same(item, right) for item in diff.same_nodes),
        bufferizes=tuple(_restore_bufferize(item, left, right) for item in diff.bufferizes),
        kernels=tuple(_restore_kernel(item, left, right) for item in diff.kernels),
        folded_before=before.folded,
        folded_after=after.folded,
    )


class _Side:
    def __init__(self, reading: Reading) -> None:
        self.index: ScheduleIndex = index_of(reading.schedule)
        self.shown = reading.shown

    def find_node(self, head: int) -> Node:
        """Returns the node that is stored for a head, which itself computes the value."""
        return self.index.nodes[self.shown.get(head, head)]

    def find_range(self, item: Range) -> Range:
        return self.index.ranges[item.name]

    def find_bufferize(self, made: Bufferize | None) -> Bufferize | None:
        return None if made is None else self.index.bufferizes[self.find_node(made.node).id]

    def find_kernel(self, side: KernelSide) -> KernelSide:
        return KernelSide(side.number, self.index.schedule.kernels[side.number])


def _restore_node(item: NodeChange, left: _Side, right: _Side) -> NodeChange:
    before, after = item.before.id, item.after.id
    if "realized" in item.changed:
        return NodeChange(left.find_node(before), right.find_node(after), item.changed)
    return NodeChange(left.index.nodes[before], right.index.nodes[after], item.changed)


def _restore_same(item: SameNode, right: _Side) -> SameNode:
    node = right.index.nodes[item.after]
    return SameNode(item.before, node.id, node.op, node.shape, node.out_ranges, node.line)


def _restore_bufferize(item: BufferizeChange, left: _Side, right: _Side) -> BufferizeChange:
    before, after = left.find_bufferize(item.before), right.find_bufferize(item.after)
    shown = (after and right.index.op(after.node)) or (before and left.index.op(before.node))
    return replace(item, op=shown or item.op, before=before, after=after)


def _restore_kernel(item: KernelChange, left: _Side, right: _Side) -> KernelChange:
    before, after = tuple(map(left.find_kernel, item.before)), tuple(map(right.find_kernel, item.after))
    return replace(item, before=before, after=after)
