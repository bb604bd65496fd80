"""What the buffers of the snippet hold after each pass: one that is assigned to what is assigned, any other what it
held before. Runs in the child."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from vmapdbg.check.value_path import Difference, RewriteKind, WrongRewrite
from vmapdbg.child.evidence.packing import CannotPack
from vmapdbg.child.failures.known_nodes import KnownNodes
from vmapdbg.child.follow.mixed_packer import MOVEMENT, STAGES, MixedPacker, find_base, find_buffer
from vmapdbg.child.follow.records import PassRun
from vmapdbg.child.follow.steps import describe_uop, find_rule_of
from vmapdbg.reference.graph import Node

UOp = Any
_BELOW_TARGET = MOVEMENT | {"BITCAST", "INDEX", "AFTER"}


class BufferFollower:
    """Packs what buffers hold. `find_own` returns the BUFFER of the snippet that a leaf of any graph stands for, None
    for another."""

    def __init__(self, packer: MixedPacker, find_own: Callable[[UOp], UOp | None]):
        self.packer, self.find_own = packer, find_own

    def pack_memory(self, sink: UOp, buffer: UOp) -> int:
        """Returns the position of what a buffer holds when all of a graph is done. Raises CannotPack."""
        states, assigns = self._find_writes(sink, buffer)
        if states:
            last = states[-1]
            if not set(states) <= set(last.toposort()):
                raise CannotPack("it is written in two ways that do not follow each other")
            return self.packer.pack_memory(last)
        leaves = (u for u in sink.toposort() if self.find_own(u) is buffer)
        memory = self.packer.pack(next(leaves, buffer))
        views = [u for u in assigns if u.src[0].op.name != "INDEX"]
        if views:
            node = self.packer.graph.nodes[memory]
            writes = tuple(self.packer.pack(u) for u in views)
            memory = self.packer.graph.add(Node("after", node.dtype, node.shape, (memory, *writes)))
        for u in assigns:
            if u not in views:
                memory = self.packer.add_write(u, memory)
        return memory

    def _find_writes(self, sink: UOp, buffer: UOp) -> tuple[list[UOp], list[UOp]]:
        """Returns the AFTERs of a buffer, and the ASSIGNs to it, in the order of the graph."""
        states: list[UOp] = []
        assigns: list[UOp] = []
        for u in sink.toposort():
            if u.op.name == "AFTER" and self.find_own(find_buffer(u)) is buffer:
                states.append(u)
            elif u.op.name == "ASSIGN" and self.find_own(find_target(u)) is buffer:
                assigns.append(u)
            elif u.op.name == "ASSIGN" and self.find_own(find_target(u, _BELOW_TARGET | STAGES)) is buffer:
                raise CannotPack("it is written through a buffer that a later pass takes away")
        return states, assigns

    def explain(self, run: PassRun, buffer: UOp, found: Difference, nodes: KnownNodes) -> WrongRewrite | None:
        """Returns the first rewrite of a pass that makes something else of a write to a buffer, or a write of something
        else. `found` is how its contents differ; `nodes` knows which node of the Capture a UOp stands for."""
        for old, new in run.rewrites:
            kind = self._judge(old, new, buffer)
            if kind is not None:
                rule = find_rule_of(run, old, new)
                node = nodes.find(old)
                return WrongRewrite(kind, describe_uop(old), describe_uop(new), rule, found, (), node, None, 1, 0)
        return None

    def _judge(self, old: UOp, new: UOp, buffer: UOp) -> RewriteKind | None:
        if old.op.name == "ASSIGN" and new.op.name != "ASSIGN" and self.find_own(find_target(old)) is buffer:
            return "write"
        made = find_base(new)
        if old.op.name in STAGES and made.op.name == "AFTER" and self.find_own(find_buffer(made)) is buffer:
            return None if old.src[0].op.name in {"ASSIGN", "AFTER"} else "overwrites"
        return None


def find_target(assign: UOp, ops: Container[str] = _BELOW_TARGET) -> UOp:
    """Returns what an ASSIGN writes to, below all of some ops: those that only look at memory."""
    u = assign.src[0]
    while u.op.name in ops:
        u = u.src[0]
    return u
