"""VD108: an accumulator that is initialised inside the loop that adds to it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from vmapdbg.lint.rule import Rule, advise_why, each_kernel, kernel_finding
from vmapdbg.model.capture import Capture, Finding, Kernel, Reset
from vmapdbg.model.wording import format_plural

EXPLANATION = """\
A reduce adds to a register in a loop. The register is initialised before the loop, and read when the loop is done. Here
the kernel initialises it inside the loop: each step forgets those before it, and what is read is the last step alone. A
softmax then does not sum to one. No error is raised.

Decided on the linear program: the loop stores to a register a value that does not come from the register, then adds
to it a value that the loop changes, both at an address that the loop does not change; and after the end of the loop a
load takes the sum. A register that is read inside the loop only is none of it.

What to try: it comes from the order that tinygrad lowers a kernel with several reduces to. 0.14.0 does it with
PCONTIG=2: another PCONTIG makes several kernels of it, and so does a `.contiguous()` in front of the reduce.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    for schedule, number, kernel in each_kernel(capture):
        for reset in kernel.resets:
            advice = advise_why(kernel, "put .contiguous() in front of the reduce, or set another PCONTIG")
            yield kernel_finding("VD108", schedule, number, explain(kernel, reset), advice, reset.source_line)


def explain(kernel: Kernel, reset: Reset) -> str:
    steps = format_plural(prod(loop.size for loop in reset.loops), "step")
    names = ", ".join(loop.name for loop in reset.loops)
    if len(reset.loops) == 1:
        loop = f"the loop that adds to it ({names}, {steps})"
    else:
        loop = f"the loops that add to it ({names}, {steps})"
    return f"kernel {kernel.name} initialises {reset.buffer} in each step of {loop}: only the last step is left in it"


RULE = Rule("VD108", "accumulator reset", "error", EXPLANATION, find)
