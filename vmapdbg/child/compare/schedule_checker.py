"""Compares the outputs of one schedule, and what the snippet's buffers hold, with the numpy reference. Runs in the
process that compares."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.compare import Rounding, compare, excuse_rounding
from vmapdbg.check.result import BufferCheck, CheckedKind, Comparison, ExpectedOutput, OutputCheck, ScheduleCheck
from vmapdbg.child.compare.first_wrong_buffer import BufferWalk
from vmapdbg.child.compare.reference_values import DOUBLE, MOVED, Read, ReferenceValues
from vmapdbg.child.compare.stale import overwritten_inputs, stale_value
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence, HeldBuffer
from vmapdbg.model.wording import format_plural
from vmapdbg.reference.graph import DEVICES
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import Array, decode, make_plain, view_elements

Which = Literal["asked", "passed"]
"""The graph as the snippet asked for it, or as the pass of the scheduler saw it."""

Again = Callable[[ReferenceValues], Array | str]
"""Computes a value again, with other values of its graph."""

_SHOWN = 8
"""How many elements of an expected output are reported."""


class ScheduleChecker:
    """Checks one schedule."""

    def __init__(self, evidence: Evidence, folder: EvidenceFolder):
        self.evidence, self.read = evidence, folder.read_data
        # why something was not compared
        self.unchecked = list(evidence.unchecked)
        # all values that were asked for
        self._opened: list[ReferenceValues] = []
        self._precise: dict[tuple[Which, int], ReferenceValues] = {}

    def check(self) -> ScheduleCheck:
        """Returns how the schedule compares."""
        evidence = self.evidence
        outputs: list[OutputCheck] = []
        expected: tuple[ExpectedOutput, ...] = ()
        if evidence.failed is not None:
            expected = expected_outputs(evidence, self.read)
        elif evidence.reference is not None:
            outputs = self.check_outputs()
        elif evidence.reference_refused is not None:
            self.unchecked.append(evidence.reference_refused)
        buffers: list[BufferCheck] = []
        if any(output.comparison.status == "wrong" for output in outputs):
            buffers = self.find_buffers()
        failed_kernel = evidence.failed_kernel
        if failed_kernel is None and evidence.crash is not None:
            failed_kernel = evidence.crash.kernel
        return ScheduleCheck(
            schedule=evidence.schedule,
            line=evidence.line,
            outputs=tuple(outputs),
            buffers=tuple(buffers),
            unchecked=tuple(dict.fromkeys(self.unchecked)),
            failed=evidence.failed,
            evaluations=sum(values.evaluations for values in self._opened),
            failed_kernel=failed_kernel,
            failed_node=evidence.failed_node,
            replay=evidence.replay,
            crash=evidence.crash,
            expected=expected,
            lost=tuple(evidence.lost),
            cut=tuple(evidence.cut),
            is_sharded=evidence.is_sharded,
        )

    def find_buffers(self) -> list[BufferCheck]:
        """Compares the buffers between the kernels in the order of the schedule, up to the first wrong one."""
        if self.evidence.reference_passed is None:
            if self.evidence.passed_refused is not None:
                self.unchecked.append(f"the buffers between its kernels: {self.evidence.passed_refused}")
            return []
        values = self.open("passed")

        def compare_buffer(slot: int, got: Array, right: Array) -> Comparison:
            return self.compare("passed", values, slot, got, right, lambda v: v.evaluate([slot])[0])

        def with_given(given: Mapping[int, Array]) -> ReferenceValues:
            return self.open("passed", given=given)

        return BufferWalk(self.evidence, self.read, values, with_given, compare_buffer).walk()

    # *** values and comparisons

    def open(self, which: Which, precision: int | None = None, given: Mapping[int, Array] = {}) -> ReferenceValues:
        """Returns the values of a graph that the evidence has."""
        graph = self.evidence.reference if which == "asked" else self.evidence.reference_passed
        assert graph is not None
        values = ReferenceValues(graph, self.read, precision, given)
        self._opened.append(values)
        return values

    def compare(
        self, which: Which, values: ReferenceValues, slot: int, got: Array, right: Array, again: Again
    ) -> Comparison:
        """Compares the value of a node. A wrong value is computed `again` in double precision, which separates rounding
        from a fault."""
        undefined = values.undefined_elements(slot)
        if undefined is not None:
            got = replace_elements(got, right, undefined)
            count = format_plural(int(undefined.sum()), "element")
            self.unchecked.append(f"{count} that C or tinygrad leave undefined")
        found = compare(got, right, values.count_roundings(slot))
        if found.status != "wrong":
            return found
        try:
            wide = [again(self._open_precise(which, precision)) for precision in (DOUBLE, *MOVED)]
        except Exception:  # not every graph can be computed in double precision
            return found
        numbers = [decode(array).astype(np.float64) for array in wide if not isinstance(array, str)]
        if len(numbers) != len(wide):
            return found
        exact, *moved = numbers
        # excuse_rounding handles what is not finite
        with np.errstate(invalid="ignore", over="ignore"):
            spread = np.fmax.reduce([np.abs(other - exact) for other in moved])
        return excuse_rounding(got, right, found, Rounding(exact, spread))

    def _open_precise(self, which: Which, precision: int) -> ReferenceValues:
        key = (which, precision)
        if key not in self._precise:
            self._precise[key] = self.open(which, precision)
        return self._precise[key]

    # *** outputs

    def check_outputs(self) -> list[OutputCheck]:
        """Compares all outputs, and the buffers of the snippet."""
        values = self.open("asked")
        outputs = self.read_outputs()
        slots = [values.roots[number] for number in outputs]
        checks = []
        expected = values.evaluate(slots)
        for index, (number, data) in enumerate(outputs.items()):
            right = expected[index]
            if isinstance(right, str):
                self.unchecked.append(f"output {number}: {right}")
                continue
            again = functools.partial(_evaluate, slots=slots, index=index)
            checks.append(self.check_output(values, number, data, right, again))
        return checks + self.check_held(values)

    def read_outputs(self) -> dict[int, bytes]:
        """Returns the contents that each output got, by its number; unknown outputs are left out."""
        evidence = self.evidence
        known = {number: self.read(value) for number, value in enumerate(evidence.values) if value is not None}
        if evidence.got is None or not evidence.got_roots:
            for number in set(range(len(evidence.values))) - set(known):
                self.unchecked.append(f"output {number} is not read as one buffer")
            return known
        views = ReferenceValues(evidence.got, self.read)
        got = views.evaluate(list(evidence.got_roots.values()))
        for number, found in zip(evidence.got_roots, got, strict=True):
            if isinstance(found, str):
                self.unchecked.append(f"output {number}: {found}")
            else:
                known[number] = found.data
        return dict(sorted(known.items()))

    def check_output(
        self, values: ReferenceValues, number: int, data: bytes, right: Array, again: Again
    ) -> OutputCheck:
        """Compares an output; `again` computes the right value with other values of the graph."""
        root = values.roots[number]
        copies = len(data) // max(len(right.data), 1)
        if copies > 1:
            # each of several devices has the whole
            right, again = _repeat(right, copies), functools.partial(_repeat_again, again, copies)
        if DEVICES in values.ambient_of(root):
            # the right values of all devices were joined to one value
            data *= max(1, len(right.data) // max(len(data), 1))
        got = Array(data, right.dtype, right.shape)
        found = self.compare("asked", values, root, got, right, again)
        check = OutputCheck(number=number, shape=right.shape, dtype=right.dtype, comparison=found)
        if found.status != "wrong" or got.shape != values.shape_of(root):
            return check
        is_got = functools.partial(_is_got, slot=root, got=got, terms=values.count_roundings(root))
        stale = stale_value(self.evidence, values, root, is_got)
        return replace(check, stale=stale, overwritten=overwritten_inputs(self.evidence, values, self.read, is_got))

    def check_held(self, values: ReferenceValues) -> list[OutputCheck]:
        """Compares the buffers of the snippet: those that it assigns to, and those that changed without an assign."""
        checks = []
        kept = values.evaluate([held.slot for held in self.evidence.held])
        for number, (held, right) in enumerate(zip(self.evidence.held, kept, strict=True)):
            if held.part_of is not None:
                checks += self.check_part(values, held, held.part_of, right)
            elif isinstance(right, str):
                self.unchecked.append(f"buffer {number} that it writes: {right}")
            else:
                checks.append(self.check_buffer(values, held, number, right))
        return checks

    def check_buffer(self, values: ReferenceValues, held: HeldBuffer, number: int, right: Array) -> OutputCheck:
        got = Array(b"".join(map(self.read, held.blobs)), right.dtype, right.shape)
        again = functools.partial(_evaluate, slots=[held.slot], index=0)
        found = self.compare("asked", values, held.slot, got, right, again)
        check = OutputCheck(
            number=number,
            shape=right.shape,
            dtype=right.dtype,
            comparison=found,
            of=_kind_of(held),
            is_written=held.is_written,
        )
        writer = self.evidence.find_written(held.launch)
        if writer is not None:
            check = replace(check, writer=writer.kernel, writer_node=writer.node)
        return check

    def check_part(
        self, values: ReferenceValues, held: HeldBuffer, number: int, right: Array | str
    ) -> list[OutputCheck]:
        """Compares what an item assignment changed. Only a wrong result is kept: the assigned buffer has the rest."""
        if isinstance(right, str):
            return []
        before = len(self.unchecked)
        check = self.check_buffer(values, held, number, right)
        del self.unchecked[before:]
        return [check] if check.comparison.status == "wrong" else []


def expected_outputs(evidence: Evidence, read: Read) -> tuple[ExpectedOutput, ...]:
    """Returns what each output of a failed schedule, and each buffer that it assigns to, should hold. Unknown ones are
    left out."""
    if evidence.reference is None:
        return ()
    values = ReferenceValues(evidence.reference, read)
    found: list[ExpectedOutput] = []
    for number, array in enumerate(values.evaluate(values.roots)):
        if not isinstance(array, str):
            first = tuple(map(make_plain, decode(array)[:_SHOWN]))
            found.append(ExpectedOutput(number, array.shape, array.dtype, first))
    return tuple(found)


def replace_elements(got: Array, right: Array, places: NDArray[np.bool_]) -> Array:
    """Returns `got` with the elements of `right` at some places of the flat array."""
    size = ITEMSIZE[got.dtype]
    mixed = np.where(places, view_elements(right.data, size), view_elements(got.data, size))
    return Array(mixed.tobytes(), got.dtype, got.shape)


def _evaluate(values: ReferenceValues, slots: Sequence[int], index: int) -> Array | str:
    """Returns one value of several that are computed together."""
    return values.evaluate(slots)[index]


def _kind_of(held: HeldBuffer) -> CheckedKind:
    if held.part_of is not None:
        return "unchosen"
    if held.is_assigned:
        return "assigned"
    return "live" if held.is_live else "input"


def _is_got(values: ReferenceValues, slot: int, got: Array, terms: int) -> bool:
    """Returns whether a node has the value that the snippet got."""
    found = values.evaluate([slot])[0]
    return not isinstance(found, str) and compare(got, found, terms).status != "wrong"


def _repeat_again(again: Again, copies: int, values: ReferenceValues) -> Array | str:
    found = again(values)
    if isinstance(found, str):
        return found
    return _repeat(found, copies)


def _repeat(array: Array, times: int) -> Array:
    return Array(array.data * times, array.dtype, (times, *array.shape))
