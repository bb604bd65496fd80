"""Shows that a wrong value is what comes out when memory is read at the wrong time. Runs in the process that compares.

`stale_value` and `overwritten_inputs` need the tensor graph alone; `stale_reads` runs the kernel of a wrong buffer by
numpy, on what its arguments held at other times of the schedule. Exactly the right (or wrong) values are the proof.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from vmapdbg.check.result import OverwrittenInput, StaleRead, StaleValue
from vmapdbg.child.compare.kernel_rerun import WrongBuffer, run_scheduled
from vmapdbg.child.compare.reference_values import ReadContents, ReferenceValues
from vmapdbg.child.evidence.graphs import Evidence, KernelRun
from vmapdbg.reference.arithmetic import load
from vmapdbg.reference.graph import WRITES, OpGraph, OpNode, Unknown, find_view
from vmapdbg.reference.value import RangedArray
from vmapdbg.values.numbers import Array

_STATES = {"assign", "after"}
_MOST_BUFFERS = 16
"""How many buffers of one schedule are tried."""
_MOST_TRIED = 64
"""How many times a kernel is run on what its arguments held at other times."""

IsGot = Callable[[ReferenceValues], bool]
"""Returns whether other values of the graph give exactly the wrong output that the snippet got."""


# *** a buffer of the snippet that is read before or after a write


def stale_value(evidence: Evidence, values: ReferenceValues, root: int, is_got: IsGot) -> StaleValue | None:
    """Returns which memory was read at the wrong time, if that explains a wrong output. `root` is its slot."""
    shown = find_view(values.graph, root).base
    for memory, write in itertools.islice(_written_once(values.graph, shown), _MOST_BUFFERS):
        for is_late, known in _other_times(values, root, memory, write):
            if is_got(values.replace(known)):
                return StaleValue(_number_of(evidence, memory), is_late)
    return None


def _written_once(graph: OpGraph, shown: int) -> Iterator[tuple[int, int]]:
    """Yields (memory, write), as slots, for memory that the graph writes once. Memory that is itself the output
    (`shown`) is left out: what it holds does not depend on its readers."""
    writes: dict[int, list[int]] = {}
    for slot, node in enumerate(graph.nodes):
        if node.op in WRITES:
            writes.setdefault(find_view(graph, node.src[0]).base, []).append(slot)
    for memory, slots in writes.items():
        if len(slots) == 1 and memory != shown:
            yield memory, slots[0]


def _number_of(evidence: Evidence, memory: int) -> int | None:
    """Returns the number of some memory among the buffers of the snippet."""
    nodes = evidence.graphs["asked"].nodes
    numbers = (i for i, held in enumerate(evidence.held) if held.is_assigned and memory in nodes[held.slot].src)
    return next(numbers, None)


def _other_times(
    values: ReferenceValues, root: int, memory: int, write: int
) -> Iterator[tuple[bool, dict[int, RangedArray]]]:
    """Yields the values of the nodes that look at memory if it is read after the write (True), and before it."""
    graph = values.graph
    reached = graph.reach([root])
    looks = [slot for slot in reached if graph.nodes[slot].op in _STATES and find_view(graph, slot).base == memory]
    if memory in reached:
        known = _evaluate_after(values, memory, write, looks)
        if known is not None:
            yield True, known
    if looks:
        known = _match(looks, values.evaluate_raw([graph.nodes[slot].src[0] for slot in looks]))
        if known is not None:
            yield False, known


def _evaluate_after(
    values: ReferenceValues, memory: int, write: int, looks: list[int]
) -> dict[int, RangedArray] | None:
    """Returns what memory holds after the write, as the value of its own node, too; later states stay as they are."""
    nodes = values.graph.nodes
    after = OpNode("after", nodes[memory].dtype, nodes[memory].shape, (memory, write))
    longer = values.with_graph(replace(values.graph, nodes=[*nodes, after]))
    return _match([memory, *looks], longer.evaluate_raw([len(nodes), *looks]))


def _match(slots: list[int], found: list[RangedArray | Unknown]) -> dict[int, RangedArray] | None:
    known = {slot: value for slot, value in zip(slots, found, strict=True) if not isinstance(value, Unknown)}
    return known if len(known) == len(slots) else None


def overwritten_inputs(
    evidence: Evidence, values: ReferenceValues, read: ReadContents, is_got: IsGot
) -> tuple[OverwrittenInput, ...]:
    """Returns which inputs a replay has written over, if their later contents explain a wrong output: one input, or
    else all of them together."""
    now: dict[int, RangedArray] = {}
    for changed in evidence.changed:
        node = values.graph.nodes[changed.slot]
        now[changed.slot] = RangedArray(load(Array(read(changed.blob), node.dtype, node.shape)))
    choices = [[changed] for changed in evidence.changed[:_MOST_BUFFERS]]
    if len(evidence.changed) > 1:
        choices.append(evidence.changed)
    for chosen in choices:
        if is_got(values.replace({changed.slot: now[changed.slot] for changed in chosen})):
            return tuple(OverwrittenInput(changed.number) for changed in chosen)
    return ()


# *** a kernel that reads an argument too early or too late


def stale_reads(evidence: Evidence, read: ReadContents, wrong: WrongBuffer) -> tuple[StaleRead, ...]:
    """Returns the arguments that a kernel read at a wrong time: with what they held at another time it is right."""
    run = wrong.buffer.run
    assert run.kernel is not None
    kernel = evidence.kernels[run.kernel]
    for chosen in itertools.islice(_other_versions(run), _MOST_TRIED):
        names = tuple(run.versions[i][chosen[i]].name if i in chosen else name for i, name in enumerate(run.arguments))
        found = run_scheduled(kernel, names, wrong, read)
        if isinstance(found, str) or found[1].any():
            continue
        if wrong.compare(found[0]).status != "wrong":
            return tuple(_make_stale_read(evidence, run, argument, version) for argument, version in chosen.items())
    return ()


def _other_versions(run: KernelRun) -> Iterator[dict[int, int]]:
    """Yields what could be read instead, argument -> version: first of one argument, the nearest versions first, then
    of several."""
    others: dict[int, list[int]] = {}
    for argument, held in enumerate(run.held):
        if held is None:
            continue
        versions = run.versions[argument]
        different = [i for i, version in enumerate(versions) if version.name != versions[held].name]
        if different:
            others[argument] = sorted(different, key=lambda i, held=held: abs(i - held))
    for count in range(1, len(others) + 1):
        for arguments in itertools.combinations(others, count):
            for versions in itertools.product(*(others[argument] for argument in arguments)):
                yield dict(zip(arguments, versions, strict=True))


def _make_stale_read(evidence: Evidence, run: KernelRun, argument: int, version: int) -> StaleRead:
    held = run.held[argument]
    assert held is not None
    is_late = version < held
    # the first write that came too early, or the write that came too late
    launch = run.versions[argument][version + 1 if is_late else version].launch
    writer = evidence.find_written(launch)
    return StaleRead(argument, is_late, writer and writer.kernel, writer and writer.node)
