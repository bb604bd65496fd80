"""VD103: parallelism lost against the baseline."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.baseline import pair_kernels
from vmapdbg.lint.rule import Rule, advise_apart, advise_patches, kernel_finding
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.wording import format_plural

MUCH = 2.0
"""How many times fewer threads, and how many times more ops in each of them, are worth a finding."""

EXPLANATION = """\
A kernel does what several kernels of the baseline do, in fewer threads: each thread does more, and the whole is slower,
although there are fewer kernels.

Decided against the baseline, the same snippet with other patches (`--baseline`, every switchable patch off when it is
not given): the kernel has at most half the threads of the baseline's busiest kernel, and its ops for each thread are at
least twice those of the baseline's kernels together. A saved capture needs `--baseline FILE.json` for it.

What to try: turn on fusion-guard, turn off fuse-broadcast where that made one kernel of several, or put .contiguous()
where the kernels should be two.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    if baseline is None:
        return
    for schedule, number, before in pair_kernels(capture, baseline):
        kernel = schedule.kernels[number]
        busiest = max(before, key=lambda k: k.executed_ops)
        # what one thread does after the other; the baseline's kernels run one after the other
        serial = kernel.executed_ops / kernel.threads
        serial_before = sum(k.executed_ops / k.threads for k in before)
        if kernel.threads * MUCH > busiest.threads or serial < MUCH * serial_before:
            continue
        threads = format_plural(kernel.threads, "thread")
        message = (
            f"kernel {kernel.name} runs {threads} where the baseline's {busiest.name} runs "
            f"{busiest.threads:,}: each does {serial:,.0f} ops instead of {serial_before:,.0f}"
        )
        advice = advise_patches(capture, "fusion-guard") or advise_apart(capture, baseline, before)
        yield kernel_finding("VD103", schedule, number, message, advice)


RULE = Rule("VD103", "parallelism lost", "warning", EXPLANATION, find, compares=True)
