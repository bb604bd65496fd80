"""Tells who made the first wrong buffer: the kernel as the scheduler made it is run by numpy, on what the kernel really
read. Runs in the oracle.

Where that gives the same wrong values, or other wrong ones, the scheduler made the fault. Where it gives the right
ones, what came after it did: `linear_fault` says whether that was code generation.
"""

from __future__ import annotations

import numpy as np

from vmapdbg.check.result import KernelFault
from vmapdbg.child.compare.linear_fault import find_linear_fault
from vmapdbg.child.compare.oracle import Read
from vmapdbg.child.compare.stale_reads import compute, find_stale
from vmapdbg.child.compare.wrong_buffer import WrongBuffer
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.values.close import find_close
from vmapdbg.values.numbers import decode


def find_kernel_fault(evidence: Evidence, read: Read, wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer."""
    fault = find_scheduled_fault(evidence, read, wrong)
    if fault.made_by == "lowering":
        return find_linear_fault(read, wrong)
    if fault.made_by == "not-told" and find_linear_fault(read, wrong).made_by == "compiler":
        # a right program is no fault of the scheduler
        return KernelFault("compiler", fault.reason)
    return fault


def find_scheduled_fault(evidence: Evidence, read: Read, wrong: WrongBuffer) -> KernelFault:
    """Returns whether the scheduler made a wrong buffer, or what comes after it (`lowering`)."""
    run = wrong.buffer.run
    if run.kernel is None:
        return KernelFault("not-told", run.refused)
    kernel = evidence.kernels[run.kernel]
    found = compute(kernel, run.arguments, wrong, read)
    if isinstance(found, str):
        return KernelFault("not-told", found)
    values, undefined = found
    is_same = np.asarray(find_close(decode(wrong.got), decode(values), wrong.tolerance)) | undefined
    if is_same.all():
        return KernelFault("scheduler", is_same=True, stale=find_stale(evidence, read, wrong))
    if not undefined.any() and wrong.judge(values).status != "wrong":
        return KernelFault("lowering")
    return KernelFault("scheduler", is_same=False)
