"""Compares the outputs and buffers of one schedule with the numpy reference, in the process that compares. If the graph
gives exactly a wrong output with what memory held at another time, that memory was read at a wrong time."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from vmapdbg.check import result
from vmapdbg.check.compare import compare
from vmapdbg.child.compare import number_faults
from vmapdbg.child.compare.first_wrong_buffer import BufferWalk
from vmapdbg.child.compare.gradient_check import check_gradients
from vmapdbg.child.compare.race_check import find_kernel_races
from vmapdbg.child.compare.reference_values import ComparedGraph, KnownValues, ReadContents, ReferenceValues
from vmapdbg.child.compare.replay_arguments import find_replayed
from vmapdbg.child.evidence.evidence import Evidence, EvidenceFolder, HeldBuffer, Meant
from vmapdbg.model.account import Left
from vmapdbg.model.wording import first_line
from vmapdbg.reference.arithmetic import load
from vmapdbg.reference.graph import DEVICES, WRITES, OpGraph, OpNode, Unknown
from vmapdbg.reference.value import RangedArray
from vmapdbg.values.numbers import Array, decode, make_plain
from vmapdbg.values.tolerance import is_float

_Found = TypeVar("_Found")
_SHOWN = 8  # how many elements of an expected output are reported
_MOST_BUFFERS = 16  # how many buffers of one schedule are tried as memory that is read at the wrong time

IsGot = Callable[[ReferenceValues], bool]
"""Returns whether other values of the graph give exactly the wrong output that the snippet got."""


class ScheduleChecker:
    """Checks one schedule. `known` has values of its `asked` graph that are computed already, by precision."""

    def __init__(self, evidence: Evidence, folder: EvidenceFolder, known: Mapping[int | None, KnownValues] = {}):
        self.evidence, self.read, self.known = evidence, folder.read_data, known
        self.left = evidence.left  # why something was not compared
        self.graphs: list[ComparedGraph] = []  # as the snippet asked for it, then as the pass saw it
        self.bad: list[int] = []  # nodes whose values have NaN or infinity
        self.inexact: dict[int, float] = {}  # nodes whose values have lost digits -> their error

    def check(self) -> result.ScheduleCheck:
        """Returns how the schedule compares."""
        evidence = self.evidence
        outputs: list[result.OutputCheck] = []
        expected: tuple[result.ExpectedOutput, ...] = ()
        if evidence.failed is not None:
            expected = self.attempt(Left("outputs", 0, ""), expected_outputs, evidence, self.read) or ()
        elif "asked" in evidence.graphs:
            outputs += self.check_values(evidence.graphs["asked"])
        elif evidence.refused is not None:
            evidence.leave_all(evidence.refused)
        numbers = self.find_number_faults()
        gradients = [
            self.attempt(Left("gradients", call.asked, ""), check_gradients, call, self.read)
            for call in evidence.gradients
        ]
        buffers: list[result.BufferCheck] = []
        races = self.find_races()
        passed = evidence.graphs.get("passed")
        if passed is not None and any(output.comparison.status == "wrong" for output in outputs):
            walk = BufferWalk(evidence, self.open(passed)).walk
            buffers = self.attempt(Left("launches", 0, "the buffers between its kernels: "), walk) or []
            if not any(one.is_wrong for one in buffers):
                outputs = list(map(self.place, outputs))
        failed_kernel = evidence.failed_kernel
        if failed_kernel is None and evidence.crash is not None:
            failed_kernel = evidence.crash.kernel
        return result.ScheduleCheck(
            schedule=evidence.schedule,
            line=evidence.line,
            outputs=tuple(outputs),
            buffers=tuple(buffers),
            unchecked=tuple(dict.fromkeys(one.sentence for one in self.left)),
            evaluations=sum(values.evaluations for graph in self.graphs for values in graph.opened),
            asked=evidence.asked,
            left=tuple(self.left),
            failed=evidence.failed,
            failed_kernel=failed_kernel,
            failed_node=evidence.failed_node,
            replay=evidence.replay,
            crash=evidence.crash,
            expected=expected,
            lost=tuple(evidence.lost),
            cut=tuple(evidence.cut),
            unwritten=tuple(evidence.unwritten),
            is_sharded=evidence.is_sharded,
            gradients=tuple(filter(None, gradients)),
            numbers=tuple(filter(None, numbers)),
            races=tuple(races),
        )

    def place(self, output: result.OutputCheck) -> result.OutputCheck:
        """Adds to a wrong output where its values are, if its tensor has the buffer of another one."""
        if output.comparison.status != "wrong" or output.of != "output":
            return output
        left = Left("outputs", 0, "which buffer its tensor has: ", output.number)
        return replace(output, misplaced=self.attempt(left, self.find_misplaced, output))

    def find_races(self) -> list[result.KernelRace]:
        """Returns the races of kernels that only their launches show."""
        found: list[result.KernelRace] = []
        launches = (part for buffer in self.evidence.buffers for part in buffer.parts or (buffer,))
        for buffer in {(one.run.linear, one.run.arguments): one for one in launches if one.run.may_race}.values():
            left = Left("kernels", 1, "whether its threads race: ")
            races, unknown = self.attempt(left, find_kernel_races, buffer, self.read) or ([], None)
            found += races
            if unknown is not None and not races:
                self.left.append(replace(left, reason=left.reason + unknown))
        return found

    def find_number_faults(self) -> list[result.NumberFault | None]:
        """Returns what makes the compared numbers go wrong. Those that are computed of memory that nothing has written
        mean nothing; if the snippet has not asked for them, because the tool realizes them, that is no fault either."""
        if not self.graphs:
            return []
        graph = self.graphs[0]
        origin = Left("outputs", 0, "whether it reads memory that nothing has written: ")
        unwritten = self.attempt(origin, number_faults.find_unwritten_read, graph, graph.together)
        if unwritten is not None:
            return [unwritten] if self.evidence.line is not None else []
        numbers: list[result.NumberFault | None] = []
        if self.bad:
            found, reason = self.take(number_faults.find_not_finite, graph.graph, self.read, self.bad)
            numbers.append(result.NumberFault("not-finite", len(self.bad), reason=reason) if reason else found)
        if self.inexact:
            found, reason = self.take(number_faults.find_lost_digits, graph.graph, self.read, self.inexact)
            digits = number_faults.count_digits(max(self.inexact.values()))
            unknown = result.NumberFault("lost-digits", len(self.inexact), digits=digits, reason=reason)
            numbers.append(unknown if reason else found)
        return numbers

    def check_values(self, asked: OpGraph) -> list[result.OutputCheck]:
        """Compares all outputs, and the buffers of the snippet."""
        graph, evidence = self.open(asked, self.known), self.evidence
        outputs = self.attempt(Left("outputs", len(evidence.outputs), ""), self.check_outputs, graph) or []
        return outputs + (self.attempt(Left("buffers", len(evidence.held), ""), self.check_held, graph) or [])

    def attempt(self, left: Left, step: Callable[..., _Found], *arguments: Any) -> _Found | None:
        """Takes a step. Returns None if the reference fails in it: then that is the reason why something is left."""
        found, reason = self.take(step, *arguments)
        if reason is not None:
            self.left.append(replace(left, reason=left.reason + reason))
        return found

    def take(self, step: Callable[..., _Found], *arguments: Any) -> tuple[_Found | None, str | None]:
        """Takes a step. Returns what it finds, or why the reference fails in it."""
        try:
            return step(*arguments), None
        except Unknown as error:
            return None, str(error)
        except Exception as error:
            return None, f"the reference failed: {type(error).__name__}: {first_line(error)}"

    def open(self, graph: OpGraph, known: Mapping[int | None, KnownValues] = {}) -> ComparedGraph:
        """Returns a graph of the evidence, to be compared."""
        self.graphs.append(ComparedGraph(graph, self.read, self.left, known))
        return self.graphs[-1]

    def check_outputs(self, graph: ComparedGraph) -> list[result.OutputCheck]:
        """Compares all outputs."""
        outputs = self.read_outputs()
        slots = [graph.values.roots[number] for number in outputs]
        graph.together = tuple(dict.fromkeys([*slots, *(held.slot for held in self.evidence.held)]))
        checks: list[result.OutputCheck] = []
        for (number, data), right in zip(outputs.items(), graph.values.evaluate(slots), strict=True):
            if isinstance(right, str):
                self.left.append(Left("outputs", 1, right, number))
                continue
            left = Left("outputs", 1, "", number)
            if check := self.attempt(left, self.check_output, graph, number, data, right):
                checks.append(check)
        return checks

    def read_outputs(self) -> dict[int, bytes]:
        """Returns the contents that each output got, by its number; unknown outputs are left out."""
        outputs, graphs = self.evidence.outputs, self.evidence.graphs
        known: dict[int, bytes] = {}
        if "got" not in graphs:
            return known
        if not outputs:
            for number in range(len(graphs["asked"].roots)):
                self.left.append(Left("outputs", 1, "it is not read as one buffer", number))
            return known
        got = ReferenceValues(graphs["got"], self.read).evaluate(list(outputs.values()))
        for number, found in zip(outputs, got, strict=True):
            if isinstance(found, str):
                self.left.append(Left("outputs", 1, found, number))
            else:
                known[number] = found.data
        return known

    def check_output(self, graph: ComparedGraph, number: int, data: bytes, right: Array) -> result.OutputCheck:
        """Compares an output."""
        values = graph.values
        root = values.roots[number]
        copies = len(data) // max(len(right.data), 1)  # each of several devices may have the whole
        right = _repeat(right, copies)
        if DEVICES in values.ambient_of(root):
            data *= max(1, len(right.data) // max(len(data), 1))  # right values of all devices are joined
        got = Array(data, right.dtype, right.shape)
        found = self.compare(graph, root, got, right)
        check = result.OutputCheck(number=number, shape=right.shape, dtype=right.dtype, comparison=found)
        if found.status != "wrong":
            return check

        def is_got(others: ReferenceValues) -> bool:
            return self.gives(others, root, graph, root, got)

        meant = self.evidence.meant.get(number)
        if meant is not None:
            other = values.evaluate([meant.slot])[0]
            if not isinstance(other, str) and self.is_close(graph, meant.slot, got, _repeat(other, copies)):
                return replace(check, stale=_stale_reader(meant))
        left = Left("outputs", 0, "when it was read: ", number)
        check = self.add_replayed(check, graph, root, got)
        if check.exchanged or check.replayed:
            return check
        stale = self.attempt(left, find_stale_value, self.evidence, values, root, is_got)
        return replace(check, stale=stale, overwritten=self.attempt(left, self.find_overwritten, values, is_got) or ())

    def compare(self, graph: ComparedGraph, slot: int, got: Array, right: Array) -> result.Comparison:
        """Compares what a node got, and notes whether it has NaN or infinity, or has lost digits."""
        found = graph.compare(slot, got, right)
        if is_float(got.dtype) and not np.isfinite(decode(got)).all():
            self.bad.append(slot)
        elif found.status != "wrong" and (error := number_faults.measure_error(graph, slot, got)) is not None:
            self.inexact[slot] = error
        return found

    def is_close(self, graph: ComparedGraph, slot: int, got: Array, other: Array) -> bool:
        """Returns whether the snippet got another value of the graph. Nothing is left over because of this value."""
        reasons = len(self.left)
        found = graph.compare(slot, got, other)
        del self.left[reasons:]
        return found.status != "wrong"

    @staticmethod
    def gives(others: ReferenceValues, other_slot: int, graph: ComparedGraph, slot: int, got: Array) -> bool:
        """Returns whether a node of other values is exactly what a node of the graph got, but for rounding."""
        value = others.evaluate([other_slot])[0]
        if isinstance(value, str):
            return False
        value = _repeat(value, len(got.data) // max(len(value.data), 1))
        return value.shape == got.shape and compare(got, value, graph.values.roundings[slot]).status != "wrong"

    def add_replayed(
        self, check: result.OutputCheck, graph: ComparedGraph, slot: int, got: Array
    ) -> result.OutputCheck:
        """Adds to a wrong value with which other arguments a replay of TinyJit gives it."""

        def is_got(other: OpGraph, other_slot: int) -> bool:
            return self.gives(graph.values.replace(graph=other), other_slot, graph, slot, got)

        left = Left(
            "outputs" if check.of == "output" else "buffers", 0, "which arguments the replay used: ", check.number
        )
        found = self.attempt(left, find_replayed, self.evidence, slot, is_got)
        return replace(check, **found) if found else check

    def find_overwritten(self, values: ReferenceValues, is_got: IsGot) -> tuple[result.OverwrittenInput, ...]:
        """Returns the inputs that a replay has written over, if the later contents of one or all explain the output."""
        changes = self.evidence.changed
        later: dict[int, RangedArray] = {}
        for changed in changes:
            node = values.graph.nodes[changed.slot]
            later[changed.slot] = RangedArray(load(Array(self.read(changed.blobs[0]), node.dtype, node.shape)))
        choices = [[changed] for changed in changes[:_MOST_BUFFERS]]
        if len(changes) > 1:
            choices.append(changes)
        for chosen in choices:
            if is_got(values.replace({changed.slot: later[changed.slot] for changed in chosen})):
                return tuple(result.OverwrittenInput(changed.input_number) for changed in chosen)
        return ()

    def find_misplaced(self, output: result.OutputCheck) -> result.Misplaced | None:
        """Returns where the values of a wrong output are, if its tensor has the buffer of another one."""
        asked, got = self.graphs[0], self.evidence.graphs["got"]
        root = asked.values.roots[output.number]
        right = asked.values.evaluate([root])[0]
        reached = got.reach([self.evidence.outputs[output.number]])
        names = {name for slot, every in got.inputs.items() if slot in reached for name in every}
        shown = [one for one in self.evidence.buffers if one.blob in names]
        if isinstance(right, str) or len(names) != 1 or len(shown) != 1:
            return None
        for one in self.evidence.buffers:
            data = self.read(one.blob)
            if one.blob in names or one.dtype != right.dtype or len(data) != len(right.data):
                continue
            if self.is_close(asked, root, replace(right, data=data), right):
                return result.Misplaced(one.node, one.kernel, shown[0].node, shown[0].kernel)
        return None

    def check_held(self, graph: ComparedGraph) -> list[result.OutputCheck]:
        """Compares the buffers of the snippet that it assigns to, and the buffers that changed without an assign."""
        checks: list[result.OutputCheck] = []
        kept = graph.values.evaluate([held.slot for held in self.evidence.held])
        for number, (held, right) in enumerate(zip(self.evidence.held, kept, strict=True)):
            is_whole = held.part_of is None
            if isinstance(right, str):
                if is_whole:
                    self.left.append(Left("buffers", 1, right, number))
                continue
            reasons = len(self.left)
            check = self.attempt(Left("buffers", 1, "", number), self.check_buffer, graph, held, number, right)
            if check is None:
                continue
            if not is_whole:
                del self.left[reasons:]  # what the item assignment changed; the assigned buffer has the rest
            if is_whole or check.comparison.status == "wrong":
                checks.append(check)
        return checks

    def check_buffer(self, graph: ComparedGraph, held: HeldBuffer, number: int, right: Array) -> result.OutputCheck:
        got = Array(b"".join(map(self.read, held.blobs)), right.dtype, right.shape)
        writer, meant = self.evidence.find_written(held.launch), held.meant
        comparison, stale = self.compare(graph, held.slot, got, right), None
        if meant is not None and comparison.status == "wrong":
            stale = _stale_reader(meant)
        check = result.OutputCheck(
            number=number if held.part_of is None else held.part_of,
            shape=right.shape,
            dtype=right.dtype,
            comparison=comparison,
            of=held.kind,
            is_written=held.is_written,
            writer=writer and writer.kernel,
            writer_node=writer and writer.node,
            stale=stale,
            line=held.line,
        )
        return self.add_replayed(check, graph, held.slot, got) if comparison.status == "wrong" else check


def _repeat(array: Array, copies: int) -> Array:
    """Returns the values of several devices that have the same: a new first axis, if there are several."""
    return array if copies < 2 else Array(array.data * copies, array.dtype, (copies, *array.shape))


def expected_outputs(evidence: Evidence, read: ReadContents) -> tuple[result.ExpectedOutput, ...]:
    """Returns what each output of a failed schedule should hold, as far as it is known."""
    if "asked" not in evidence.graphs:
        return ()
    values = ReferenceValues(evidence.graphs["asked"], read)
    found: list[result.ExpectedOutput] = []
    for number, array in enumerate(values.evaluate(values.roots)):
        if not isinstance(array, str):
            first = tuple(map(make_plain, decode(array)[:_SHOWN]))
            found.append(result.ExpectedOutput(number, array.shape, array.dtype, first))
    return tuple(found)


# *** a buffer of the snippet that is read before or after a write


def find_stale_value(evidence: Evidence, values: ReferenceValues, root: int, is_got: IsGot) -> result.StaleValue | None:
    """Returns which memory was read at the wrong time, if that explains the wrong output with the slot `root`."""
    graph = values.graph
    reached = graph.reach([root])
    memories = _written_once(graph, graph.find_view(root).base)
    for memory, write in itertools.islice(memories, _MOST_BUFFERS):
        states = [slot for slot in reached if graph.nodes[slot].op in {"assign", "after"}]
        looks = [slot for slot in states if graph.find_view(slot).base == memory]
        with contextlib.suppress(Unknown):
            if memory in reached and is_got(values.replace(_values_after(values, memory, write, looks))):
                return result.StaleValue(_number_of(evidence, memory), is_late=True)
        if not looks:
            continue
        with contextlib.suppress(Unknown):
            # the nodes that look at the memory show what it held before the write
            before = values.evaluate_all([graph.nodes[slot].src[0] for slot in looks])
            if is_got(values.replace(dict(zip(looks, before, strict=True)))):
                return result.StaleValue(_number_of(evidence, memory), is_late=False, kind="early reader")
    return None


def _stale_reader(meant: Meant) -> result.StaleValue:
    return result.StaleValue(None, True, "stale reader", meant.lines, meant.is_draw)


def _written_once(graph: OpGraph, shown: int) -> Iterator[tuple[int, int]]:
    """Yields (memory, write), as slots, for memory with one write. The output `shown` does not depend on readers."""
    writes: dict[int, list[int]] = {}
    for slot, node in enumerate(graph.nodes):
        if node.op in WRITES:
            writes.setdefault(graph.find_view(node.src[0]).base, []).append(slot)
    for memory, slots in writes.items():
        if len(slots) == 1 and memory != shown:
            yield memory, slots[0]


def _values_after(values: ReferenceValues, memory: int, write: int, looks: list[int]) -> dict[int, RangedArray]:
    """Returns what memory, and its own node, holds after the write; later states stay as they are. Raises Unknown."""
    nodes = values.graph.nodes
    after = OpNode("after", nodes[memory].dtype, nodes[memory].shape, (memory, write))
    longer = values.replace(graph=replace(values.graph, nodes=[*nodes, after]))
    return dict(zip([memory, *looks], longer.evaluate_all([len(nodes), *looks]), strict=True))


def _number_of(evidence: Evidence, memory: int) -> int | None:
    """Returns the number of some memory among the buffers of the snippet."""
    nodes = evidence.graphs["asked"].nodes
    numbers = (i for i, held in enumerate(evidence.held) if held.kind == "assigned" and memory in nodes[held.slot].src)
    return next(numbers, None)
