"""Walks back from a wrong output to the first wrong buffer between the kernels, and to what its kernel read wrongly.
Runs in the oracle.

A buffer that is wrong although all the buffers that its kernel reads are right is that kernel's fault. Where the value
is what comes out when the steps of a scope read each other's part of one of those buffers, that buffer's INDEX is it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from vmapdbg.check.misread import find_steps_read
from vmapdbg.check.result import BufferCheck, Comparison, KernelFault, Misread
from vmapdbg.child.compare.kernel_fault import find_kernel_fault
from vmapdbg.child.compare.oracle import Read, Values
from vmapdbg.child.compare.wrong_buffer import WrongBuffer, align_buffer
from vmapdbg.child.evidence.graphs import Evidence, WrittenBuffer
from vmapdbg.reference.graph import DEVICES
from vmapdbg.values.close import find_close
from vmapdbg.values.numbers import Array, decode
from vmapdbg.values.slices import put_slice, take_slice
from vmapdbg.values.tolerance import Tolerance


@dataclass(frozen=True)
class Walk:
    """What the walk needs. `values` are those of the graph as the pass saw it, `remake` makes others of the same graph
    in which the values of some nodes are given. `compare` compares the value of a node (its slot, what was got, what
    is right). `limit` is the most graphs that are run for one buffer."""

    evidence: Evidence
    read: Read
    limit: int
    values: Values
    remake: Callable[[Mapping[int, Array]], Values]
    compare: Callable[[int, Array, Array], Comparison]

    def walk_back(self) -> list[BufferCheck]:
        """Compares the buffers in the order of the schedule, up to the first wrong one."""
        checks: list[BufferCheck] = []
        for index, whole in enumerate(self.evidence.buffers):
            slot = self.values.roots[index]
            buffer, check, values = self.check_parts(slot, whole)
            if _is_wrong(check):
                assert check.comparison is not None
                assert values is not None
                fault = self.find_fault(slot, buffer, check.comparison.tolerance, *values)
                return [*checks, replace(self.explain(index, check, checks, *values), fault=fault)]
            checks.append(check)
        return checks

    def check_parts(
        self, slot: int, buffer: WrittenBuffer
    ) -> tuple[WrittenBuffer, BufferCheck, tuple[Array, Array] | None]:
        """Returns the check of a buffer, as `check_buffer`, with what was checked: where it should be the same on each
        of several devices, the first of its parts that is wrong, or the first of them."""
        if not buffer.parts or DEVICES in self.values.find_ambient(slot):
            return buffer, *self.check_buffer(slot, buffer)
        checked = [(part, *self.check_buffer(slot, part)) for part in buffer.parts]
        return next((one for one in checked if _is_wrong(one[1])), checked[0])

    def check_buffer(self, slot: int, buffer: WrittenBuffer) -> tuple[BufferCheck, tuple[Array, Array] | None]:
        """Returns the check of a buffer, and where it was compared what was got and what is right."""
        ambient, own = self.values.find_ambient(slot), self.values.find_shape(slot)
        shape = self.values.find_sizes(slot) + (own or ())
        kept = {r for r, _ in buffer.stored}
        missing = tuple(self.evidence.range_names.get(r, f"r{r}") for r in ambient if r not in kept)
        check = BufferCheck(buffer.node, buffer.kernel, shape, buffer.dtype, missing, None, None)
        if own is None:
            return replace(check, reason="it has no fixed shape"), None
        if self.values.count_batch(slot) > self.limit:
            return replace(check, reason=f"its scopes have more than {self.limit} steps (--elements)"), None
        right = self.evaluate(slot)
        if isinstance(right, str):
            return replace(check, reason=right), None
        got = align_buffer(buffer, self.read(buffer.blob), right, ambient)
        if isinstance(got, str):
            return replace(check, reason=got), None
        return replace(check, comparison=self.compare(slot, got, right)), (got, right)

    def evaluate(self, slot: int) -> Array | str:
        try:
            return self.values.evaluate_batch(slot)
        except Exception as error:  # the node exists in the pass alone, and stock cannot run it by itself
            return f"stock tinygrad does not compute it by itself: {error}"

    # *** who made the fault

    def find_fault(
        self, slot: int, buffer: WrittenBuffer, tolerance: Tolerance, got: Array, right: Array
    ) -> KernelFault:
        ambient = self.values.find_ambient(slot)

        def judge(found: Array) -> Comparison:
            return self.compare(slot, found, right)

        if buffer.parts:
            device = find_wrong_device(got, right, ambient.index(DEVICES), tolerance)
            buffer, step = buffer.parts[device], {ambient.index(DEVICES): device}
            whole, ambient = right, tuple(r for r in ambient if r != DEVICES)
            got, right = take_slice(got, step), take_slice(right, step)

            def judge(found: Array) -> Comparison:
                return self.compare(slot, put_slice(whole, step, found), whole)

        wrong = WrongBuffer(buffer, got, right, ambient, tolerance, judge)
        return find_kernel_fault(self.evidence, self.read, wrong)

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
        slot = self.values.roots[index]
        others = {root: i for i, root in enumerate(self.values.roots) if root != slot}
        return sorted(others[s] for s in self.values.find_between(slot, list(others)))

    def find_misread(self, index: int, source: int, comparison: Comparison, got: Array, right: Array) -> Misread | None:
        slot, source_slot = self.values.roots[index], self.values.roots[source]
        sizes = self.values.find_sizes(source_slot)
        # each device reads memory of its own: they are no scope whose steps may be mixed up
        if self.evidence.buffers[index].parts or self.evidence.buffers[source].parts:
            return None
        if math.prod(sizes) < 2 or math.prod(sizes) * self.values.count_batch(slot) > self.limit:
            return None
        whole = self.values.evaluate_batch(source_slot)
        assert not isinstance(whole, str)
        steps = list(product(*map(range, sizes)))
        by_step = []
        for step in steps:
            given = take_slice(whole, dict(enumerate(step)))
            value = self.remake({source_slot: given}).evaluate_batch(slot)
            if isinstance(value, str) or value.shape != right.shape:
                return None
            by_step.append(decode(value))
        read = find_steps_read(decode(got), decode(right), by_step, comparison.tolerance)
        if read is None:
            return None
        first, instead = next(iter(read.items()))
        return Misread(
            node=self.evidence.buffers[source].node,
            ranges=tuple(self.evidence.range_names.get(r, f"r{r}") for r in self.values.find_ambient(source_slot)),
            steps=len(steps),
            wrong=len(read),
            step=steps[first],
            read=steps[instead],
        )


def find_wrong_device(got: Array, right: Array, axis: int, tolerance: Tolerance) -> int:
    """Returns the first of the devices along an axis whose part of a buffer is wrong."""
    is_close = find_close(decode(got), decode(right), tolerance).reshape(right.shape)
    others = tuple(other for other in range(len(right.shape)) if other != axis)
    return int(np.argmin(is_close.all(axis=others)))


def _is_wrong(check: BufferCheck) -> bool:
    return check.comparison is not None and check.comparison.status == "wrong"
