"""Tells who made the first wrong buffer: the kernel as the scheduler made it is run by numpy, on what the kernel really
read. Runs in the oracle.

Where that gives the same wrong values, or other wrong ones, the scheduler made the fault. Where it gives the right
ones, what came after it did: code generation, or the compiler.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vmapdbg.check.align import align
from vmapdbg.check.result import Comparison, KernelFault
from vmapdbg.child.evidence.graphs import Evidence, WrittenBuffer
from vmapdbg.reference.kernel import Kernel
from vmapdbg.reference.run_kernel import Written, run_kernel
from vmapdbg.reference.value import Unknown
from vmapdbg.values.close import find_close
from vmapdbg.values.numbers import ITEMSIZE, Array, decode
from vmapdbg.values.tolerance import Tolerance

Read = Callable[[str], bytes]


def find_kernel_fault(
    evidence: Evidence,
    buffer: WrittenBuffer,
    read: Read,
    got: Array,
    right: Array,
    ambient: tuple[int, ...],
    tolerance: Tolerance,
    judge: Callable[[Array], Comparison],
) -> KernelFault:
    """Returns who made a wrong buffer. `got` is what it holds, `right` what it should, with its `ambient` ranges first;
    they differ beyond the `tolerance`. `judge` compares other contents of the buffer with what is right."""
    run = buffer.run
    if run.kernel is None:
        return KernelFault("not-told", run.refused)
    kernel = evidence.kernels[run.kernel]
    try:
        written = run_kernel(kernel, read_arguments(kernel, run.arguments, buffer, read))
    except Unknown as error:
        return KernelFault("not-told", str(error))
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
        # numpy does not take a kernel that is not what it should be
        return KernelFault("not-told", f"the reference failed: {type(error).__name__}: {error}")
    scheduled = written.get(0)
    if scheduled is None:
        return KernelFault("not-told", "it does not write its first buffer")
    found = arrange(scheduled, buffer, right, ambient)
    if isinstance(found, str):
        return KernelFault("not-told", found)
    values, undefined = found
    is_same = np.asarray(find_close(decode(got), decode(values), tolerance)) | undefined
    if is_same.all():
        return KernelFault("scheduler", is_same=True)
    if not undefined.any() and judge(values).status != "wrong":
        return KernelFault("lowering")
    return KernelFault("scheduler", is_same=False)


def read_arguments(
    kernel: Kernel, names: tuple[str | None, ...], buffer: WrittenBuffer, read: Read
) -> dict[int, Array]:
    """Returns what the arguments of a kernel held before it ran. Raises Unknown."""
    found: dict[int, Array] = {}
    for number, dtype in kernel.dtypes.items():
        name = names[number]
        if name is None and number != 0:
            raise Unknown("what it reads was not kept")
        # what nobody wrote has any contents
        data = bytes(buffer.size * ITEMSIZE[dtype]) if name is None else read(name)
        found[number] = Array(data, dtype, (len(data) // ITEMSIZE[dtype],))
    return found


def arrange(
    written: Written, buffer: WrittenBuffer, right: Array, ambient: tuple[int, ...]
) -> tuple[Array, np.ndarray] | str:
    """Returns what a kernel writes in the shape of what is right, and which elements nobody defines."""
    masks = np.zeros(written.array.shape, np.bool_) if written.undefined is None else written.undefined
    whole = align(written.array.data, right, buffer.stored, buffer.closed, ambient)
    flags = Array(bytes(len(right.data) // ITEMSIZE[right.dtype]), "bool", right.shape)
    mask = align(masks.tobytes(), flags, buffer.stored, buffer.closed, ambient)
    if isinstance(whole, str):
        return whole
    if isinstance(mask, str):
        return mask
    return whole, np.frombuffer(mask.data, np.bool_)
