"""One run of stock tinygrad's pass, of any release, as it was observed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vmapdbg.child.capture.observed_reasons import explain_outcome, explain_realized
from vmapdbg.child.capture.view import Launch, MadeBuffer, Ranges, UOp, View, find_values
from vmapdbg.child.listen.classify import asked_of
from vmapdbg.child.listen.overlay_recorder import NOT_NODES
from vmapdbg.child.listen.records import ObservedKernel, ObservedPass
from vmapdbg.child.memory import name_dtype
from vmapdbg.model.capture import Realized


class ObservedView(View):
    """A run of the pass of stock tinygrad. There are no vmap scopes."""

    def __init__(self, passed: ObservedPass, is_brief: bool = False):
        super().__init__(is_brief)
        self.passed = passed
        self.graph = passed.toposort
        self.ids = {u: number for number, u in enumerate(find_nodes(passed))}
        self.lines = {u: origin.line for u, origin in passed.origins.items()}
        self.methods = {u: origin.method for u, origin in passed.origins.items() if origin.method is not None}
        self.range_map = passed.range_map
        self.ambient = {}
        self.scope_ranges = frozenset()
        self.held = passed.held
        self.launches = self._count_launches()

    def explain_realized(self, node: UOp) -> Realized | None:
        return explain_realized(self, node)

    def find_indices(self, node: UOp) -> Ranges:
        # where broadcasting is implicit, they are not all of its ranges
        return asked_of(self.passed, node, node.src[0]) or ()

    def find_buffers(self) -> Iterable[MadeBuffer]:
        for buffer in self.passed.buffers:
            node = buffer.node
            if node is not None and node in self.ids:
                decided = explain_outcome(self, buffer)
                yield MadeBuffer(node, buffer.stage, (), buffer.stored, buffer.readers, (), decided)

    def _count_launches(self) -> list[Launch]:
        """Launches of one kernel that differ only in the value of a variable are one that is launched often."""
        found: dict[Any, list[ObservedKernel]] = {}
        for index, kernel in enumerate(self.passed.kernels):
            key = (kernel.ast, kernel.buffers)
            if not kernel.variables:
                key = (*key, index)
            found.setdefault(key, []).append(kernel)
        return [self._join_launches(launches) for launches in found.values()]

    def _join_launches(self, launches: list[ObservedKernel]) -> Launch:
        first = launches[0]
        written = first.node if first.node in self.ids else None
        varied: frozenset[str] = frozenset()
        if len(launches) > 1:
            varied = frozenset(first.variables)
        return Launch(first.ast, first.buffers, len(launches), varied, written, first.is_compute)


def find_nodes(passed: ObservedPass) -> list[UOp]:
    """Returns the UOps of the graph that compute something, in its order: not those that only say how large it is.

    From 0.13 on a shape is made of constants of a weak int, which may be numbers of the program as well.
    """
    values = {passed.tsink}
    for u in reversed(passed.toposort):
        if u in values:
            values.update(find_values(u))
            if u.op.name == "STORE":
                # the place that it writes to is a node, too
                values.add(u.src[0])
    return [u for u in passed.toposort if _is_node(u, is_value=u in values)]


def _is_node(u: UOp, is_value: bool) -> bool:
    scalar = name_dtype(u.dtype).partition(".")[0]
    if u.op.name in NOT_NODES or scalar == "index":
        return False
    return is_value or scalar != "weakint"
