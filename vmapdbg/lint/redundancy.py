"""VD104: work that is done again and again."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.baseline import pair_kernels
from vmapdbg.lint.rule import Rule, advise_apart, advise_patches, each_kernel, kernel_finding
from vmapdbg.model.capture import Capture, Finding

MUCH = 4.0
"""Executed ops over the ops the graph asks for."""
MUCH_MORE = 1.5
"""Executed ops over those of the baseline's kernels."""
FEW_OPS = 1000
"""A kernel that executes fewer ops is not worth a finding, however redundant it is."""

EXPLANATION = """\
A kernel computes the same values again and again: a reduce inside the loop that reads its result, a broadcast value
computed anew for each element.

Decided on counts: the ops that the linear program executes (each op times the trip counts of its loops times the
threads) are at least 4 times those that the tensor graph asks for; and, where there is a baseline, at least 1.5
times those of the baseline's kernels that it stands for. Kernels that execute less than 1,000 ops are left out.

What to try: turn on the patches that weigh it, where they are off (fusion-guard, realize-reused); turn off
fuse-broadcast where that made one kernel of several of the baseline's; or put .contiguous() after the value that is
computed again. From tinygrad 0.14 on that is .clone(): there .contiguous() makes no buffer of what is made of constants
alone, as the sine of an arange is.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    before = {}
    if baseline is not None:
        before = {(schedule.index, number): kernels for schedule, number, kernels in pair_kernels(capture, baseline)}
    for schedule, number, kernel in each_kernel(capture):
        if kernel.executed_ops < FEW_OPS or kernel.redundancy is None:
            continue
        others = before.get((schedule.index, number), [])
        executed = sum(other.executed_ops for other in others)
        if kernel.redundancy < MUCH or (executed and kernel.executed_ops < MUCH_MORE * executed):
            continue
        asked = kernel.executed_ops / kernel.redundancy
        message = (
            f"kernel {kernel.name} executes {kernel.executed_ops:,} ops where the graph asks for {asked:,.0f}: "
            f"{kernel.redundancy:.1f} times the work"
        )
        if executed:
            message += f" (the baseline's kernels execute {executed:,})"
        advice = advise_patches(capture, *_find_weighing(capture)) or advise_apart(capture, baseline, others)
        yield kernel_finding("VD104", schedule, number, message, advice)


def _find_weighing(capture: Capture) -> tuple[str, ...]:
    """The patches that keep or make a buffer where computing its value again costs more."""
    if capture.patches.get("fuse-broadcast"):
        return "fusion-guard", "realize-reused"
    # without a fusion there is nothing to refuse
    return ("realize-reused",)


RULE = Rule("VD104", "redundant work", "warning", EXPLANATION, find, compares=True)
