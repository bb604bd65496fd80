"""Slices of dense arrays, taken and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import Array, Numbers


def view_elements(data: bytes, itemsize: int) -> Numbers:
    """Returns the elements of a buffer as they are, whatever their dtype means."""
    return np.frombuffer(data, f"V{itemsize}")


def take_slice(source: Array, fixed: Mapping[int, int]) -> Array:
    """Returns the slice of an array at the given number along each axis of `fixed`; those axes go."""
    elements = view_elements(source.data, ITEMSIZE[source.dtype]).reshape(source.shape)
    wanted = tuple(fixed.get(axis, slice(None)) for axis in range(len(source.shape)))
    part = elements[wanted]
    return Array(part.tobytes(), source.dtype, part.shape)


def put_slice(whole: Array, fixed: Mapping[int, int], part: Array) -> Array:
    """Returns an array with another slice at the given number along each axis of `fixed`."""
    itemsize = ITEMSIZE[whole.dtype]
    elements = view_elements(whole.data, itemsize).reshape(whole.shape).copy()
    wanted = tuple(fixed.get(axis, slice(None)) for axis in range(len(whole.shape)))
    elements[wanted] = view_elements(part.data, itemsize).reshape(part.shape)
    return Array(elements.tobytes(), whole.dtype, whole.shape)


def join_slices(slices: Sequence[Array], axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Returns the array that slices are made of: `axes` are those of the result that tell them apart, of these `sizes`.

    There is a slice for each step along the axes, the last one fastest; all have one shape and dtype.
    """
    first = slices[0]
    elements = view_elements(b"".join(part.data for part in slices), ITEMSIZE[first.dtype])
    stacked = elements.reshape(*sizes, *first.shape)
    whole = np.moveaxis(stacked, range(len(axes)), axes)
    return Array(whole.tobytes(), first.dtype, whole.shape)
