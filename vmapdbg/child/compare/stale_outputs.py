"""Tells whether a wrong value is what comes out where a buffer of the snippet is read after a write to it that it
should be read before, or the other way round; and where a replay by TinyJit has written over what it reads. Runs in the
oracle.

It takes the graph alone, so it knows no kernel; where the kernels were looked at, `kernel_fault` knows more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vmapdbg.check.result import OverwrittenInput, StaleValue
from vmapdbg.child.compare.by_numpy import NumpyValues
from vmapdbg.child.compare.oracle import Read
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.reference.graph import Graph, Node, Unknown
from vmapdbg.reference.kinds import load
from vmapdbg.reference.value import Value
from vmapdbg.reference.views import WRITES, find_view
from vmapdbg.values.numbers import Array

_COMES_AFTER = {"assign", "after"}
_MOST_BUFFERS = 16
"""Of one schedule so many buffers are tried."""


@dataclass(frozen=True)
class _Written:
    """Memory that the graph writes once: the position of its node, and of the write."""

    memory: int
    write: int


def find_stale_value(
    evidence: Evidence, values: NumpyValues, root: int, is_got: Callable[[NumpyValues], bool]
) -> StaleValue | None:
    """Returns which memory was read at the wrong time, where that makes a wrong output exactly what was got: `root` is
    the position of its value, and `is_got` tells whether other values of the graph have there what was got."""
    shown = find_view(values.graph, root).base
    # that a buffer holds something else than what is assigned to it is not because of who reads it
    written = [one for one in _list_written(values.graph) if one.memory != shown]
    for one in written[:_MOST_BUFFERS]:
        for is_late, known in _list_other_times(values, root, one):
            if is_got(values.replace(known)):
                return StaleValue(_find_number(evidence, one), is_late)
    return None


def find_overwritten(
    evidence: Evidence, values: NumpyValues, read: Read, is_got: Callable[[NumpyValues], bool]
) -> tuple[OverwrittenInput, ...]:
    """Returns which inputs a replay has written over, where a wrong output is exactly what was got with what they held
    afterwards: one of them, else all together; nothing where that does not prove it."""
    now: dict[int, Value] = {}
    for one in evidence.changed:
        node = values.graph.nodes[one.slot]
        now[one.slot] = Value(load(Array(read(one.blob), node.dtype, node.shape)))
    choices = [[one] for one in evidence.changed[:_MOST_BUFFERS]]
    if len(evidence.changed) > 1:
        choices.append(evidence.changed)
    for chosen in choices:
        if is_got(values.replace({one.slot: now[one.slot] for one in chosen})):
            return tuple(OverwrittenInput(one.number) for one in chosen)
    return ()


def _list_written(graph: Graph) -> list[_Written]:
    writes: dict[int, list[int]] = {}
    for slot, node in enumerate(graph.nodes):
        if node.op in WRITES:
            writes.setdefault(find_view(graph, node.src[0]).base, []).append(slot)
    return [_Written(memory, slots[0]) for memory, slots in writes.items() if len(slots) == 1]


def _find_number(evidence: Evidence, written: _Written) -> int | None:
    """Returns the number that memory has among the buffers of the snippet."""
    assert evidence.reference is not None
    nodes = evidence.reference.nodes
    numbers = (i for i, held in enumerate(evidence.held) if held.is_assigned and written.memory in nodes[held.slot].src)
    return next(numbers, None)


def _list_other_times(values: NumpyValues, root: int, written: _Written) -> Iterator[tuple[bool, dict[int, Value]]]:
    """Yields what the nodes that look at memory are where it is read after the write to it, and where before."""
    graph = values.graph
    reached = graph.reach([root])
    looks = [
        slot
        for slot in reached
        if graph.nodes[slot].op in _COMES_AFTER and find_view(graph, slot).base == written.memory
    ]
    if written.memory in reached:
        known = _evaluate_after(values, written, looks)
        if known is not None:
            yield True, known
    if looks:
        known = _match(looks, values.find_values([graph.nodes[slot].src[0] for slot in looks]))
        if known is not None:
            yield False, known


def _evaluate_after(values: NumpyValues, written: _Written, looks: list[int]) -> dict[int, Value] | None:
    """Returns what memory holds after the write, for its own node, too; what comes after the write stays as it is."""
    node = values.graph.nodes[written.memory]
    after = Node("after", node.dtype, node.shape, (written.memory, written.write))
    longer = values.with_graph(replace(values.graph, nodes=[*values.graph.nodes, after]))
    return _match([written.memory, *looks], longer.find_values([len(values.graph.nodes), *looks]))


def _match(slots: list[int], found: list[Value | Unknown]) -> dict[int, Value] | None:
    known = {slot: value for slot, value in zip(slots, found, strict=True) if not isinstance(value, Unknown)}
    return known if len(known) == len(slots) else None
