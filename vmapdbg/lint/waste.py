"""Rules about work that nobody asked for: VD111, VD112."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.rule import advise_why, each_kernel, kernel_finding, node_finding, rule
from vmapdbg.model.capture import Access, Capture, Finding, Kernel, Node
from vmapdbg.model.ops import MOVEMENT, WRITES
from vmapdbg.model.schedule_index import ScheduleIndex, count_elements, index_of
from vmapdbg.model.wording import format_plural

MANY_FOR_EACH, MANY_IN_ALL = 128, 1_000_000
"""How many elements a scan must read for each result, and in all, to be worth a finding."""
_ASKED = ("contiguous", "clone", "to", "realize")
_TWO_PASSES = "two passes: scan rows of about sqrt(n), then add the last value of the rows before to each row"
_SCANS = {
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), _TWO_PASSES),
    "logcumsumexp": "(x - m).exp().cumsum(axis).log() + m with m = x.max(axis, keepdim=True), if values differ by < 80",
}


@rule("VD111", "copy for nothing", "warning")
def find_useless_copies(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """A kernel only copies a buffer, although its readers could read the original, or although the kernel before it
    could write to the target. Nobody asked for the copy by .contiguous() or .clone().

    How it decides: the kernel executes no op, and has one load and one store. Either both have the same address, a
    later kernel of the schedule reads the copy, and nothing overwrites the original. Or the kernel is the only reader
    of what another kernel writes, and the other kernel reads of the target only what it would replace there.

    What to try: look at the decision that made the copy (vmapdbg why NODE). Pass the value as it is, without a
    movement op in between, or assign to a whole buffer instead of a slice.
    """
    for schedule, number, kernel in each_kernel(capture):
        index = index_of(schedule)
        node = index.node(next(iter(kernel.outputs), None))
        load, store = _find_copy(kernel)
        if load is None or store is None or node is None or node.method in _ASKED:
            continue
        sources = index.find_read(kernel)
        is_same = load.address == store.address and load.size == store.size
        if is_same and index.find_reading(node.id) and not _is_overwritten(index, kernel):
            message = "its readers could read the original"
        elif len(sources) == 1 and len(index.find_reading(sources[0])) == 1 and load.size < store.size:
            writer, producer = index.writers[sources[0]]
            if not producer.fresh or not _replaces_what_it_reads(producer, load, store):
                continue
            message = f"kernel {producer.name} #{writer} could write there"
        else:
            continue
        message = f"kernel {kernel.name} only copies {format_plural(load.size, 'element')}: {message}"
        yield kernel_finding("VD111", schedule, number, message, advise_why(schedule, kernel, "see what made the copy"))


def _find_copy(kernel: Kernel) -> tuple[Access | None, Access | None]:
    """Returns the load and the store of a kernel that only copies; None and None for any other kernel."""
    accesses = [access for access in kernel.accesses or () if access.addrspace == "GLOBAL"]
    if kernel.executed_ops or [access.kind for access in accesses] not in (["load", "store"], ["store", "load"]):
        return None, None
    load, store = sorted(accesses, key=lambda access: access.kind)
    return (load, store) if load.gate is None and store.gate is None else (None, None)


def _is_overwritten(index: ScheduleIndex, kernel: Kernel) -> bool:
    """Returns whether the schedule writes to what a kernel reads, at any time."""
    targets = {_strip(index.nodes[node.src[0]], index) for node in index.schedule.nodes if node.op in WRITES}
    read = set[int]()
    for node in map(index.nodes.__getitem__, kernel.nodes):
        if node.op != "AFTER":
            # the first source of a write is its target
            read.update(node.src[node.op in WRITES :])
    return not targets.isdisjoint(read)


def _strip(node: Node, index: ScheduleIndex) -> int:
    while node.op in MOVEMENT:
        node = index.nodes[node.src[0]]
    return node.id


def _replaces_what_it_reads(producer: Kernel, load: Access, store: Access) -> bool:
    """Returns whether a kernel may write where a copy of its result is stored: of the target it reads in a step only
    the element that it replaces."""
    accesses = producer.accesses or ()
    written = [access.address for access in accesses if access.kind == "store"]
    # a buffer of the target's size may be the target
    read = [access for access in accesses if access.kind == "load" and access.size == store.size]
    same = (store.address, store.lowest, store.highest)
    return written == [load.address] and all((one.address, one.lowest, one.highest) == same for one in read)


@rule("VD112", "scan by a reduce", "warning")
def find_quadratic_scans(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """A cumsum, cumprod, cummax or logcumsumexp of n values adds up many elements for each of them, up to n * n in all.

    How it decides: by the graph. A reduce that one of these methods makes reads at least 128 elements for each element
    of its result and a million in all, and its kernel executes that many ops. A scan in one pass takes one op for each.

    What to try: two passes. Reshape to rows of about sqrt(n), scan the rows, then add the last value of the rows before
    to each row. For logcumsumexp, if the values differ by less than about 80: (x - m).exp().cumsum().log() + m, where m
    is x.max().
    """
    for schedule, number, kernel in each_kernel(capture):
        index = index_of(schedule)
        for node in map(index.node, kernel.nodes):
            if node is None or node.method not in _SCANS:
                continue
            read, results = index.count_reduced(node), count_elements(node.shape)
            each = read // max(results, 1)
            if each < MANY_FOR_EACH or not MANY_IN_ALL <= read <= kernel.executed_ops:
                continue
            message = f"{node.method} reads {read:,} elements for {results:,} results: {each:,} for each"
            yield node_finding("VD112", schedule, node.id, message, _SCANS[node.method], number)
