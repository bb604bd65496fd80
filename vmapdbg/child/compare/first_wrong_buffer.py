"""Finds the first wrong buffer between the kernels of a schedule, what its kernel read wrongly, and who made the fault.
A kernel that writes a wrong buffer from right buffers is at fault. If the wrong value results when the steps of a scope
read each other's part of a buffer, the INDEX of that buffer is. Runs in the process that compares."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from vmapdbg.check.result import BufferCheck, Comparison, Misread
from vmapdbg.child.compare.kernel_rerun import WrongBuffer, align_buffer, find_fault
from vmapdbg.child.compare.reference_values import ComparedGraph
from vmapdbg.child.evidence.evidence import Evidence, WrittenBuffer
from vmapdbg.reference.arithmetic import load
from vmapdbg.reference.graph import DEVICES, Unknown
from vmapdbg.reference.value import RangedArray
from vmapdbg.values.numbers import Array, decode, encode, find_close
from vmapdbg.values.tolerance import Tolerance

_MOST_STEPS = 2000  # for how many steps of a scope a kernel's value is computed from the part of one step alone
_MOST_COMPARED = 40_000_000  # the most elements times steps that are compared: about a second, and two bytes for each

GotAndRight = tuple[Array, Array]


class BufferWalk:
    """Walks through a schedule's buffers. `graph` is what the scheduler's pass saw, `wrong` the first wrong buffer."""

    def __init__(self, evidence: Evidence, graph: ComparedGraph):
        self.evidence, self.graph = evidence, graph
        self.values = graph.values
        self.wrong: WrongBuffer | None = None

    def walk(self) -> list[BufferCheck]:
        """Compares the buffers in the order of the schedule, up to the first wrong one."""
        checks: list[BufferCheck] = []
        for index, whole in enumerate(self.evidence.buffers):
            slot = self.values.roots[index]
            buffer, check, arrays = self.check_parts(slot, whole)
            if check.comparison is not None and check.is_wrong:
                assert arrays is not None
                tolerance = check.comparison.tolerance
                self.wrong = self._make_wrong_buffer(slot, buffer, tolerance, *arrays)
                fault = find_fault(self.evidence, self.wrong)
                return [*checks, replace(self.explain(index, check, checks, tolerance, *arrays), fault=fault)]
            checks.append(check)
        return checks

    def check_parts(self, slot: int, buffer: WrittenBuffer) -> tuple[WrittenBuffer, BufferCheck, GotAndRight | None]:
        """Returns the first wrong part of a buffer, or else its first, and its check: parts are of several devices."""
        if not buffer.parts or DEVICES in self.values.ambient_of(slot):
            return buffer, *self.check_buffer(slot, buffer)
        checked = [(part, *self.check_buffer(slot, part)) for part in buffer.parts]
        return next((one for one in checked if one[1].is_wrong), checked[0])

    def check_buffer(self, slot: int, buffer: WrittenBuffer) -> tuple[BufferCheck, GotAndRight | None]:
        """Returns the check of a buffer; and what was got and what is right, if they were compared."""
        ambient = self.values.ambient_of(slot)
        kept = {r for r, _ in buffer.stored}
        missing = tuple(self._name_range(r) for r in ambient if r not in kept)
        shape = self.values.whole_shape_of(slot)
        check = BufferCheck(buffer.node, buffer.kernel, shape, buffer.dtype, missing, None, None)
        right = self.values.evaluate([slot])[0]
        if isinstance(right, str):
            return replace(check, reason=right), None
        try:
            got = align_buffer(buffer, self.graph.read(buffer.blob), right.dtype, right.shape, ambient)
        except Unknown as error:
            return replace(check, reason=str(error)), None
        return replace(check, comparison=self.graph.compare(slot, got, right)), (got, right)

    def _name_range(self, r: int) -> str:
        return self.evidence.range_names.get(r, f"r{r}")

    def _make_wrong_buffer(
        self, slot: int, buffer: WrittenBuffer, tolerance: Tolerance, got: Array, right: Array
    ) -> WrongBuffer:
        """Returns what is needed to run a kernel again: on several devices only the first wrong part."""
        ambient = self.values.ambient_of(slot)
        step: tuple[int | slice, ...] = ()
        if buffer.parts:
            axis = ambient.index(DEVICES)
            is_close = find_close(decode(got), decode(right), tolerance).reshape(right.shape)
            others = tuple(other for other in range(len(right.shape)) if other != axis)
            device = int(np.argmin(is_close.all(axis=others)))
            step, buffer = (*[slice(None)] * axis, device), buffer.parts[device]
            ambient = tuple(r for r in ambient if r != DEVICES)

        def compare(found: Array) -> Comparison:
            whole = load(right).copy()
            whole[step] = load(found)
            return self.graph.compare(slot, encode(whole, right.dtype), right)

        part, right_part = (encode(load(one)[step], one.dtype) for one in (got, right))
        return WrongBuffer(buffer, part, right_part, ambient, tolerance, compare, self.graph.read)

    def explain(
        self, index: int, check: BufferCheck, before: list[BufferCheck], tolerance: Tolerance, got: Array, right: Array
    ) -> BufferCheck:
        """Adds to the check of the first wrong buffer which buffers its kernel reads, and which of them wrongly."""
        slot = self.values.roots[index]
        others = {root: i for i, root in enumerate(self.values.roots) if root != slot}
        # the buffers that the kernel reads: their nodes are the nearest ancestors of its node
        sources = sorted(others[s] for s in self.graph.graph.reach([slot], others) if s in others)
        check = replace(check, reads=tuple(self.evidence.buffers[s].node for s in sources))
        if check.missing or any(s >= len(before) or before[s].comparison is None for s in sources):
            return check
        misread = list(filter(None, (self._find_misread(index, s, tolerance, got, right) for s in sources)))
        # if two buffers have the same contents, either could be misread
        return replace(check, misread=misread[0]) if len(misread) == 1 else check

    def _find_misread(self, index: int, source: int, tolerance: Tolerance, got: Array, right: Array) -> Misread | None:
        slot, source_slot = self.values.roots[index], self.values.roots[source]
        sizes = self.values.sizes_of(source_slot)
        # devices are no scope whose steps may be mixed up: each reads its own memory
        if self.evidence.buffers[index].parts or self.evidence.buffers[source].parts:
            return None
        if not 2 <= math.prod(sizes) <= _MOST_STEPS:
            return None
        whole = self.values.evaluate([source_slot])[0]
        assert not isinstance(whole, str)
        numbers = load(whole)
        steps = list(product(*map(range, sizes)))
        by_step = []
        for step in steps:
            value = self.graph.open(given={source_slot: RangedArray(numbers[(*step, ...)])}).evaluate([slot])[0]
            if isinstance(value, str) or value.shape != right.shape:
                return None
            by_step.append(decode(value))
        read = find_steps_read(decode(got), decode(right), by_step, tolerance)
        if not read:
            return None
        first, instead = next(iter(read.items()))
        names = tuple(map(self._name_range, self.values.ambient_of(source_slot)))
        node = self.evidence.buffers[source].node
        return Misread(node, names, len(steps), len(read), step=steps[first], read=steps[instead])


def find_steps_read(
    got: ArrayLike, right: ArrayLike, by_step: Sequence[ArrayLike], tolerance: Tolerance
) -> dict[int, int]:
    """Maps each step of a scope that read another step's part of a buffer to that step. `got` is the wrong value,
    `right` the right one, and `by_step[j]` the value if every step reads step j. Empty if no such reading gives `got`:
    a wrong element depends on several steps or on none, or the elements of one step were read at different steps."""
    if np.size(got) * len(by_step) > _MOST_COMPARED:
        return {}
    gives_right = np.array([find_close(value, right, tolerance) for value in by_step])  # (steps, elements)
    gives_got = np.array([find_close(value, got, tolerance) for value in by_step])
    # an element of no step is the same whatever is read, or depends on many steps
    of_one_step = gives_right.sum(axis=0) == 1
    is_right = np.asarray(find_close(got, right, tolerance))
    if not is_right[~of_one_step].all():
        return {}
    step_of = gives_right.argmax(axis=0)
    wrong: dict[int, int] = {}
    for step in np.unique(step_of[of_one_step]):
        fits_all = np.asarray(gives_got[:, of_one_step & (step_of == step)].all(axis=1))
        found = np.flatnonzero(fits_all)
        if not found.size:
            return {}
        if not fits_all[step]:
            wrong[int(step)] = int(found[0])
    return wrong
