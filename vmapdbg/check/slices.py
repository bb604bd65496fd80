"""Slices of dense arrays, taken and put together on their bytes. No tinygrad."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

from vmapdbg.check.numbers import ITEMSIZE, Array, find_strides


def take_slice(source: Array, fixed: Mapping[int, int]) -> Array:
    """Returns the slice of an array at the given number along each axis of `fixed`; those axes go."""
    strides, itemsize = find_strides(source.shape), ITEMSIZE[source.dtype]
    start = sum(fixed[axis] * strides[axis] for axis in fixed)
    stays = [axis for axis in range(len(source.shape)) if axis not in fixed]
    shape = tuple(source.shape[axis] for axis in stays)
    parts = []
    for offset, length in _find_runs(shape, tuple(strides[axis] for axis in stays)):
        begin = (start + offset) * itemsize
        parts.append(source.data[begin : begin + length * itemsize])
    return Array(b"".join(parts), source.dtype, shape)


class Builder:
    """An array that is put together from slices: `axes` are those of the result that tell slices apart."""

    def __init__(self, first: Array, axes: tuple[int, ...], sizes: list[int]):
        inner = iter(first.shape)
        along = dict(zip(axes, sizes, strict=True))
        self.shape = tuple(along[a] if a in along else next(inner) for a in range(len(first.shape) + len(axes)))
        self.dtype, self.itemsize, self.axes = first.dtype, ITEMSIZE[first.dtype], axes
        self.strides = find_strides(self.shape)
        self.data = bytearray(math.prod(self.shape) * self.itemsize)

    def put(self, value: Array, steps: tuple[int, ...]) -> None:
        start = sum(step * self.strides[axis] for axis, step in zip(self.axes, steps, strict=True))
        stays = [axis for axis in range(len(self.shape)) if axis not in self.axes]
        read = 0
        for offset, length in _find_runs(value.shape, tuple(self.strides[axis] for axis in stays)):
            begin, count = (start + offset) * self.itemsize, length * self.itemsize
            self.data[begin : begin + count] = value.data[read : read + count]
            read += count

    def finish(self) -> Array:
        return Array(bytes(self.data), self.dtype, self.shape)


def _find_runs(shape: tuple[int, ...], strides: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    """The stretches of neighbouring elements that make up an array of `shape`, in its order: (offset, length)."""
    length, axes = 1, len(shape)
    while axes and strides[axes - 1] == length:
        axes -= 1
        length *= shape[axes]
    for index in itertools.product(*map(range, shape[:axes])):
        yield sum(i * s for i, s in zip(index, strides, strict=False)), length
