"""Rules about memory limits and speed: VD102, VD103, VD104."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vmapdbg.lint.rule import advise_apart, advise_patches, each_kernel, kernel_finding, rule
from vmapdbg.model.capture import Capture, Finding, Kernel, Schedule
from vmapdbg.model.wording import format_plural

FEWER_THREADS = 2.0
"""How many times fewer threads, and how many times more ops in each of them, are worth a finding."""
REDUNDANT = 4.0
"""Executed ops over the ops that the graph asks for: from here on a kernel is reported."""
MORE_THAN_BASELINE = 1.5
"""Executed ops over those of the baseline's kernels: from here on a kernel is reported."""
FEW_OPS = 1000
"""A kernel that executes fewer ops is not reported, however redundant it is."""


@rule("VD102", "LOCAL memory over the limit", "error")
def find_large_local_memory(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    """LOCAL memory (threadgroup, shared) is small: 32,768 bytes on Metal, 49,152 on CUDA. A kernel that needs more does
    not compile, or does not start.

    How it decides: by the sum over the kernel of the buffers that fusion keeps in LOCAL memory and the buffers that a
    GROUP reduce needs. The limit is the limit in tinygrad's renderer of the target. A target without such memory (c,
    llvm) has no limit.

    What to try: turn off the patch that keeps the buffer in LOCAL memory (fuse-broadcast), or turn on local-budget.
    """
    for schedule, number, kernel in each_kernel(capture):
        if kernel.local_limit is None or kernel.local_bytes <= kernel.local_limit:
            continue
        message = (
            f"kernel {kernel.name} needs {kernel.local_bytes:,} bytes of LOCAL memory, a group of threads has "
            f"{kernel.local_limit:,} on {kernel.target}"
        )
        parts = [f"{a.buffer} {a.size:,} elements" for a in kernel.accesses or () if a.addrspace == "LOCAL"]
        if parts:
            message += f" ({', '.join(dict.fromkeys(parts))})"
        advice = "keep the buffer in GLOBAL memory with .contiguous()"
        if capture.patches.get("fuse-broadcast"):
            advice += ", or --patches all,-fuse-broadcast"
        advice = advise_patches(capture, "local-budget") or advice
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
    between the parts that should be two kernels.
    """
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
        advice = advise_patches(capture, "fusion-guard") or advise_apart(capture)
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
    such as the sine of an arange.
    """
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
        advice = advise_patches(capture, *guard, "realize-reused") or advise_apart(capture)
        yield kernel_finding("VD104", schedule, number, message, advice)


# *** the baseline


def _pair_kernels(capture: Capture, baseline: Capture | None) -> Iterator[tuple[Schedule, int, list[Kernel]]]:
    """Yields each kernel (its schedule, its number) with the baseline's kernels whose work it does.

    Only schedules of the same graph are compared: the same ops in the same order. Nodes of two tinygrad releases are
    the same if they mean the same.
    """
    if baseline is None or capture.target != baseline.target:
        return
    # the processes of `run --lint` import this module and have no baseline
    from vmapdbg.diff.captures import have_same_tinygrad

    is_same = have_same_tinygrad(baseline.versions, capture.versions)
    before = {schedule.index: schedule for schedule in baseline.schedules}
    for schedule in capture.schedules:
        other = before.get(schedule.index)
        if other is None:
            continue
        kernels, kernels_before = schedule.kernels, other.kernels
        if [n.op for n in schedule.nodes] != [n.op for n in other.nodes]:
            if is_same:
                continue
            kernels, kernels_before = _read_neutrally(schedule, other)
        writers = {kernel.outputs[0]: kernel for kernel in kernels_before if kernel.outputs}
        for number, kernel in enumerate(kernels):
            fused = [writers[node] for node in kernel.nodes if node in writers]
            if fused and writers.keys() & kernel.outputs:
                yield schedule, number, fused


def _read_neutrally(schedule: Schedule, other: Schedule) -> tuple[Sequence[Kernel], Sequence[Kernel]]:
    """Returns the kernels of both schedules; the kernels of `other` have the node ids of `schedule`."""
    from vmapdbg.diff.neutral import read_neutrally
    from vmapdbg.diff.nodes import match_nodes

    after, before = read_neutrally(schedule).compared, read_neutrally(other).compared
    twins = match_nodes(before, after)
    renamed = [
        # no node has a negative id
        replace(kernel, outputs=tuple(twins.get(node, -1 - node) for node in kernel.outputs))
        for kernel in before.kernels
    ]
    return after.kernels, renamed
