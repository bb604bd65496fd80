"""Evaluates expressions at each step of loops, and computes with the sets of numbers that result.

This part of `reach` needs numpy; it is imported only for kernels that need it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmapdbg.child.program.linear import Value
from vmapdbg.child.program.reach import Undecided, bounds_of, keeps_value, walk
from vmapdbg.reference.arithmetic import compute

Integers = NDArray[Any]
_BLOCK = 1 << 16
"""How many steps are computed at once: all the parts of an expression fit into the cache."""
_LIMIT = 1 << 62
"""No part of an expression may be larger: int64 would wrap around."""


def evaluate_sums(
    terms: list[tuple[Value, int]], conditions: list[Value], loops: Mapping[Value, int]
) -> Iterator[Integers]:
    """Yields the sum of the terms, (expression, factor) each, at all steps of the loops at which the conditions hold.

    `loops` have their trip counts. The sums come block by block. Raises Undecided.
    """
    parts = walk([*conditions, *(value for value, _ in terms)], loops)
    for value in parts:
        _check_size(value, 1)
    for value, scale in terms:
        _check_size(value, scale)
    # one axis more, of one step: numpy has no index of no axis
    shape = (*loops.values(), 1)
    steps = math.prod(shape)
    for start in range(0, steps, _BLOCK):
        offsets = np.arange(start, min(start + _BLOCK, steps))
        numbers: dict[Value, Integers] = dict(zip(loops, np.unravel_index(offsets, shape), strict=False))
        for value in parts:
            if value not in numbers:
                numbers[value] = _evaluate(value, [numbers[source] for source in value.sources])
        sums = np.zeros(offsets.shape, np.int64)
        for value, scale in terms:
            sums += numbers[value] * scale
        # a gate guards the address, not its own operands: all conditions can be computed at every step
        holds = np.ones(offsets.shape, bool)
        for condition in conditions:
            holds &= numbers[condition] != 0
        yield sums[holds]


def _check_size(value: Value, scale: int) -> None:
    if max(map(abs, bounds_of(value))) * abs(scale) > _LIMIT:
        raise Undecided("large numbers in an address")


def _evaluate(value: Value, sources: list[Integers]) -> Integers:
    if value.op == "const":
        if value.constant is None:
            raise Undecided("an invalid address")
        return np.asarray(bool(value.constant) if value.dtype == "bool" else int(value.constant))
    if value.op == "cast":
        if value.dtype == "bool":
            return sources[0] != 0
        if not keeps_value(value):
            raise Undecided(f"a cast to {value.dtype} in an address")
        return sources[0].astype(np.int64)
    numbers, undefined = compute(value.op, sources)
    if undefined is not None and undefined.any():
        raise Undecided("an address that C leaves undefined, as by a division by zero")
    return numbers


# *** sets of numbers, sorted


def make_integers(numbers: Sequence[int]) -> Integers:
    return np.array(numbers, np.int64)


def find_distinct(values: Integers) -> Integers:
    """Returns the values that occur, sorted."""
    if not values.size:
        return values
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest > 8 * values.size:
        ordered = np.sort(values)
        return ordered[np.append(True, ordered[1:] != ordered[:-1])]
    # they are dense: a mark for each is quicker than sorting
    is_there = np.zeros(highest - lowest + 1, bool)
    is_there[values - lowest] = True
    return np.flatnonzero(is_there) + lowest


def join_distinct(blocks: Sequence[Integers]) -> Integers:
    """Returns the values that occur in any block, sorted."""
    # each block by itself first: many steps have few values
    return find_distinct(np.concatenate([make_integers(()), *map(find_distinct, blocks)]))


def find_missing(reached: Integers, size: int) -> int | None:
    """Returns the first of 0, 1, ... `size`-1 that is not among sorted numbers."""
    inside = reached[(reached >= 0) & (reached < size)]
    gaps = np.flatnonzero(inside != np.arange(inside.size))
    first = int(gaps[0]) if gaps.size else inside.size
    if first == size:
        return None
    return first


def add_all(sets: Sequence[range | Integers]) -> Integers:
    """Returns the sums of one value of each set, each once, sorted."""
    sums = np.zeros(1, np.int64)
    for values in sets:
        sums = find_distinct(np.add.outer(sums, np.asarray(values)).ravel())
    return sums


def split_runs(values: Integers) -> list[range | Integers]:
    """Returns sets whose sums are `values`, up to a constant: 0,1,8,9 is 0,1 and 0,8."""
    if len(values) < 3:
        return [values]
    gaps = np.diff(values)
    step = int(gaps[0])
    others = np.flatnonzero(gaps != step)
    length = int(others[0]) + 1 if others.size else len(values)
    run = range(0, step * length, step)
    if len(values) % length:
        return [values]
    starts = values[::length]
    if (values.reshape(-1, length) != np.add.outer(starts, np.array(run))).any():
        return [values]
    if len(starts) == 1:
        return [run]
    return [run, *split_runs(starts)]
