"""The value of a node: an array, with the axes of its step ranges first, and a mask of undefined elements; and the ops
that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vmapdbg.reference.graph import OpNode, Unknown
from vmapdbg.values.numbers import Numbers

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RangedArray:
    """`numbers` has one axis for each step range of `ranges` (ids, ascending), then the node's own axes. `undefined` is
    true for elements that neither C nor tinygrad defines; None: all are defined. Both may be views in which one element
    is in many places."""

    numbers: Numbers
    ranges: tuple[int, ...] = ()
    undefined: Mask | None = None

    @property
    def own_shape(self) -> tuple[int, ...]:
        return self.numbers.shape[len(self.ranges) :]

    @property
    def sizes(self) -> dict[int, int]:
        """Step range -> its size; 1 if the value is the same at each step."""
        return dict(zip(self.ranges, self.numbers.shape, strict=False))

    @property
    def mask(self) -> Mask:
        """`undefined` as an array, even if all elements are defined."""
        if self.undefined is None:
            return np.broadcast_to(np.False_, self.numbers.shape)
        return self.undefined

    def move(self, view: Callable[[Numbers], Numbers]) -> RangedArray:
        """Applies an array function that only moves elements."""
        moved = RangedArray(view(self.numbers), self.ranges)
        if self.undefined is None:
            return moved
        return replace(moved, undefined=view(self.undefined))

    def mark(self, undefined: Mask | None) -> RangedArray:
        """Returns the value with more undefined elements."""
        if undefined is None or not undefined.any():
            return self
        if self.undefined is not None:
            undefined = undefined | self.undefined
        return replace(self, undefined=np.broadcast_to(undefined, self.numbers.shape))

    def take_step(self, name: int, step: int) -> RangedArray:
        """Returns the value at one step of a range; the same value if it does not depend on the range."""
        if name not in self.ranges:
            return self
        axis = self.ranges.index(name)
        # np.take copies what is not contiguous
        taken = self.move(lambda a: a[(*[slice(None)] * axis, step)])
        return replace(taken, ranges=self.ranges[:axis] + self.ranges[axis + 1 :])


def align(values: Sequence[RangedArray]) -> tuple[list[RangedArray], tuple[int, ...]]:
    """Returns values that can be broadcast against each other, and the step ranges of all of them."""
    ranges = tuple(sorted({name for value in values for name in value.ranges}))
    rank = max(len(value.own_shape) for value in values)
    return [spread_ranges(value, ranges, rank) for value in values], ranges


def spread_ranges(value: RangedArray, ranges: tuple[int, ...], rank: int) -> RangedArray:
    """Returns a value with an axis for each of `ranges`, of size 1 if it does not depend on it, and `rank` own axes."""
    own = value.own_shape
    if value.ranges == ranges and len(own) == rank:
        return value
    sizes = value.sizes
    shape = (*(sizes.get(name, 1) for name in ranges), *[1] * (rank - len(own)), *own)
    return replace(value.move(lambda a: a.reshape(shape)), ranges=ranges)


def join_steps(values: Sequence[RangedArray], name: int) -> RangedArray:
    """Joins the values of single steps of a range to the value of all steps."""
    spread, ranges = align(values)
    axis = sum(other < name for other in ranges)
    return stack_aligned(spread, axis, (*ranges[:axis], name, *ranges[axis:]))


def stack_aligned(values: Sequence[RangedArray], axis: int, ranges: tuple[int, ...]) -> RangedArray:
    """Stacks values from `align` along a new axis; `ranges` are the step ranges of the result."""
    shape = np.broadcast_shapes(*(value.numbers.shape for value in values))
    stacked = RangedArray(np.stack([np.broadcast_to(value.numbers, shape) for value in values], axis), ranges)
    if all(value.undefined is None for value in values):
        return stacked
    return replace(stacked, undefined=np.stack([np.broadcast_to(value.mask, shape) for value in values], axis))


def repeat_steps(value: RangedArray, name: int, count: int) -> RangedArray:
    """Repeats a value over a range that it does not depend on, as a view."""
    axis = sum(other < name for other in value.ranges)

    def spread(numbers: Numbers) -> Numbers:
        shape = (*numbers.shape[:axis], count, *numbers.shape[axis:])
        return np.broadcast_to(np.expand_dims(numbers, axis), shape)

    return replace(value.move(spread), ranges=(*value.ranges[:axis], name, *value.ranges[axis:]))


def move(node: OpNode, source: RangedArray, numbers: Sequence[int]) -> RangedArray:
    """Applies a movement op to a value. `numbers` is the op's `arg` with every number known."""
    steps = len(source.ranges)
    batch, own = source.numbers.shape[:steps], source.own_shape
    match node.op:
        case "reshape":
            return source.move(lambda a: a.reshape((*batch, *node.shape)))
        case "expand":
            new = (1,) * (len(node.shape) - len(own))
            wide = (*batch, *node.shape)
            return source.move(lambda a: np.broadcast_to(a.reshape((*batch, *new, *own)), wide))
        case "permute":
            axes = (*range(steps), *(steps + axis for axis in numbers))
            return source.move(lambda a: a.transpose(axes))
        case "flip":
            turned = tuple(steps + axis for axis in numbers)
            return source.move(lambda a: np.flip(a, turned))
        case "shrink":
            kept = tuple(slice(first, first + size) for first, size in zip(numbers, node.shape, strict=True))
            whole = (slice(None),) * steps
            return source.move(lambda a: a[whole + kept])
        case "pad":
            ends = zip(numbers, own, node.shape, strict=True)
            widths = [(0, 0)] * steps + [(first, size - first - before) for first, before, size in ends]
            return source.move(lambda a: _pad(a, widths))
        case _:
            raise Unknown(f"{node.op} is not a movement")


