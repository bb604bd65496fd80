"""Keeps the buffers between the kernels of a schedule: what each held after its kernel ran, and the node of the pass's
graph whose value it should hold. Runs in the child."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vmapdbg.child.evidence.graphs import Evidence, KernelRun, WrittenBuffer
from vmapdbg.child.evidence.launches import KeptWrite, LaunchKeeper
from vmapdbg.child.evidence.packer import CannotPack, Packer, is_device
from vmapdbg.child.listen.records import PassRecord
from vmapdbg.reference.graph import DEVICES, Node, find_view, is_whole

UOp = Any
_WRITES = {"ASSIGN", "STORE"}


@dataclass(frozen=True)
class NodeBuffer:
    """The buffer of a node: the numbers of the launches that write it (until 0.12 there is one for each of several
    devices) and that of its compute kernel (None for a copy), the node and its id in the Capture, the id of each range
    that was closed, and of each that was stored, with its size. See `WrittenBuffer`."""

    launches: tuple[int, ...]
    kernel: int | None
    node: UOp
    id: int
    closed: tuple[int | None, ...]
    stored: tuple[tuple[int | None, int], ...]


_DEVICES = KernelRun(refused="it is launched on several devices at once")


def pack_buffers(evidence: Evidence, found: Sequence[NodeBuffer], keeper: LaunchKeeper, packer: Packer) -> None:
    """Adds the buffers of a schedule to its evidence, with the kernels that write them, and the graph of their values
    that `packer` makes."""
    in_memory = [False] * len(found)
    try:
        roots = [find_root(packer, one.node) for one in found]
        packer.graph.roots = [slot for slot, _ in roots]
        in_memory = [is_memory for _, is_memory in roots]
        evidence.reference_passed = packer.graph
    except CannotPack as error:
        evidence.passed_refused = str(error)
    evidence.range_names[DEVICES] = "device"
    known: dict[Any, int] = {}
    for one, is_memory in zip(found, in_memory, strict=True):
        parts = list(
            _list_parts(one, is_memory, keeper, lambda launch: keeper.pack_run(launch, evidence.kernels, known))
        )
        evidence.buffers.append(parts[0] if len(parts) == 1 else _join_parts(parts, keeper))


def choose_packable(found: Iterable[NodeBuffer], packer: Packer) -> tuple[list[NodeBuffer], str | None]:
    """Returns the buffers whose values the reference can compute, and why it cannot compute others: they come after a
    call of a function, which is in their graph."""
    chosen: list[NodeBuffer] = []
    refused: str | None = None
    for one in found:
        try:
            find_root(packer, one.node)
        except CannotPack as error:
            refused = str(error)
        else:
            chosen.append(one)
    return chosen, refused


def _list_parts(
    one: NodeBuffer, is_memory: bool, keeper: LaunchKeeper, pack_run: Callable[[int], KernelRun]
) -> Iterator[WrittenBuffer]:
    """Yields what was written to the buffer of a node on each of its devices."""
    for launch in one.launches:
        kept = keeper.written[launch]
        run = pack_run(launch) if len(kept.names) == 1 else _DEVICES
        for name in kept.names:
            yield WrittenBuffer(
                one.id, one.kernel, one.closed, one.stored, kept.dtype, kept.size, name, is_memory, run, launch
            )


def _join_parts(parts: Sequence[WrittenBuffer], keeper: LaunchKeeper) -> WrittenBuffer:
    """Joins a buffer on several devices, the devices as the first axis. Raises BlobsFull."""
    first = parts[0]
    data = b"".join(keeper.folder.read_data(part.blob) for part in parts)
    stored = ((DEVICES, len(parts)), *first.stored)
    run = KernelRun(refused="it is on several devices")
    blob = keeper.folder.keep_data(data)
    return replace(first, stored=stored, size=first.size * len(parts), blob=blob, run=run, parts=tuple(parts))


def group_launches(written: Sequence[UOp], count: int) -> list[tuple[int, ...]] | None:
    """Returns for each kernel of a pass the numbers of its launches out of `count`: one, or one for each device of its
    output. None if the counts do not match, as for kernels of another pass."""
    if len(written) == count:
        return [(number,) for number in range(count)]
    sizes = [len(u.device) if isinstance(u.device, tuple) else 1 for u in written]
    if sum(sizes) != count:
        return None
    ends = list(itertools.accumulate(sizes))
    return [tuple(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


def find_root(packer: Packer, node: UOp) -> tuple[int, bool]:
    """Returns the position of what a buffer should hold, and whether that is more than the node's own value, because
    the node writes to a part of memory. Raises CannotPack."""
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
    """Yields the id and size of each dimension that a BUFFERIZE is stored with; the id is None if it is no range.

    tinygrad flattens the dimensions of a buffer into one, an expression of the ranges in their order.
    """
    for r, size in zip(stored.src[1:], map(int, stored.shape), strict=True):
        inner = {find_range_id(u): int(u.vmax) + 1 for u in r.ranges}
        ordered = [(name, inner[name]) for name in closed if name in inner]
        if math.prod(n for _, n in ordered) == size and len(ordered) == len(inner):
            yield from ordered
        else:
            yield None, size


def list_range_ids(ranges: Sequence[UOp]) -> tuple[int | None, ...]:
    return tuple(find_range_id(r) if r.op.name == "RANGE" else None for r in ranges)


def find_range_id(r: UOp) -> int:
    """Returns the id that the step range of a RANGE has, unless another RANGE has taken it."""
    return DEVICES if is_device(r) else r.arg[0]


# *** an observed tinygrad


def group_observed(passes: Sequence[PassRecord | None], asts: Sequence[UOp]) -> list[tuple[int, ...]] | None:
    """Returns for each kernel of the first pass the numbers of its launches in `asts`. The other passes are of
    functions that it calls, whose kernels run between its own. None if the launches cannot be matched."""
    first, *others = passes
    if first is None:
        return None
    if not others:
        return group_launches([kernel.buffers[0] for kernel in first.kernels], len(asts))
    called = {kernel.ast for one in others if one is not None for kernel in one.kernels}
    own = {kernel.ast for kernel in first.kernels}
    found = [number for number, ast in enumerate(asts) if ast in own]
    if None in others or called & own or [asts[number] for number in found] != [kernel.ast for kernel in first.kernels]:
        return None
    return [(number,) for number in found]


def find_observed(
    passed: PassRecord,
    ids: Mapping[UOp, int],
    written: Mapping[int, KeptWrite],
    groups: Sequence[tuple[int, ...]],
) -> Iterator[NodeBuffer]:
    """Yields the buffers that a run of stock tinygrad's pass made, with the launches of their kernels."""
    numbers = number_kernels(passed)
    for number, (launches, kernel) in enumerate(zip(groups, passed.kernels, strict=True)):
        node = kernel.node
        if node is None or node not in ids or any(launch not in written for launch in launches):
            continue
        made = next((b for b in passed.buffers if b.node is node and b.buffer is kernel.buffers[0]), None)
        closed: tuple[int | None, ...] = (None,) * len(node.shape)
        stored: tuple[tuple[int | None, int], ...] = ((None, written[launches[0]].size),)
        if made is not None:
            closed = list_range_ids(made.stage.src[1:])
            last = [verdict.stage for verdict in made.verdicts.values() if verdict.outcome == "stored"]
            stored = tuple(find_dimensions((last or [made.stage])[-1], closed))
        yield NodeBuffer(launches, numbers[number], node, ids[node], closed, stored)


def number_kernels(passed: PassRecord) -> list[int | None]:
    """Returns for each launch the number of its compute kernel, None for a copy. Launches that differ only in the value
    of a variable are one kernel."""
    numbers: dict[Any, int] = {}
    found: list[int | None] = [None] * len(passed.kernels)
    for index, kernel in enumerate(passed.kernels):
        own = None if kernel.variables else index
        if kernel.is_compute:
            found[index] = numbers.setdefault((kernel.ast, kernel.buffers, own), len(numbers))
    return found
