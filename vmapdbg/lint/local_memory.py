"""VD102: a kernel that needs more LOCAL memory than a group of threads has."""

from __future__ import annotations

from collections.abc import Iterator

from vmapdbg.lint.rule import Rule, advise_patches, each_kernel, kernel_finding
from vmapdbg.model.capture import Capture, Finding

EXPLANATION = """\
LOCAL memory (threadgroup, shared) is small: 32,768 bytes on Metal, 49,152 on CUDA. A kernel that needs more does not
compile, or does not start.

Decided by the sum over the kernel: the buffers that fusion keeps in LOCAL memory and those that a GROUP reduce needs,
together. The limit is the one that tinygrad's renderer of the target has. A target without such memory (c, llvm) has
no limit here.

What to try: turn off what keeps the buffer in LOCAL memory (fuse-broadcast), or turn on local-budget.
"""


def find(capture: Capture, baseline: Capture | None) -> Iterator[Finding]:
    for schedule, number, kernel in each_kernel(capture):
        if kernel.local_limit is None or kernel.local_bytes <= kernel.local_limit:
            continue
        message = (
            f"kernel {kernel.name} needs {kernel.local_bytes:,} bytes of LOCAL memory, a group of threads has "
            f"{kernel.local_limit:,} on {kernel.target}"
        )
        parts = {a.buffer: a.size for a in kernel.accesses or () if a.addrspace == "LOCAL"}
        if parts:
            listed = ", ".join(f"{name} {size:,} elements" for name, size in parts.items())
            message += f" ({listed})"
        yield kernel_finding("VD102", schedule, number, message, advise(capture))


def advise(capture: Capture) -> str:
    advice = "keep the buffer in GLOBAL memory with .contiguous()"
    if capture.patches.get("fuse-broadcast"):
        advice += ", or --patches all,-fuse-broadcast"
    return advise_patches(capture, "local-budget") or advice


RULE = Rule("VD102", "LOCAL memory over the limit", "error", EXPLANATION, find)
