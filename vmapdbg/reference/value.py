"""The value of a node: an array, with the axes of its step ranges first, and a mask of undefined elements; the ops that
move elements and compute nothing; and reduces. Floats are summed in double precision."""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmapdbg.reference.graph import OpNode, Unknown
from vmapdbg.values.numbers import Numbers

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RangedArray:
    """`numbers` has an axis for each step range of `ranges` (ids, ascending), then the node's own. `undefined` is true
    where neither C nor tinygrad defines it; None: nowhere. Both may be views with one element in many places."""

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

    def move(
        self, view: Callable[..., Numbers], *arguments: Any, ranges: tuple[int, ...] | None = None
    ) -> "RangedArray":
        """Applies an array function that only moves elements. `ranges` are the step ranges of the result."""
        undefined = None if self.undefined is None else view(self.undefined, *arguments)
        return RangedArray(view(self.numbers, *arguments), self.ranges if ranges is None else ranges, undefined)

    def mark(self, undefined: Mask | None) -> "RangedArray":
        """Returns the value with more undefined elements."""
        if undefined is None or not undefined.any():
            return self
        if self.undefined is not None:
            undefined = undefined | self.undefined
        return RangedArray(self.numbers, self.ranges, np.broadcast_to(undefined, self.numbers.shape))

    def take_step(self, name: int, step: int) -> "RangedArray":
        """Returns the value at one step of a range; the same value if it does not depend on the range."""
        if name not in self.ranges:
            return self
        axis = self.ranges.index(name)
        index = (*[slice(None)] * axis, step)  # np.take copies what is not contiguous
        return self.move(operator.getitem, index, ranges=self.ranges[:axis] + self.ranges[axis + 1 :])

    def spread(self, ranges: tuple[int, ...], rank: int) -> "RangedArray":
        """Returns the value with an axis for each of `ranges`, size 1 if it has no such range, and `rank` own axes."""
        own_shape = self.own_shape
        if self.ranges == ranges and len(own_shape) == rank:
            return self
        sizes = self.sizes
        shape = (*(sizes.get(name, 1) for name in ranges), *[1] * (rank - len(own_shape)), *own_shape)
        return self.move(np.reshape, shape, ranges=ranges)

    def repeat_steps(self, name: int, count: int) -> "RangedArray":
        """Repeats the value over a range that it does not depend on, as a view."""
        axis, ranges = _insert(self.ranges, name)
        shape = self.numbers.shape
        whole = (*shape[:axis], count, *shape[axis:])
        return self.move(np.expand_dims, axis, ranges=ranges).move(np.broadcast_to, whole)

    def enter_scope(self, names: Sequence[int | None]) -> "RangedArray":
        """Turns own axes into step ranges by `names` (None: stays). Raises Unknown if the value has one already."""
        value = self
        for axis, name in reversed(list(enumerate(names))):
            if name is None:
                continue
            if name in value.ranges:
                raise Unknown("a value enters a scope that it is in")
            place, ranges = _insert(value.ranges, name)
            value = value.move(np.moveaxis, len(value.ranges) + axis, place, ranges=ranges)
        return value

    def leave_scope(self, names: Sequence[int | None], sizes: Sequence[int]) -> "RangedArray":
        """Turns step ranges into own axes of these sizes. `names` has the id for each axis of the result, or None."""
        value = self
        for axis, name in enumerate(names):
            if name is None:
                continue
            if name not in value.ranges:
                value = value.repeat_steps(name, sizes[axis])  # the same at each step
            place = value.ranges.index(name)
            ranges = value.ranges[:place] + value.ranges[place + 1 :]
            value = value.move(np.moveaxis, place, len(ranges) + axis, ranges=ranges)
        return value

    def join_shards(self, axis: int | None, device: int, count: int) -> "RangedArray":
        """Joins the values of the devices side by side along an axis; None: takes the value of the first device."""
        if axis is None:
            return self.take_step(device, 0)
        whole = self.leave_scope((*[None] * axis, device), (count,) * (axis + 1))
        shape, place = whole.numbers.shape, len(whole.ranges) + axis
        return whole.move(np.reshape, (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :]))

    def reduce(self, op: str, axes: Sequence[int], keep: bool, names: Sequence[int]) -> "RangedArray":
        """Reduces over own axes and step ranges that it has. Returns floats in double precision, not rounded yet."""
        steps = len(self.ranges)
        places = tuple(map(self.ranges.index, names)) + tuple(steps + axis for axis in axes)
        numbers = reduce_numbers(self.numbers, op, places)
        reduced = RangedArray(numbers, self.ranges)
        if self.undefined is not None:
            reduced = reduced.mark(np.asarray(self.undefined.any(places, keepdims=True)))
        if op == "max" and numbers.dtype.kind == "f":
            reduced = reduced.mark(np.isnan(numbers))  # devices differ in the largest if one is NaN
        gone = places[: len(names)] if keep else places  # the step ranges are removed in any case
        return reduced.move(np.squeeze, gone, ranges=tuple(name for name in self.ranges if name not in names))


def align(values: Sequence[RangedArray]) -> tuple[list[RangedArray], tuple[int, ...]]:
    """Returns values that can be broadcast against each other, and the step ranges of all of them."""
    ranges = tuple(sorted({name for value in values for name in value.ranges}))
    rank = max(len(value.own_shape) for value in values)
    return [value.spread(ranges, rank) for value in values], ranges


def _insert(ranges: tuple[int, ...], name: int) -> tuple[int, tuple[int, ...]]:
    """Returns step ranges with one more range, and its place among them."""
    place = sum(other < name for other in ranges)
    return place, (*ranges[:place], name, *ranges[place:])


