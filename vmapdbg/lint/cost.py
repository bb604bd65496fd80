"""Rules about memory limits and speed: VD102, VD103, VD104, VD111, VD112."""

from collections.abc import Iterator

from vmapdbg.lint.rule import advise_apart, advise_on, advise_why, each_kernel, kernel_finding, node_finding, rule
from vmapdbg.model.capture import Access, Capture, Finding, Kernel, Schedule
from vmapdbg.model.ops import MOVEMENT, WRITES
from vmapdbg.model.schedule_index import ScheduleIndex, count_elements, index_of
from vmapdbg.model.wording import format_known, format_plural

FEWER_THREADS = 2.0  # how many times fewer threads, and how many times more ops in each of them, are worth a finding
REDUNDANT = 4.0  # executed ops over the ops that the graph asks for: from here on a kernel is reported
MORE_THAN_BASELINE = 1.5  # a kernel is reported if it executes so many times the ops of the baseline's kernels
FEW_OPS = 1000  # a kernel that executes fewer ops is not reported, however redundant it is
MANY_FOR_EACH, MANY_IN_ALL = 128, 1_000_000
"""How many elements a scan must read for each result, and in all, to be worth a finding."""
_ASKED = ("contiguous", "clone", "to", "realize")
_TWO_PASSES = "two passes: scan rows of about sqrt(n), then add the last value of the rows before to each row"
_SCANS = {
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), _TWO_PASSES),
    "logcumsumexp": "(x - m).exp().cumsum(axis).log() + m with m = x.max(axis, keepdim=True), if values differ by < 80",
}


