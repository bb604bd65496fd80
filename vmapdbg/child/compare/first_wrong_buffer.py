"""Finds the first wrong buffer between the kernels of a schedule, what its kernel read wrongly, and who made the fault.
Runs in the process that compares.

If a buffer is wrong although its kernel reads only right buffers, the kernel is at fault. If the wrong value comes out
when the steps of a scope read each other's part of a buffer, the INDEX of that buffer is at fault. If the kernel as
scheduled gives wrong values by numpy, too, the scheduler made the fault; else a later stage did (`linear_fault`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np

from vmapdbg.check.compare import find_steps_read
from vmapdbg.check.result import BufferCheck, Comparison, KernelFault, Misread
from vmapdbg.child.compare.kernel_rerun import WrongBuffer, align_buffer, run_scheduled
from vmapdbg.child.compare.linear_fault import find_linear_fault
from vmapdbg.child.compare.reference_values import ComparedGraph
from vmapdbg.child.compare.stale import stale_reads
from vmapdbg.child.evidence.graphs import Evidence, WrittenBuffer
from vmapdbg.reference.graph import DEVICES
from vmapdbg.values.numbers import Array, decode, find_close, put_slice, take_slice
from vmapdbg.values.tolerance import Tolerance

_MOST_STEPS = 2000
"""For how many steps of a scope a kernel's value is computed from the part of one step alone."""


