"""Runs the kernel of a wrong buffer again by numpy, as the scheduler made it, on what it really read. Runs in the
process that compares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.compare import align
from vmapdbg.check.result import Comparison
from vmapdbg.child.compare.reference_values import ReadContents
from vmapdbg.child.evidence.graphs import WrittenBuffer
from vmapdbg.reference.graph import ScheduledKernel, Unknown
from vmapdbg.reference.kernels import Written, run_kernel
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import Array
from vmapdbg.values.tolerance import Tolerance


@dataclass(frozen=True)
class WrongBuffer:
    """The first wrong buffer: what it holds and what it should hold, with its `ambient` ranges first.

    They differ by more than the `tolerance`. `compare` compares other contents of the buffer with the right ones.
    """

    buffer: WrittenBuffer
    got: Array
    right: Array
    ambient: tuple[int, ...]
    tolerance: Tolerance
    compare: Callable[[Array], Comparison]


REFUSED_BY_NUMPY = (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError)
"""What numpy raises for a malformed kernel or program."""


def describe_refusal(error: Exception) -> str:
    """Returns the sentence about one of these errors."""
    return f"the reference failed: {type(error).__name__}: {error}"


def run_scheduled(
    kernel: ScheduledKernel, names: tuple[str | None, ...], wrong: WrongBuffer, read: ReadContents
) -> tuple[Array, NDArray[np.bool_]] | str:
    """Returns what a kernel as scheduled writes, in the shape of the right value, and which elements are undefined; or
    a sentence that says why that is unknown. `names` are those of the contents of its arguments."""
    try:
        written = run_kernel(kernel, read_arguments(kernel.dtypes, names, wrong.buffer, read))
    except Unknown as error:
        return str(error)
    except REFUSED_BY_NUMPY as error:
        return describe_refusal(error)
    scheduled = written.get(0)
    if scheduled is None:
        return "it does not write its first buffer"
    return arrange(scheduled, wrong.buffer, wrong.right, wrong.ambient)


def read_arguments(
    dtypes: Mapping[int, str], names: tuple[str | None, ...], buffer: WrittenBuffer, read: ReadContents
) -> dict[int, Array]:
    """Returns what the arguments of a kernel held before it ran; `dtypes` has the dtype of each. Raises Unknown."""
    found: dict[int, Array] = {}
    for number, dtype in dtypes.items():
        name = names[number]
        if name is None and number != 0:
            raise Unknown("what it reads was not kept")
        # memory that was never written may hold anything
        data = bytes(buffer.size * ITEMSIZE[dtype])
        if name is not None:
            data = read(name)
        found[number] = Array(data, dtype, (len(data) // ITEMSIZE[dtype],))
    return found


def arrange(
    written: Written, buffer: WrittenBuffer, right: Array, ambient: tuple[int, ...]
) -> tuple[Array, NDArray[np.bool_]] | str:
    """Returns what a kernel writes in the shape of the right value, and which elements are undefined."""
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
    """Returns contents of a buffer in the shape of the right value, or a sentence that says why that cannot be."""
    if buffer.is_memory and len(data) == len(right.data):
        return Array(data, right.dtype, right.shape)
    return align(data, right, buffer.stored, buffer.closed, ambient)