@rule("VD102", "LOCAL memory over the limit", "error")
def find_large_local_memory(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """LOCAL memory (threadgroup, shared) is small: 32,768 bytes on Metal, 49,152 on CUDA. A kernel that needs more does
    not compile, or does not start.

    How it decides: by the sum over the kernel of the buffers that fusion keeps in LOCAL memory and the buffers that a
    GROUP reduce needs. The limit is the limit in tinygrad's renderer of the target. A target without such memory (c,
    llvm) has no limit.

    What to try: turn off the patch that keeps the buffer in LOCAL memory (fuse-broadcast), or turn on local-budget."""
    for schedule, number, kernel in each_kernel(capture):
        if kernel.local_limit is None or kernel.local_bytes <= kernel.local_limit:
            continue
        parts = [f"{a.buffer} {a.size:,} elements" for a in kernel.accesses or () if a.addrspace == "LOCAL"]
        message = (
            f"kernel {kernel.name} needs {kernel.local_bytes:,} bytes of LOCAL memory, a group of threads has "
            f"{kernel.local_limit:,} on {kernel.target}{format_known(' ({})', ', '.join(dict.fromkeys(parts)))}"
        )
        advice = "keep the buffer in GLOBAL memory with .contiguous()"
        if capture.patches.get("fuse-broadcast"):
            advice += ", or --patches all,-fuse-broadcast"
        advice = advise_on(capture, "local-budget") or advice
        yield kernel_finding("VD102", schedule, number, message, advice)


@rule("VD103", "parallelism lost", "warning", compares=True)
def find_lost_parallelism(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """A kernel does the work of several kernels of the baseline in fewer threads. Each thread does more, and the
    program is slower although it has fewer kernels.

    How it decides: against the baseline, which is the same snippet with other patches (`--baseline`; by default every
    switchable patch is off). The kernel has at most half the threads of the baseline's busiest kernel, and its ops for
    each thread are at least twice those of the baseline's kernels together. A saved capture needs `--baseline
    FILE.json`.

    What to try: turn on fusion-guard, turn off fuse-broadcast if it made one kernel of several, or put .contiguous()
    between the parts that should be two kernels."""
    for schedule, number, before in _pair_kernels(capture, baseline):
        kernel = schedule.kernels[number]
        if not all(k.threads for k in (kernel, *before)):
            # a kernel without a program
            continue
        busiest = max(before, key=lambda k: k.executed_ops)
        # the ops of one thread; the baseline's kernels run one after the other
        serial = kernel.executed_ops / kernel.threads
        serial_before = sum(k.executed_ops / k.threads for k in before)
        if kernel.threads * FEWER_THREADS > busiest.threads or serial < FEWER_THREADS * serial_before:
            continue
        threads = format_plural(kernel.threads, "thread")
        message = (
            f"kernel {kernel.name} runs {threads} where the baseline's {busiest.name} runs "
            f"{busiest.threads:,}: each does {serial:,.0f} ops instead of {serial_before:,.0f}"
        )
        advice = advise_on(capture, "fusion-guard") or advise_apart(capture)
        yield kernel_finding("VD103", schedule, number, message, advice)


@rule("VD104", "redundant work", "warning", compares=True)
def find_redundant_work(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """A kernel computes the same values again and again: a reduce is inside the loop that reads its result, or a
    broadcast value is computed again for each element.

    How it decides: by counts. The ops that the linear program executes (each op times the trip counts of its loops
    times the threads) are at least 4 times the ops that the tensor graph asks for. If there is a baseline, they are
    also at least 1.5 times the ops of the baseline's kernels that do the same work. Kernels that execute fewer than
    1,000 ops are not checked.

    What to try: turn on the patches that weigh such work, if they are off (fusion-guard, realize-reused). Turn off
    fuse-broadcast if it made one kernel of several. Or put .contiguous() after the value that is computed again. Since
    tinygrad 0.14 use .clone() instead: there .contiguous() makes no buffer of a value computed from constants alone,
    such as the sine of an arange."""
    before = {(schedule.index, number): kernels for schedule, number, kernels in _pair_kernels(capture, baseline)}
    for schedule, number, kernel in each_kernel(capture):
        if kernel.executed_ops < FEW_OPS or kernel.redundancy is None:
            continue
        executed = sum(other.executed_ops for other in before.get((schedule.index, number), []))
        if kernel.redundancy < REDUNDANT or (executed and kernel.executed_ops < MORE_THAN_BASELINE * executed):
            continue
        asked = kernel.executed_ops / kernel.redundancy
        message = (
            f"kernel {kernel.name} executes {kernel.executed_ops:,} ops where the graph asks for {asked:,.0f}: "
            f"{kernel.redundancy:.1f} times the work"
        )
        if executed:
            message += f" (the baseline's kernels execute {executed:,})"
        # the patches that make a buffer if computing its value again costs more
        guard = ("fusion-guard",) if capture.patches.get("fuse-broadcast") else ()
        advice = advise_on(capture, *guard, "realize-reused") or advise_apart(capture)
        yield kernel_finding("VD104", schedule, number, message, advice)


def _pair_kernels(capture: Capture, baseline: Capture | None) -> Iterator[tuple[Schedule, int, list[Kernel]]]:
    """Yields each kernel (its schedule, its number) with the baseline's kernels whose work it does, as a diff pairs
    them: kernels that write the same, and kernels that were fused."""
    if baseline is None or capture.target != baseline.target:
        return
    # the processes of `run --lint` import this module and have no baseline
    from vmapdbg.diff.captures import diff_captures

    for schedule in diff_captures(baseline, capture).schedules:
        for change in schedule.kernels:
            if schedule.after is not None and (change.matched_by == "outputs" or change.status == "fused-from"):
                before = [side.kernel for side in change.before]
                yield capture.schedules[schedule.after], change.after[0].number, before


@rule("VD111", "copy for nothing", "warning")
def find_useless_copies(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """A kernel only copies a buffer, although its readers could read the original, or although the kernel before it
    could write to the target. Nobody asked for the copy by .contiguous() or .clone().

    How it decides: the kernel executes no op, and has one load and one store. Either both have the same address, a
    later kernel of the schedule reads the copy, and nothing overwrites the original. Or the kernel is the only reader
    of what another kernel writes, and the other kernel reads of the target only what it would replace there.

    What to try: look at the decision that made the copy (vmapdbg why NODE). Pass the value as it is, without a
    movement op in between, or assign to a whole buffer instead of a slice."""
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
    targets = {index.find_under(node.src[0], MOVEMENT).id for node in index.schedule.nodes if node.op in WRITES}
    computed = [node for node in map(index.nodes.__getitem__, kernel.nodes) if node.op != "AFTER"]
    # the first source of a write is its target
    return any(not targets.isdisjoint(node.src[node.op in WRITES :]) for node in computed)


def _replaces_what_it_reads(producer: Kernel, load: Access, store: Access) -> bool:
    """Whether a kernel may write where its result is copied to: a step reads only the element that it replaces."""
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
    is x.max()."""
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
