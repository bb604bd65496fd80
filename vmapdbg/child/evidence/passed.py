"""The buffers between the kernels of a schedule: what each held when its kernel had run, and the node of the graph of
the pass whose value that should be. Runs in the child."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmapdbg.child.evidence.graphs import Evidence, WrittenBuffer
from vmapdbg.child.evidence.launches import LaunchKeeper
from vmapdbg.child.evidence.packer import Packer
from vmapdbg.child.evidence.packing import CannotPack
from vmapdbg.child.record.observe import ObservedPass
from vmapdbg.reference.graph import Node
from vmapdbg.reference.writes import find_view, is_whole

UOp = Any
_WRITES = {"ASSIGN", "STORE"}


@dataclass(frozen=True)
class NodeBuffer:
    """The buffer of a node: the number of the launch that writes it and that of its compute kernel (None for a copy),
    the node and its id in the Capture, the id of each range that was closed, and of each that was stored, with its
    size. See `WrittenBuffer`."""

    launch: int
    kernel: int | None
    node: UOp
    id: int
    closed: tuple[int | None, ...]
    stored: tuple[tuple[int | None, int], ...]


def pack_buffers(evidence: Evidence, found: Sequence[NodeBuffer], keeper: LaunchKeeper, packer: Packer) -> None:
    """Adds the buffers of a schedule to its evidence, with the graph of their values that `packer` makes."""
    in_memory = [False] * len(found)
    try:
        roots = [find_root(packer, one.node) for one in found]
        packer.graph.roots = [slot for slot, _ in roots]
        in_memory = [is_memory for _, is_memory in roots]
        evidence.reference_passed = packer.graph
    except CannotPack as error:
        evidence.passed_refused = str(error)
    known: dict[Any, int] = {}
    for one, is_memory in zip(found, in_memory, strict=True):
        blob, dtype, size = keeper.written[one.launch]
        run = keeper.pack_run(one.launch, evidence.kernels, known)
        evidence.buffers.append(
            WrittenBuffer(one.id, one.kernel, one.closed, one.stored, dtype, size, blob, is_memory, run, one.launch)
        )


def find_root(packer: Packer, node: UOp) -> tuple[int, bool]:
    """Returns the position of what a buffer should hold, and whether that is more than the node's own value: where it
    writes to a part of memory. Raises CannotPack."""
    slot = packer.pack(node)
    if node.op.name not in _WRITES:
        return slot, False
    graph = packer.graph
    target, value = graph.nodes[slot].src
    view = find_view(graph, target)
    if is_whole(graph, view):
        # a STORE has no value of its own
        return {"ASSIGN": slot, "STORE": value}[node.op.name], False
    memory = graph.nodes[view.base]
    return graph.add(Node("after", memory.dtype, memory.shape, (view.base, slot))), True


def find_dimensions(stored: UOp, closed: tuple[int | None, ...]) -> Iterator[tuple[int | None, int]]:
    """Yields the id and size of each range that a BUFFERIZE is stored by; None for what is no range.

    tinygrad flattens the dimensions of a buffer into one, an expression of the ranges in their order.
    """
    for r, size in zip(stored.src[1:], map(int, stored.shape), strict=True):
        inner = {u.arg[0]: int(u.vmax) + 1 for u in r.ranges}
        ordered = [(name, inner[name]) for name in closed if name in inner]
        if math.prod(n for _, n in ordered) == size and len(ordered) == len(inner):
            yield from ordered
        else:
            yield None, size


def list_range_ids(ranges: Sequence[UOp]) -> tuple[int | None, ...]:
    return tuple(r.arg[0] if r.op.name == "RANGE" else None for r in ranges)


# *** an observed tinygrad


def find_observed(passed: ObservedPass, ids: Mapping[UOp, int], written: Mapping[int, Any]) -> Iterator[NodeBuffer]:
    """Yields the buffers of a run of the pass of stock tinygrad. `written` has a size, third, for each launch."""
    numbers = number_kernels(passed)
    for launch, kernel in enumerate(passed.kernels):
        node = kernel.node
        if node is None or node not in ids or launch not in written:
            continue
        made = next((b for b in passed.buffers if b.node is node and b.buffer is kernel.buffers[0]), None)
        closed: tuple[int | None, ...] = (None,) * len(node.shape)
        stored: tuple[tuple[int | None, int], ...] = ((None, written[launch][2]),)
        if made is not None:
            closed = list_range_ids(made.stage.src[1:])
            last = [verdict.stage for verdict in made.verdicts.values() if verdict.outcome == "stored"]
            stored = tuple(find_dimensions((last or [made.stage])[-1], closed))
        yield NodeBuffer(launch, numbers[launch], node, ids[node], closed, stored)


def number_kernels(passed: ObservedPass) -> list[int | None]:
    """Returns for each launch the number of its compute kernel, None for a copy: launches that differ only in the value
    of a variable are one kernel."""
    numbers: dict[Any, int] = {}
    found: list[int | None] = [None] * len(passed.kernels)
    for index, kernel in enumerate(passed.kernels):
        own = None if kernel.variables else index
        if kernel.is_compute:
            found[index] = numbers.setdefault((kernel.ast, kernel.buffers, own), len(numbers))
    return found
