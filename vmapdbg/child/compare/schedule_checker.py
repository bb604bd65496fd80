"""Compares the outputs of one schedule, and what the snippet's buffers hold, with the numpy reference. Runs in the
process that compares."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from vmapdbg.check.compare import compare
from vmapdbg.check.result import BufferCheck, CheckedKind, ExpectedOutput, OutputCheck, ScheduleCheck
from vmapdbg.child.compare.first_wrong_buffer import BufferWalk
from vmapdbg.child.compare.reference_values import ComparedGraph, KnownValues, ReadContents, ReferenceValues
from vmapdbg.child.compare.stale import overwritten_inputs, stale_value
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence, HeldBuffer
from vmapdbg.reference.graph import DEVICES, OpGraph
from vmapdbg.values.numbers import Array, decode, make_plain

_SHOWN = 8
"""How many elements of an expected output are reported."""


class ScheduleChecker:
    """Checks one schedule. `known` has values of its `asked` graph that are computed already, by precision."""

    def __init__(self, evidence: Evidence, folder: EvidenceFolder, known: Mapping[int | None, KnownValues] = {}):
        self.evidence, self.read, self.known = evidence, folder.read_data, known
        # why something was not compared
        self.unchecked = list(evidence.unchecked)
        # the graph as the snippet asked for it, then the graph as the pass of the scheduler saw it
        self.graphs: list[ComparedGraph] = []

    def check(self) -> ScheduleCheck:
        """Returns how the schedule compares."""
        evidence = self.evidence
        outputs: list[OutputCheck] = []
        expected: tuple[ExpectedOutput, ...] = ()
        if evidence.failed is not None:
            expected = expected_outputs(evidence, self.read)
        elif "asked" in evidence.graphs:
            outputs = self.check_outputs(self.open(evidence.graphs["asked"], self.known))
        elif evidence.refused is not None:
            self.unchecked.append(evidence.refused)
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
            evaluations=sum(values.evaluations for graph in self.graphs for values in graph.opened),
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
        passed = self.evidence.graphs.get("passed")
        if passed is None:
            return []
        return BufferWalk(self.evidence, self.open(passed)).walk()

    def open(self, graph: OpGraph, known: Mapping[int | None, KnownValues] = {}) -> ComparedGraph:
        """Returns a graph of the evidence, to be compared."""
        self.graphs.append(ComparedGraph(graph, self.read, self.unchecked, known))
        return self.graphs[-1]

    # *** outputs

    def check_outputs(self, graph: ComparedGraph) -> list[OutputCheck]:
        """Compares all outputs, and the buffers of the snippet."""
        outputs = self.read_outputs()
        slots = [graph.values.roots[number] for number in outputs]
        checks: list[OutputCheck] = []
        for (number, data), right in zip(outputs.items(), graph.values.evaluate(slots), strict=True):
            if isinstance(right, str):
                self.unchecked.append(f"output {number}: {right}")
            else:
                checks.append(self.check_output(graph, number, data, right, slots))
        return checks + self.check_held(graph)

    def read_outputs(self) -> dict[int, bytes]:
        """Returns the contents that each output got, by its number; unknown outputs are left out."""
        outputs, graphs = self.evidence.outputs, self.evidence.graphs
        known: dict[int, bytes] = {}
        if "got" not in graphs:
            return known
        if not outputs:
            for number in range(len(graphs["asked"].roots)):
                self.unchecked.append(f"output {number} is not read as one buffer")
            return known
        got = ReferenceValues(graphs["got"], self.read).evaluate(list(outputs.values()))
        for number, found in zip(outputs, got, strict=True):
            if isinstance(found, str):
                self.unchecked.append(f"output {number}: {found}")
            else:
                known[number] = found.data
        return known

    def check_output(
        self, graph: ComparedGraph, number: int, data: bytes, right: Array, slots: list[int]
    ) -> OutputCheck:
        """Compares an output; the outputs in `slots` are computed together."""
        values = graph.values
        root = values.roots[number]
        copies = len(data) // max(len(right.data), 1)
        if copies > 1:
            # each of several devices has the whole
            right = Array(right.data * copies, right.dtype, (copies, *right.shape))
        if DEVICES in values.ambient_of(root):
            # the right values of all devices were joined to one value
            data *= max(1, len(right.data) // max(len(data), 1))
        got = Array(data, right.dtype, right.shape)
        found = graph.compare(root, got, right, slots)
        check = OutputCheck(number=number, shape=right.shape, dtype=right.dtype, comparison=found)
        if found.status != "wrong" or got.shape != values.shape_of(root):
            return check
        is_got = functools.partial(_is_got, slot=root, got=got, terms=values.count_roundings(root))
        stale = stale_value(self.evidence, values, root, is_got)
        return replace(check, stale=stale, overwritten=overwritten_inputs(self.evidence, values, self.read, is_got))

    def check_held(self, graph: ComparedGraph) -> list[OutputCheck]:
        """Compares the buffers of the snippet: those that it assigns to, and those that changed without an assign."""
        checks: list[OutputCheck] = []
        kept = graph.values.evaluate([held.slot for held in self.evidence.held])
        for number, (held, right) in enumerate(zip(self.evidence.held, kept, strict=True)):
            is_whole = held.part_of is None
            if isinstance(right, str):
                if is_whole:
                    self.unchecked.append(f"buffer {number} that it writes: {right}")
                continue
            reasons = len(self.unchecked)
            check = self.check_buffer(graph, held, number, right)
            if not is_whole:
                # what an item assignment changed: the assigned buffer has the rest
                del self.unchecked[reasons:]
            if is_whole or check.comparison.status == "wrong":
                checks.append(check)
        return checks

    def check_buffer(self, graph: ComparedGraph, held: HeldBuffer, number: int, right: Array) -> OutputCheck:
        got = Array(b"".join(map(self.read, held.blobs)), right.dtype, right.shape)
        writer = self.evidence.find_written(held.launch)
        return OutputCheck(
            number=number if held.part_of is None else held.part_of,
            shape=right.shape,
            dtype=right.dtype,
            comparison=graph.compare(held.slot, got, right),
            of=_kind_of(held),
            is_written=held.is_written,
            writer=writer and writer.kernel,
            writer_node=writer and writer.node,
        )


def expected_outputs(evidence: Evidence, read: ReadContents) -> tuple[ExpectedOutput, ...]:
    """Returns what each output of a failed schedule, and each buffer that it assigns to, should hold. Unknown ones are
    left out."""
    if "asked" not in evidence.graphs:
        return ()
    values = ReferenceValues(evidence.graphs["asked"], read)
    found: list[ExpectedOutput] = []
    for number, array in enumerate(values.evaluate(values.roots)):
        if not isinstance(array, str):
            first = tuple(map(make_plain, decode(array)[:_SHOWN]))
            found.append(ExpectedOutput(number, array.shape, array.dtype, first))
    return tuple(found)


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
