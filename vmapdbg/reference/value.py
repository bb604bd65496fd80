"""The value of a node: an array, with the axes of its step ranges first, and what of it is not defined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vmapdbg.values.numbers import Numbers

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Value:
    """`numbers` has one axis for each step range of `ranges` (ids, ascending), then the node's own axes. `undefined` is
    true for the elements that neither C nor tinygrad defines; None where there are none. Both may be views with an
    element in many places."""

    numbers: Numbers
    ranges: tuple[int, ...] = ()
    undefined: Mask | None = None

    @property
    def own_shape(self) -> tuple[int, ...]:
        return self.numbers.shape[len(self.ranges) :]

    @property
    def mask(self) -> Mask:
        """`undefined`, an array where there are none, too."""
        if self.undefined is None:
            return np.broadcast_to(np.False_, self.numbers.shape)
        return self.undefined

    def move(self, view: Callable[[Numbers], Numbers]) -> Value:
        """Returns the value with an array function applied that only moves elements."""
        moved = Value(view(self.numbers), self.ranges)
        if self.undefined is None:
            return moved
        return replace(moved, undefined=view(self.undefined))

    def mark(self, undefined: Mask | None) -> Value:
        """Returns the value with more elements that are undefined."""
        if undefined is None or not undefined.any():
            return self
        if self.undefined is not None:
            undefined = undefined | self.undefined
        return replace(self, undefined=np.broadcast_to(undefined, self.numbers.shape))

    def take_step(self, name: int, step: int) -> Value:
        """Returns the value at one step of a range; as it is where it does not depend on that."""
        if name not in self.ranges:
            return self
        axis = self.ranges.index(name)
        # np.take would copy what is not contiguous
        taken = self.move(lambda a: a[(*[slice(None)] * axis, step)])
        return replace(taken, ranges=self.ranges[:axis] + self.ranges[axis + 1 :])


def align(values: Sequence[Value]) -> tuple[list[Value], tuple[int, ...]]:
    """Returns values that can be broadcast against each other, with the step ranges that they have together."""
    ranges = tuple(sorted({name for value in values for name in value.ranges}))
    rank = max(len(value.own_shape) for value in values)
    return [_spread(value, ranges, rank) for value in values], ranges


def _spread(value: Value, ranges: tuple[int, ...], rank: int) -> Value:
    own = value.own_shape
    if value.ranges == ranges and len(own) == rank:
        return value
    sizes = dict(zip(value.ranges, value.numbers.shape, strict=False))
    shape = (*(sizes.get(name, 1) for name in ranges), *[1] * (rank - len(own)), *own)
    return replace(value.move(lambda a: a.reshape(shape)), ranges=ranges)


def join_steps(values: Sequence[Value], name: int) -> Value:
    """Returns the value of all steps of a range, from that of each of them."""
    spread, ranges = align(values)
    axis = sum(other < name for other in ranges)
    return stack_aligned(spread, axis, (*ranges[:axis], name, *ranges[axis:]))


def stack_aligned(values: Sequence[Value], axis: int, ranges: tuple[int, ...]) -> Value:
    """Returns values that `align` made as the slices of a new axis; `ranges` are the step ranges of what comes out."""
    shape = np.broadcast_shapes(*(value.numbers.shape for value in values))
    stacked = Value(np.stack([np.broadcast_to(value.numbers, shape) for value in values], axis), ranges)
    if all(value.undefined is None for value in values):
        return stacked
    return replace(stacked, undefined=np.stack([np.broadcast_to(value.mask, shape) for value in values], axis))


def repeat_steps(value: Value, name: int, count: int) -> Value:
    """Returns the value with a range that it does not depend on, as a view."""
    axis = sum(other < name for other in value.ranges)

    def spread(numbers: Numbers) -> Numbers:
        shape = (*numbers.shape[:axis], count, *numbers.shape[axis:])
        return np.broadcast_to(np.expand_dims(numbers, axis), shape)

    return replace(value.move(spread), ranges=(*value.ranges[:axis], name, *value.ranges[axis:]))