class BufferWalk:
    """Walks through the buffers of a schedule. `graph` is the graph that the pass of the scheduler saw."""

    def __init__(self, evidence: Evidence, graph: ComparedGraph):
        self.evidence, self.graph = evidence, graph
        self.read, self.values = graph.read, graph.values

    def walk(self) -> list[BufferCheck]:
        """Compares the buffers in the order of the schedule, up to the first wrong one."""
        checks: list[BufferCheck] = []
        for index, whole in enumerate(self.evidence.buffers):
            slot = self.values.roots[index]
            buffer, check, arrays = self.check_parts(slot, whole)
            if _is_wrong(check):
                assert check.comparison is not None
                assert arrays is not None
                fault = self.find_fault(slot, buffer, check.comparison.tolerance, *arrays)
                return [*checks, replace(self.explain(index, check, checks, *arrays), fault=fault)]
            checks.append(check)
        return checks

    def check_parts(
        self, slot: int, buffer: WrittenBuffer
    ) -> tuple[WrittenBuffer, BufferCheck, tuple[Array, Array] | None]:
        """Returns what was checked, and the result of `check_buffer`. If several devices should have the same buffer,
        that is the first wrong part, or else the first part."""
        if not buffer.parts or DEVICES in self.values.ambient_of(slot):
            return buffer, *self.check_buffer(slot, buffer)
        checked = [(part, *self.check_buffer(slot, part)) for part in buffer.parts]
        return next((one for one in checked if _is_wrong(one[1])), checked[0])

    def check_buffer(self, slot: int, buffer: WrittenBuffer) -> tuple[BufferCheck, tuple[Array, Array] | None]:
        """Returns the check of a buffer; and what was got and what is right, if they were compared."""
        ambient = self.values.ambient_of(slot)
        shape = self.values.sizes_of(slot) + self.values.shape_of(slot)
        kept = {r for r, _ in buffer.stored}
        missing = tuple(self._name_range(r) for r in ambient if r not in kept)
        check = BufferCheck(buffer.node, buffer.kernel, shape, buffer.dtype, missing, None, None)
        right = self.values.evaluate([slot])[0]
        if isinstance(right, str):
            return replace(check, reason=right), None
        got = align_buffer(buffer, self.read(buffer.blob), right, ambient)
        if isinstance(got, str):
            return replace(check, reason=got), None
        return replace(check, comparison=self.graph.compare(slot, got, right)), (got, right)

    def _name_range(self, r: int) -> str:
        return self.evidence.range_names.get(r, f"r{r}")

    # *** who made the fault

    def find_fault(
        self, slot: int, buffer: WrittenBuffer, tolerance: Tolerance, got: Array, right: Array
    ) -> KernelFault:
        """Returns who made a wrong buffer."""
        wrong = self._make_wrong_buffer(slot, buffer, tolerance, got, right)
        fault = self._find_scheduled_fault(wrong)
        if fault.made_by == "lowering":
            return find_linear_fault(self.read, wrong)
        if fault.made_by == "not-told" and find_linear_fault(self.read, wrong).made_by == "compiler":
            # the scheduler made no fault if the program that came of its kernel is right
            return KernelFault("compiler", fault.reason)
        return fault

    def _make_wrong_buffer(
        self, slot: int, buffer: WrittenBuffer, tolerance: Tolerance, got: Array, right: Array
    ) -> WrongBuffer:
        """Returns what is needed to run a kernel again: on several devices only the first wrong part."""
        ambient = self.values.ambient_of(slot)
        step: dict[int, int] = {}
        if buffer.parts:
            axis = ambient.index(DEVICES)
            step = {axis: _first_wrong_device(got, right, axis, tolerance)}
            buffer = buffer.parts[step[axis]]
            ambient = tuple(r for r in ambient if r != DEVICES)

        def compare(found: Array) -> Comparison:
            return self.graph.compare(slot, put_slice(right, step, found), right)

        return WrongBuffer(buffer, take_slice(got, step), take_slice(right, step), ambient, tolerance, compare)

    def _find_scheduled_fault(self, wrong: WrongBuffer) -> KernelFault:
        """Returns whether the scheduler made a wrong buffer, or a later stage (`lowering`)."""
        run = wrong.buffer.run
        if run.kernel is None:
            return KernelFault("not-told", run.refused)
        found = run_scheduled(self.evidence.kernels[run.kernel], run.arguments, wrong, self.read)
        if isinstance(found, str):
            return KernelFault("not-told", found)
        values, undefined = found
        is_same = np.asarray(find_close(decode(wrong.got), decode(values), wrong.tolerance)) | undefined
        if is_same.all():
            return KernelFault("scheduler", is_same=True, stale=stale_reads(self.evidence, self.read, wrong))
        if not undefined.any() and wrong.compare(values).status != "wrong":
            return KernelFault("lowering")
        return KernelFault("scheduler", is_same=False)

    # *** what the kernel of the first wrong buffer read

    def explain(
        self, index: int, check: BufferCheck, before: list[BufferCheck], got: Array, right: Array
    ) -> BufferCheck:
        """Adds to the check of the first wrong buffer which buffers its kernel reads, and which of them wrongly."""
        comparison = check.comparison
        assert comparison is not None
        sources = self._sources_of(index)
        check = replace(check, reads=tuple(self.evidence.buffers[s].node for s in sources))
        if check.missing or any(s >= len(before) or before[s].comparison is None for s in sources):
            return check
        found = [self._find_misread(index, s, comparison, got, right) for s in sources]
        misread = [one for one in found if one is not None]
        if len(misread) == 1:
            return replace(check, misread=misread[0])
        # if two buffers have the same contents, either could be misread
        return check

    def _sources_of(self, index: int) -> list[int]:
        """Returns the numbers of the buffers that the kernel of a buffer reads."""
        slot = self.values.roots[index]
        others = {root: i for i, root in enumerate(self.values.roots) if root != slot}
        return sorted(others[s] for s in self.values.nearest_ancestors(slot, list(others)))

    def _find_misread(
        self, index: int, source: int, comparison: Comparison, got: Array, right: Array
    ) -> Misread | None:
        slot, source_slot = self.values.roots[index], self.values.roots[source]
        sizes = self.values.sizes_of(source_slot)
        # devices are no scope whose steps may be mixed up: each reads its own memory
        if self.evidence.buffers[index].parts or self.evidence.buffers[source].parts:
            return None
        if not 2 <= math.prod(sizes) <= _MOST_STEPS:
            return None
        whole = self.values.evaluate([source_slot])[0]
        assert not isinstance(whole, str)
        steps = list(product(*map(range, sizes)))
        by_step = []
        for step in steps:
            given = take_slice(whole, dict(enumerate(step)))
            value = self.graph.open(given={source_slot: given}).evaluate([slot])[0]
            if isinstance(value, str) or value.shape != right.shape:
                return None
            by_step.append(decode(value))
        read = find_steps_read(decode(got), decode(right), by_step, comparison.tolerance)
        if read is None:
            return None
        first, instead = next(iter(read.items()))
        return Misread(
            node=self.evidence.buffers[source].node,
            ranges=tuple(map(self._name_range, self.values.ambient_of(source_slot))),
            steps=len(steps),
            wrong=len(read),
            step=steps[first],
            read=steps[instead],
        )


def _first_wrong_device(got: Array, right: Array, axis: int, tolerance: Tolerance) -> int:
    """Returns the first of the devices along an axis whose part of a buffer is wrong."""
    is_close = find_close(decode(got), decode(right), tolerance).reshape(right.shape)
    others = tuple(other for other in range(len(right.shape)) if other != axis)
    return int(np.argmin(is_close.all(axis=others)))


def _is_wrong(check: BufferCheck) -> bool:
    return check.comparison is not None and check.comparison.status == "wrong"
