"""Tells who made the first wrong buffer: the kernel as the scheduler made it is run by numpy, on what the kernel really
read. Runs in the oracle.

Where that gives the same wrong values, or other wrong ones, the scheduler made the fault. Where it gives the right
ones, what came after it did: code generation, or the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.align import align
from vmapdbg.check.result import Comparison, KernelFault
from vmapdbg.child.evidence.graphs import Evidence, WrittenBuffer
from vmapdbg.child.oracle.oracle import Read
from vmapdbg.reference.kernel import Kernel
from vmapdbg.reference.run_kernel import Written, run_kernel
from vmapdbg.reference.value import Unknown
from vmapdbg.values.close import find_close
from vmapdbg.values.numbers import ITEMSIZE, Array, decode
from vmapdbg.values.tolerance import Tolerance


@dataclass(frozen=True)
class WrongBuffer:
    """The first wrong buffer: what it holds, and what it should, with its `ambient` ranges first; they differ beyond
    the `tolerance`. `judge` compares other contents of it with what is right."""

    buffer: WrittenBuffer
    got: Array
    right: Array
    ambient: tuple[int, ...]
    tolerance: Tolerance
    judge: Callable[[Array], Comparison]


def find_kernel_fault(evidence: Evidence, read: Read, wrong: WrongBuffer) -> KernelFault:
    """Returns who made a wrong buffer."""
    buffer, run = wrong.buffer, wrong.buffer.run
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
    found = arrange(scheduled, buffer, wrong.right, wrong.ambient)
    if isinstance(found, str):
        return KernelFault("not-told", found)
    values, undefined = found
    is_same = np.asarray(find_close(decode(wrong.got), decode(values), wrong.tolerance)) | undefined
    if is_same.all():
        return KernelFault("scheduler", is_same=True)
    if not undefined.any() and wrong.judge(values).status != "wrong":
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
        data = bytes(buffer.size * ITEMSIZE[dtype])
        if name is not None:
            data = read(name)
        found[number] = Array(data, dtype, (len(data) // ITEMSIZE[dtype],))
    return found


def arrange(
    written: Written, buffer: WrittenBuffer, right: Array, ambient: tuple[int, ...]
) -> tuple[Array, NDArray[np.bool_]] | str:
    """Returns what a kernel writes in the shape of what is right, and which elements nobody defines."""
    masks = written.undefined
    if masks is None:
        masks = np.zeros(written.array.shape, np.bool_)
    flags = Array(bytes(math.prod(right.shape)), "bool", right.shape)
    whole = align_buffer(buffer, written.array.data, right, ambient)
    mask = align_buffer(buffer, masks.tobytes(), flags, ambient)
    if isinstance(whole, str):
        return whole
    if isinstance(mask, str):
        return mask
    return whole, np.frombuffer(mask.data, np.bool_)


def align_buffer(buffer: WrittenBuffer, data: bytes, right: Array, ambient: tuple[int, ...]) -> Array | str:
    """Returns contents of a buffer in the shape of what is right, or a sentence that says why that cannot be."""
    if buffer.is_memory and len(data) == len(right.data):
        return Array(data, right.dtype, right.shape)
    return align(data, right, buffer.stored, buffer.closed, ambient)
