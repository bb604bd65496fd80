"""What a packed graph says of its vmap scopes: which RANGEs are open in a node, and what it takes to compute it."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp

from vmapdbg.child.evidence.graphs import PackedGraph, PackedNode

SCOPE_OPS = {"VMAPIN", "VMAPOUT"}
_COMPUTED = {op.name for op in GroupOp.ALU}


class Scopes:
    """The scopes of one graph. `given` are slots of nodes whose values are known: nothing below them is asked for."""

    def __init__(self, graph: PackedGraph, given: Collection[int] = ()):
        self.graph = graph
        self.ends = {*given, *(slot for slot, node in enumerate(graph.nodes) if node.op in SCOPE_OPS)}
        self.scope_ranges = {r for slot in range(len(graph.nodes)) for r in self.named_ranges(slot)}
        self.open = self._find_open()
        self._roundings: list[int] | None = None

    def node(self, slot: int) -> PackedNode:
        return self.graph.nodes[slot]

    def named_ranges(self, slot: int) -> tuple[int, ...]:
        """The RANGEs in the varg of a VMAPIN or VMAPOUT."""
        node = self.node(slot)
        if node.op not in SCOPE_OPS:
            return ()
        return tuple(v for v in node.src[1:] if self.node(v).op == "RANGE")

    def size(self, range_slot: int) -> int:
        return int(self.node(self.node(range_slot).src[0]).arg)

    def _find_open(self) -> list[frozenset[int]]:
        """For each node the RANGEs of scopes that it is inside of: it has one value for each of their steps."""
        found: list[frozenset[int]] = []
        for slot, node in enumerate(self.graph.nodes):
            if node.op == "VMAPOUT":
                found.append(found[node.src[0]] - set(self.named_ranges(slot)))
                continue
            ranges = frozenset[int]().union(*(found[s] for s in node.src))
            if slot in self.scope_ranges:
                ranges |= {slot}
            elif node.op == "REDUCE":
                ranges = found[node.src[0]] - set(node.src[1:])
            found.append(ranges)
        return found

    def ambient(self, slot: int) -> tuple[int, ...]:
        """The RANGEs that are open in a node, outermost id first."""
        return tuple(sorted(self.open[slot], key=lambda r: -self.node(r).arg[0]))

    def find_leaving(self, slot: int) -> int | None:
        """The VMAPOUT whose elements, in its order, are those of a node; None where there is none."""
        while self.node(slot).op in {"CONTIGUOUS", "RESHAPE"}:
            slot = self.node(slot).src[0]
        return slot if self.node(slot).op == "VMAPOUT" and self.node(slot).shape is not None else None

    def find_ends(self, slot: int) -> list[int]:
        """The VMAPINs, VMAPOUTs and given nodes at which the way down from a node ends."""
        return [s for s in self.graph.reach(slot, self.ends) if s in self.ends]

    # *** what it takes

    def count_roundings(self, slot: int) -> int:
        """Returns how many roundings there are on the longest way from an input: one an op, n for a reduce of n."""
        if self._roundings is None:
            self._roundings = []
            for node in self.graph.nodes:
                before = max((self._roundings[s] for s in node.src), default=0)
                self._roundings.append(before + self._count_own(node))
        return self._roundings[slot]

    def _count_own(self, node: PackedNode) -> int:
        if node.op == "REDUCE_AXIS":
            shape: tuple[Any, ...] = self.node(node.src[0]).shape or ()
            return math.prod(shape[axis] for axis in node.arg[1] if axis < len(shape))
        if node.op == "REDUCE":
            return math.prod(self.size(r) for r in node.src[1:])
        return int(node.op in _COMPUTED and dtypes.is_float(node.dtype))

    def count_evaluations(self, slot: int) -> int:
        """Returns at most how many graphs must be computed for the value of a node."""
        return 1 + sum(self._count_boundary(s) for s in self.find_ends(slot) if self.node(s).op in SCOPE_OPS)

    def _count_boundary(self, slot: int) -> int:
        source = self.node(slot).src[0]
        steps = 1
        if self.node(slot).op == "VMAPOUT":
            steps = math.prod(self.size(r) for r in self.named_ranges(slot) if r in self.open[source])
        return steps * self.count_evaluations(source)
