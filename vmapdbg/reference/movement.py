"""Ops that move elements and compute nothing. What can be a view of the source is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vmapdbg.reference.graph import Node, Unknown
from vmapdbg.reference.value import Value, align, stack_aligned
from vmapdbg.values.numbers import Numbers


def move(node: Node, source: Value, numbers: Sequence[int]) -> Value:
    """Returns what a movement op makes of a value. `numbers` is the op's `arg` with every number known."""
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
            raise Unknown(f"{node.op} is no movement")


def _pad(numbers: Numbers, widths: Sequence[tuple[int, int]]) -> Numbers:
    """np.pad with zeros, which is slow where there is nothing to add along most axes."""
    shape = [size + before + after for size, (before, after) in zip(numbers.shape, widths, strict=True)]
    padded = np.zeros(shape, numbers.dtype)
    inner = [slice(before, before + size) for size, (before, _) in zip(numbers.shape, widths, strict=True)]
    padded[tuple(inner)] = numbers
    return padded


def stack(sources: Sequence[Value]) -> Value:
    """Returns values as the slices of a new first axis, behind those of the step ranges."""
    spread, ranges = align(sources)
    return stack_aligned(spread, len(ranges), ranges)


# *** step ranges


def enter_scope(source: Value, names: Sequence[int | None]) -> Value:
    """Makes step ranges of own axes: `names` has the id for each of them, None for one that stays. Raises Unknown for a
    range that the value has already."""
    for axis in reversed(range(len(names))):
        name = names[axis]
        if name is not None:
            source = _enter(source, axis, name)
    return source


def _enter(source: Value, axis: int, name: int) -> Value:
    if name in source.ranges:
        raise Unknown("a value enters a scope that it is in")
    place = sum(other < name for other in source.ranges)
    ranges = (*source.ranges[:place], name, *source.ranges[place:])
    before = len(source.ranges) + axis
    return replace(source.move(lambda a: np.moveaxis(a, before, place)), ranges=ranges)


def leave_scope(source: Value, names: Sequence[int | None], sizes: Sequence[int]) -> Value:
    """Makes own axes of step ranges: `names` has the id for each axis of the result, None for the value's own, and
    `sizes` its size."""
    for axis, name in enumerate(names):
        if name is not None:
            source = _leave(source, axis, name, sizes[axis])
    return source


def _leave(source: Value, axis: int, name: int, size: int) -> Value:
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


def join_shards(source: Value, axis: int | None, device: int, count: int) -> Value:
    """Returns the whole of a sharded value, whose devices are the step range `device`: its shards side by side along an
    axis, or where that is None what the first device has."""
    if axis is None:
        return source.take_step(device, 0)
    whole = _leave(source, axis, device, count)
    steps = len(whole.ranges)

    def join(a: Numbers) -> Numbers:
        before, after = a.shape[: steps + axis], a.shape[steps + axis + 2 :]
        return a.reshape((*before, a.shape[steps + axis] * a.shape[steps + axis + 1], *after))

    return whole.move(join)