def stack(values: Sequence[RangedArray], name: int | None = None) -> RangedArray:
    """Stacks values along a new first own axis, or as the steps of the range `name`."""
    spread, ranges = align(values)
    axis = len(ranges)
    if name is not None:
        axis, ranges = _insert(ranges, name)
    shape = np.broadcast_shapes(*(value.numbers.shape for value in spread))
    numbers = np.stack([np.broadcast_to(value.numbers, shape) for value in spread], axis)
    if all(value.undefined is None for value in spread):
        return RangedArray(numbers, ranges)
    return RangedArray(numbers, ranges, np.stack([np.broadcast_to(value.mask, shape) for value in spread], axis))


def move(node: OpNode, source: RangedArray, numbers: Sequence[int]) -> RangedArray:
    """Applies a movement op to a value. `numbers` is the op's `arg` with every number known."""
    steps = len(source.ranges)
    batch, own_shape = source.numbers.shape[:steps], source.own_shape
    match node.op:
        case "reshape":
            return source.move(np.reshape, (*batch, *node.shape))
        case "expand":
            new = (1,) * (len(node.shape) - len(own_shape))
            return source.move(np.reshape, (*batch, *new, *own_shape)).move(np.broadcast_to, (*batch, *node.shape))
        case "permute":
            return source.move(np.transpose, (*range(steps), *(steps + axis for axis in numbers)))
        case "flip":
            return source.move(np.flip, tuple(steps + axis for axis in numbers))
        case "shrink":
            if any(first + size > have for first, size, have in zip(numbers, node.shape, own_shape, strict=True)):
                raise Unknown("a slice shows more than there is: its size depends on a variable")
            kept = tuple(slice(first, first + size) for first, size in zip(numbers, node.shape, strict=True))
            return source.move(operator.getitem, (slice(None),) * steps + kept)
        case "pad":
            kept = tuple(slice(first, first + size) for first, size in zip(numbers, own_shape, strict=True))
            return source.move(_pad, (*batch, *node.shape), (slice(None),) * steps + kept)
        case _:
            raise Unknown(f"{node.op} is not a movement")


def _pad(numbers: Numbers, shape: tuple[int, ...], kept: tuple[slice, ...]) -> Numbers:
    """Pads with zeros. np.pad is slow if most axes stay as they are."""
    padded = np.zeros(shape, numbers.dtype)
    padded[kept] = numbers
    return padded


def reduce_numbers(numbers: Numbers, op: str, axes: tuple[int, ...]) -> Numbers:
    """Reduces axes of an array, which stay with the size 1."""
    if not axes:
        return numbers
    kind = numbers.dtype.kind
    with np.errstate(all="ignore"):
        if kind == "b" and op == "mul":
            return np.all(numbers, axis=axes, keepdims=True)
        if kind == "b":
            return np.any(numbers, axis=axes, keepdims=True)
        if op == "max":
            lowest = -math.inf if kind == "f" else np.iinfo(numbers.dtype).min
            return np.max(numbers, axis=axes, keepdims=True, initial=lowest)
        if op == "mul":
            return np.prod(numbers, axis=axes, keepdims=True, dtype=sum_dtype(numbers.dtype))
        return _add(numbers, axes)


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype in which numbers are summed: double for floats, the same for integers."""
    return np.dtype(np.float64) if dtype.kind == "f" else dtype


def _add(numbers: Numbers, axes: tuple[int, ...]) -> Numbers:
    """Adds numbers along axes: windows by running sums, and a repeated element by its count."""
    running = _add_windows(numbers, axes)
    if running is not None:
        return running
    repeated = [axis for axis in axes if numbers.strides[axis] == 0 and numbers.shape[axis] > 1]
    times = math.prod(numbers.shape[axis] for axis in repeated)
    total = np.sum(take_first(numbers, repeated), axis=axes, keepdims=True, dtype=sum_dtype(numbers.dtype))
    return total if times == 1 else total * np.array(times).astype(total.dtype)


def _add_windows(numbers: Numbers, axes: tuple[int, ...]) -> Numbers | None:
    """Returns sums of windows of integers, which slide over one axis by one element a row; None for other numbers."""
    if len(axes) != 1 or numbers.dtype.kind not in "iu" or numbers.shape[axes[0]] < 2:
        return None
    (axis,) = axes
    rows = [i for i in range(numbers.ndim) if i != axis and numbers.strides[i] == numbers.strides[axis] != 0]
    if len(rows) != 1 or numbers.shape[rows[0]] < 2:
        return None
    (row,) = rows
    # the first window, and the new element of each later window
    head = _cut(numbers, row, slice(0, 1)).swapaxes(row, axis)
    tail = _cut(_cut(numbers, axis, slice(-1, None)), row, slice(1, None))
    total = np.cumsum(np.concatenate([head, tail], row), axis=row, dtype=numbers.dtype)
    before = np.concatenate([np.zeros_like(_cut(total, row, slice(0, 1))), total], row)
    size, count = numbers.shape[axis], numbers.shape[row]
    return _cut(before, row, slice(size, size + count)) - _cut(before, row, slice(0, count))


def _cut(numbers: Numbers, axis: int, part: slice) -> Numbers:
    return numbers[(*[slice(None)] * axis, part)]


def take_first(numbers: Numbers, axes: Iterable[int]) -> Numbers:
    """Returns a view of the first element along some axes, which stay with the size 1."""
    for axis in axes:
        numbers = _cut(numbers, axis, slice(0, 1))
    return numbers
