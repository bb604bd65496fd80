"""A wrong buffer, and what its kernel read, in the form in which the kernel is run once more by numpy. Runs in the
oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.align import align
from vmapdbg.check.result import Comparison
from vmapdbg.child.compare.oracle import Read
from vmapdbg.child.evidence.graphs import WrittenBuffer
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.run_kernel import Written
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import Array
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


REFUSED_BY_NUMPY = (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError)
"""What numpy raises for a kernel or a program that is not what it should be."""


def describe_refusal(error: Exception) -> str:
    """Returns the sentence about one of these."""
    return f"the reference failed: {type(error).__name__}: {error}"


def read_arguments(
    dtypes: Mapping[int, str], names: tuple[str | None, ...], buffer: WrittenBuffer, read: Read
) -> dict[int, Array]:
    """Returns what the arguments of a kernel held before it ran: `dtypes` has that of each. Raises Unknown."""
    found: dict[int, Array] = {}
    for number, dtype in dtypes.items():
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
