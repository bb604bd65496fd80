"""Brings the contents of a kernel's buffer into the shape that its node should have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import Array, find_strides
from vmapdbg.values.slices import view_elements


def align(
    data: bytes,
    right: Array,
    stored: Sequence[tuple[int | None, int]],
    closed: Sequence[int | None],
    ambient: Sequence[int],
) -> Array | str:
    """Returns the buffer in the shape of `right`, or a sentence that says why that cannot be.

    `right` has the ambient ranges first, then the node's own axes. `closed` has the range ids of the BUFFERIZE as the
    pass made it, one for each dimension, the node's own axes last; `stored` those that were left when it was stored,
    with their sizes: tinygrad drops a dimension that the value does not depend on. Such a one is read as it is by every
    step, and so it is here: that is how a lost range becomes visible.
    """
    itemsize = ITEMSIZE[right.dtype]
    sizes = [size for _, size in stored]
    if len(data) != math.prod(sizes) * itemsize:
        return f"it holds {len(data) // itemsize} elements, its ranges have {math.prod(sizes)}"
    own = len(right.shape) - len(ambient)
    keys = [*ambient, *closed[len(closed) - own :]]
    wide: dict[int | None, int] = {r: size for r, size in stored if r is not None and size > 1}
    fits = all(wide.get(key, size) == size for key, size in zip(keys, right.shape, strict=True))
    unknown = any(r is None and size > 1 for r, size in stored)
    if unknown or not fits or not set(wide) <= set(keys):
        if len(data) == len(right.data):
            return Array(data, right.dtype, right.shape)
        return "its dimensions are not those of its node"
    return Array(read_dimensions(data, itemsize, stored, keys, right.shape), right.dtype, right.shape)


def read_dimensions(
    data: bytes, itemsize: int, stored: Sequence[tuple[Any, int]], names: Sequence[Any], shape: tuple[int, ...]
) -> bytes:
    """Returns the elements of a buffer in the order of other dimensions.

    Dimensions have names, the last one fastest: `stored` has (name, size) of each of the buffer's, `names` and `shape`
    are those of the result. One that the buffer does not have is read as it is by every step.
    """
    strides = find_strides(tuple(size for _, size in stored))
    known = {name: step for (name, size), step in zip(stored, strides, strict=True) if size > 1}
    steps = [known.get(name, 0) for name in names]
    # most buffers have the order that is asked for
    if steps == [step * (size > 1) for step, size in zip(find_strides(shape), shape, strict=True)]:
        return data
    offsets = np.zeros((), np.intp)
    for step, size in zip(steps, shape, strict=True):
        offsets = offsets[..., None] + step * np.arange(size)
    return view_elements(data, itemsize)[offsets].tobytes()
