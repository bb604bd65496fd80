"""Keeps the buffers between the kernels of a schedule: what each held after its kernel ran, and the node of the pass's
graph whose value it should hold. Runs in the child."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vmapdbg.child.capture.view import list_nodes
from vmapdbg.child.evidence.graphs import Evidence, KernelRun, WrittenBuffer
from vmapdbg.child.evidence.launches import LaunchKeeper
from vmapdbg.child.evidence.packer import CannotPack, Packer, is_device
from vmapdbg.child.listen.records import Launch, PassRecord
from vmapdbg.reference.graph import DEVICES, OpNode, find_view, is_whole

UOp = Any
_DEVICES = KernelRun(refused="it is launched on several devices at once")


def pack_buffers(
    evidence: Evidence, passed: PassRecord, keeper: LaunchKeeper, groups: Sequence[tuple[int, ...]], packer: Packer
) -> None:
    """Adds the buffers that a run of the pass made to the evidence of its schedule, with the kernels that write them,
    and the graph of their values that `packer` makes. `groups` has the launches of each kernel."""
    ids = {u: number for number, u in enumerate(list_nodes(passed))}
    numbers = number_kernels(passed.kernels)
    known: dict[Any, int] = {}
    for number, (launches, kernel) in enumerate(zip(groups, passed.kernels, strict=True)):
        if kernel.node not in ids or any(launch not in keeper.written for launch in launches):
            continue
        try:
            root, is_memory = find_root(packer, kernel.node)
        except CannotPack:
            # it comes after a call of a function, which is in its graph
            continue
        packer.graph.roots.append(root)
        node, kept = ids[kernel.node], keeper.written[launches[0]]
        closed, stored = find_closed(passed, kernel, kept.size)
        written = WrittenBuffer(node, numbers[number], closed, stored, kept.dtype, kept.size, "", is_memory)
        parts: list[WrittenBuffer] = []
        for launch in launches:
            names, run = keeper.written[launch].names, _DEVICES
            if len(names) == 1:
                run = keeper.pack_run(launch, evidence.kernels, known)
            parts += (replace(written, blob=name, run=run, launch=launch) for name in names)
        if len(parts) > 1:
            parts = [_join_parts(parts, keeper)]
        evidence.buffers += parts
    evidence.graphs["passed"] = packer.graph
    evidence.range_names |= {r.arg[0]: r.render(simplify=False) for r in passed.scope_ranges}
    evidence.range_names[DEVICES] = "device"


def _join_parts(parts: Sequence[WrittenBuffer], keeper: LaunchKeeper) -> WrittenBuffer:
    """Joins a buffer on several devices, the devices as the first axis. Raises BlobsFull."""
    first = parts[0]
    data = b"".join(keeper.folder.read_data(part.blob) for part in parts)
    stored = ((DEVICES, len(parts)), *first.stored)
    run = KernelRun(refused="it is on several devices")
    blob = keeper.folder.keep_data(data)
    return replace(first, stored=stored, size=first.size * len(parts), blob=blob, run=run, parts=tuple(parts))


def find_root(packer: Packer, node: UOp) -> tuple[int, bool]:
    """Returns the position of what a buffer should hold, and whether that is more than the node's value, because the
    node writes to a part of memory. Raises CannotPack."""
    slot = packer.pack(node)
    if node.op.name not in {"ASSIGN", "STORE"}:
        return slot, False
    graph = packer.graph
    target, value = graph.nodes[slot].src
    view = find_view(graph, target)
    if is_whole(graph, view):
        # a STORE has no value of its own
        return {"ASSIGN": slot, "STORE": value}[node.op.name], False
    memory = graph.nodes[view.base]
    return graph.add(OpNode("after", memory.dtype, memory.shape, (view.base, slot))), True


def find_closed(
    passed: PassRecord, kernel: Launch, size: int
) -> tuple[tuple[int | None, ...], tuple[tuple[int | None, int], ...]]:
    """Returns the ranges of the buffer that a kernel writes: see `WrittenBuffer.closed` and `stored`. `size` is the
    size of the buffer on one device.

    tinygrad flattens the dimensions of a buffer into one, an expression of the ranges in their order.
    """
    node = kernel.node
    assert node is not None
    made = next((b for b in passed.buffers if b.node is node and b.buffer is kernel.buffers[0]), None)
    if made is None:
        return (None,) * len(node.shape), ((None, size),)
    closed = tuple(map(range_id, made.stage.src[1:]))
    last = [verdict.stage for verdict in made.verdicts.values() if verdict.outcome == "stored"]
    stage = (last or [made.stage])[-1]
    stored: list[tuple[int | None, int]] = []
    for r, length in zip(stage.src[1:], map(int, stage.shape), strict=True):
        sizes = {range_id(u): int(u.vmax) + 1 for u in r.ranges}
        ordered = [(name, sizes[name]) for name in closed if name in sizes]
        if math.prod(n for _, n in ordered) != length or len(ordered) != len(sizes):
            ordered = [(None, length)]
        stored += ordered
    return closed, tuple(stored)


def range_id(r: UOp) -> int | None:
    """Returns the id that the step range of a RANGE has, unless another RANGE has taken it; None for another op."""
    if r.op.name != "RANGE":
        return None
    return DEVICES if is_device(r) else r.arg[0]


# *** kernels and launches


def group_launches(passes: Sequence[PassRecord | None], asts: Sequence[UOp]) -> list[tuple[int, ...]] | None:
    """Returns for each kernel of the first pass the numbers of its launches in `asts`: one, or one for each device of
    its output. The other passes are of functions that it calls, whose kernels run in between. None if the launches
    cannot be matched."""
    first, *others = passes or [None]
    if first is None or None in others:
        return None
    if others:
        called = {kernel.ast for one in others if one is not None for kernel in one.kernels}
        kernels = [kernel.ast for kernel in first.kernels]
        found = [number for number, ast in enumerate(asts) if ast in kernels]
        if called & {*kernels} or [asts[number] for number in found] != kernels:
            return None
        return [(number,) for number in found]
    sizes = [1] * len(first.kernels)
    if len(sizes) != len(asts):
        devices = (kernel.buffers[0].device for kernel in first.kernels)
        sizes = [len(device) if isinstance(device, tuple) else 1 for device in devices]
    if sum(sizes) != len(asts):
        return None
    ends = list(itertools.accumulate(sizes))
    return [tuple(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


def number_kernels(launches: Sequence[Launch]) -> list[int | None]:
    """Returns for each launch the number of its compute kernel, None for a copy. Launches that differ only in the value
    of a variable are one kernel."""
    numbers: dict[Any, int] = {}
    found: list[int | None] = [None] * len(launches)
    for index, launch in enumerate(launches):
        place = None if launch.variables else index
        if launch.is_compute:
            found[index] = numbers.setdefault((launch.ast, launch.buffers, place), len(numbers))
    return found
