"""Walks back from a wrong output to the first wrong buffer between the kernels, and to what its kernel read wrongly.
Runs in the oracle, on stock tinygrad.

A buffer that is wrong although all the buffers that its kernel reads are right is that kernel's fault. Where the value
is what comes out when the steps of a scope read each other's part of one of those buffers, that buffer's INDEX is it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

from vmapdbg.check.align import align
from vmapdbg.check.misread import find_steps_read
from vmapdbg.check.result import BufferCheck, Comparison, Misread
from vmapdbg.child.evidence.graphs import Evidence, WrittenBuffer
from vmapdbg.child.oracle.unroll import Unroller
from vmapdbg.values.numbers import Array, decode
from vmapdbg.values.slices import take_slice


@dataclass(frozen=True)
class Walk:
    """What the walk needs. `unroller` has the graph as the pass saw it, `remake` makes another one of the same graph
    in which the values of some nodes are given. `compare` compares the value of a node (its slot, what was got, what
    is right). `limit` is the most graphs that are run for one buffer."""

    evidence: Evidence
    read: Callable[[str], bytes]
    limit: int
    unroller: Unroller
    remake: Callable[[Mapping[int, Array]], Unroller]
    compare: Callable[[int, Array, Array], Comparison]

    def walk_back(self) -> list[BufferCheck]:
        """Compares the buffers in the order of the schedule, up to the first wrong one."""
        checks: list[BufferCheck] = []
        for index, buffer in enumerate(self.evidence.buffers):
            check, values = self.check_buffer(self.unroller.graph.roots[index], buffer)
            if check.comparison is not None and check.comparison.status == "wrong":
                assert values is not None
                return [*checks, self.explain(index, check, checks, *values)]
            checks.append(check)
        return checks

    def check_buffer(self, slot: int, buffer: WrittenBuffer) -> tuple[BufferCheck, tuple[Array, Array] | None]:
        """Returns the check of a buffer, and where it was compared what was got and what is right."""
        unroller = self.unroller
        ambient = [unroller.scopes.node(r).arg[0] for r in unroller.scopes.ambient(slot)]
        sizes = self.find_sizes(slot)
        shape = sizes + tuple(unroller.scopes.node(slot).shape or ())
        kept = {r for r, _ in buffer.stored}
        missing = tuple(self.evidence.range_names.get(r, f"r{r}") for r in ambient if r not in kept)
        check = BufferCheck(buffer.node, buffer.kernel, shape, buffer.dtype, missing, None, None)
        if unroller.scopes.node(slot).shape is None:
            return replace(check, reason="it has no fixed shape"), None
        if self.count_evaluations(slot) > self.limit:
            return replace(check, reason=f"its scopes have more than {self.limit} steps (--elements)"), None
        try:
            right = unroller.evaluate_batch(slot)
        except Exception as error:  # the node exists in the pass alone, and stock cannot run it by itself
            return replace(check, reason=f"stock tinygrad does not compute it by itself: {error}"), None
        got = align(self.read(buffer.blob), right, buffer.stored, buffer.closed, ambient)
        if isinstance(got, str):
            return replace(check, reason=got), None
        return replace(check, comparison=self.compare(slot, got, right)), (got, right)

    def find_sizes(self, slot: int) -> tuple[int, ...]:
        return tuple(self.unroller.scopes.size(r) for r in self.unroller.scopes.ambient(slot))

    def count_evaluations(self, slot: int) -> int:
        return self.unroller.scopes.count_evaluations(slot) * math.prod(self.find_sizes(slot))

    # *** what the kernel of the first wrong buffer read

    def explain(
        self, index: int, check: BufferCheck, before: list[BufferCheck], got: Array, right: Array
    ) -> BufferCheck:
        """Adds to the check of the first wrong buffer which buffers its kernel reads, and which it reads wrongly."""
        comparison = check.comparison
        assert comparison is not None
        sources = self.find_sources(index)
        check = replace(check, reads=tuple(self.evidence.buffers[s].node for s in sources))
        if check.missing or any(s >= len(before) or before[s].comparison is None for s in sources):
            return check
        found = [self.find_misread(index, s, comparison, got, right) for s in sources]
        misread = [one for one in found if one is not None]
        if len(misread) == 1:
            return replace(check, misread=misread[0])
        # two buffers with the same contents: either could be it
        return check

    def find_sources(self, index: int) -> list[int]:
        """The buffers that the kernel of a buffer reads, by their indices in the evidence."""
        graph = self.unroller.graph
        slot = graph.roots[index]
        others = {root: i for i, root in enumerate(graph.roots) if root != slot}
        return sorted(others[s] for s in graph.reach(slot, others) if s in others)

    def find_misread(self, index: int, source: int, comparison: Comparison, got: Array, right: Array) -> Misread | None:
        roots = self.unroller.graph.roots
        slot, source_slot = roots[index], roots[source]
        sizes = self.find_sizes(source_slot)
        if math.prod(sizes) < 2 or math.prod(sizes) * self.count_evaluations(slot) > self.limit:
            return None
        whole = self.unroller.evaluate_batch(source_slot)
        steps = list(product(*map(range, sizes)))
        by_step = []
        for step in steps:
            given = take_slice(whole, dict(enumerate(step)))
            by_step.append(decode(self.remake({source_slot: given}).evaluate_batch(slot)))
        read = find_steps_read(decode(got), decode(right), by_step, comparison.tolerance)
        if read is None:
            return None
        first, instead = next(iter(read.items()))
        names = [self.unroller.scopes.node(r).arg[0] for r in self.unroller.scopes.ambient(source_slot)]
        return Misread(
            node=self.evidence.buffers[source].node,
            ranges=tuple(self.evidence.range_names.get(name, f"r{name}") for name in names),
            steps=len(steps),
            wrong=len(read),
            step=steps[first],
            read=steps[instead],
        )