def _pad(numbers: Numbers, widths: Sequence[tuple[int, int]]) -> Numbers:
    """Pads with zeros. np.pad is slow if most axes stay as they are."""
    shape = [size + before + after for size, (before, after) in zip(numbers.shape, widths, strict=True)]
    padded = np.zeros(shape, numbers.dtype)
    inner = [slice(before, before + size) for size, (before, _) in zip(numbers.shape, widths, strict=True)]
    padded[tuple(inner)] = numbers
    return padded


def stack(sources: Sequence[RangedArray]) -> RangedArray:
    """Stacks values along a new first axis, behind the axes of the step ranges."""
    spread, ranges = align(sources)
    return stack_aligned(spread, len(ranges), ranges)


# *** step ranges


def enter_scope(source: RangedArray, names: Sequence[int | None]) -> RangedArray:
    """Turns own axes into step ranges: `names` has the id for each axis, None if the axis stays. Raises Unknown if the
    value has the range already."""
    for axis in reversed(range(len(names))):
        name = names[axis]
        if name is not None:
            source = _enter(source, axis, name)
    return source


def _enter(source: RangedArray, axis: int, name: int) -> RangedArray:
    if name in source.ranges:
        raise Unknown("a value enters a scope that it is in")
    place = sum(other < name for other in source.ranges)
    ranges = (*source.ranges[:place], name, *source.ranges[place:])
    before = len(source.ranges) + axis
    return replace(source.move(lambda a: np.moveaxis(a, before, place)), ranges=ranges)


def leave_scope(source: RangedArray, names: Sequence[int | None], sizes: Sequence[int]) -> RangedArray:
    """Turns step ranges into own axes: `names` has the id for each axis of the result, None for the value's own axes,
    and `sizes` their sizes."""
    for axis, name in enumerate(names):
        if name is not None:
            source = _leave(source, axis, name, sizes[axis])
    return source


def _leave(source: RangedArray, axis: int, name: int, size: int) -> RangedArray:
    if name not in source.ranges:
        # the same at each step
        place = len(source.ranges) + axis
        shape = list(source.numbers.shape)
        shape.insert(place, size)
        return source.move(lambda a: np.broadcast_to(np.expand_dims(a, place), shape))
    place = source.ranges.index(name)
    ranges = source.ranges[:place] + source.ranges[place + 1 :]
    left = source.move(lambda a: np.moveaxis(a, place, len(ranges) + axis))
    return replace(left, ranges=ranges)


def join_shards(source: RangedArray, axis: int | None, device: int, count: int) -> RangedArray:
    """Joins a sharded value, whose devices are the step range `device`: its shards side by side along an axis, or the
    part of the first device if `axis` is None."""
    if axis is None:
        return source.take_step(device, 0)
    whole = _leave(source, axis, device, count)
    steps = len(whole.ranges)

    def join(a: Numbers) -> Numbers:
        before, after = a.shape[: steps + axis], a.shape[steps + axis + 2 :]
        return a.reshape((*before, a.shape[steps + axis] * a.shape[steps + axis + 1], *after))

    return whole.move(join)
