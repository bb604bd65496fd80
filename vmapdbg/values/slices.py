"""Slices of dense arrays, taken and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vmapdbg.values.numbers import ITEMSIZE, Array, Numbers


def view_elements(data: bytes, itemsize: int) -> Numbers:
    """Returns the elements of a buffer as they are, whatever their dtype means."""
    return np.frombuffer(data, f"V{itemsize}")


def take_slice(source: Array, fixed: Mapping[int, int]) -> Array:
    """Returns the slice of an array at the given number along each axis of `fixed`; those axes go."""
    elements = view_elements(source.data, ITEMSIZE[source.dtype]).reshape(source.shape)
    wanted = tuple(fixed.get(axis, slice(None)) for axis in range(len(source.shape)))
    part = elements[wanted]
    return Array(part.tobytes(), source.dtype, part.shape)


class Builder:
    """An array that is put together from slices: `axes` are those of the result that tell slices apart."""

    def __init__(self, first: Array, axes: tuple[int, ...], sizes: Sequence[int]):
        inner = iter(first.shape)
        along = dict(zip(axes, sizes, strict=True))
        self.shape = tuple(along[a] if a in along else next(inner) for a in range(len(first.shape) + len(axes)))
        self.dtype, self.axes = first.dtype, axes
        self.elements = np.zeros(self.shape, f"V{ITEMSIZE[first.dtype]}")

    def put(self, value: Array, steps: tuple[int, ...]) -> None:
        along = dict(zip(self.axes, steps, strict=True))
        wanted = tuple(along.get(axis, slice(None)) for axis in range(len(self.shape)))
        self.elements[wanted] = view_elements(value.data, ITEMSIZE[value.dtype]).reshape(value.shape)

    def finish(self) -> Array:
        return Array(self.elements.tobytes(), self.dtype, self.shape)
