"""Brings the contents of a kernel's buffer into the shape that its node should have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from vmapdbg.check.numbers import ITEMSIZE, Array, find_strides


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
    keys = [*ambient, *(closed[len(closed) - own :] if own else ())]
    strides = dict(zip([r for r, _ in stored], find_strides(tuple(sizes)), strict=True))
    wide = {r: size for r, size in stored if r is not None and size > 1}
    fits = all(wide.get(key, size) == size for key, size in zip(keys, right.shape, strict=True))
    if len(keys) != len(right.shape) or not fits or not set(wide) <= set(keys):
        if len(data) == len(right.data):
            return Array(data, right.dtype, right.shape)
        return "its dimensions are not those of its node"
    steps = [strides[key] if key in wide else 0 for key in keys]
    return Array(_gather(data, itemsize, right.shape, steps), right.dtype, right.shape)


def _gather(data: bytes, itemsize: int, shape: tuple[int, ...], steps: Sequence[int]) -> bytes:
    if list(steps) == [step if size > 1 else 0 for step, size in zip(find_strides(shape), shape, strict=True)]:
        return data
    places = (sum(i * s for i, s in zip(index, steps, strict=True)) for index in product(*map(range, shape)))
    return b"".join(data[p * itemsize : (p + 1) * itemsize] for p in places)
