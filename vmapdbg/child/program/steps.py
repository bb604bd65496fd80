"""Goes through the steps of loops: what expressions are at each of them, and the sets of numbers that come of it.

This is the part of `reach` that needs numpy, imported only for the kernels that need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.program.expressions import Undecided, keeps_value, walk

Integers = NDArray[Any]
_BLOCK = 1 << 16
"""How many steps are computed at once: all the parts of an expression fit into the cache."""
_LIMIT = 1 << 62
"""No part of an expression may be larger: int64 would wrap around."""


def _divide(a: Integers, b: Integers) -> Integers:
    return (a - _modulo(a, b)) // b


def _modulo(a: Integers, b: Integers) -> Integers:
    if not np.all(b):
        raise Undecided("a division by zero in an address")
    return np.fmod(a, b)


# division is that of C: towards zero
NUMPY_OF: dict[Ops, Callable[..., Integers]] = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.NEG: np.negative,
    Ops.IDIV: _divide,
    Ops.MOD: _modulo,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.MAX: np.maximum,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.WHERE: np.where,
}


def evaluate_sums(terms: list[tuple[UOp, int]], conditions: list[UOp], loops: dict[UOp, int]) -> Iterator[Integers]:
    """Yields the sum of the terms, (expression, factor) each, at all steps of the loops at which the conditions hold.

    `loops` have their trip counts. The sums come block by block. Raises Undecided.
    """
    parts = walk(UOp.sink(*conditions, *(u for u, _ in terms)), loops)[:-1]
    for u in parts:
        _check_size(u, 1)
    for u, scale in terms:
        _check_size(u, scale)
    # one axis more, of one step: numpy has no index of no axis
    shape = (*loops.values(), 1)
    steps = math.prod(shape)
    for start in range(0, steps, _BLOCK):
        offsets = np.arange(start, min(start + _BLOCK, steps))
        values: dict[UOp, Integers] = dict(zip(loops, np.unravel_index(offsets, shape), strict=False))
        for u in parts:
            if u not in values:
                values[u] = _evaluate(u, [values[s] for s in u.src])
        sums = np.zeros(offsets.shape, np.int64)
        for u, scale in terms:
            sums += values[u] * scale
        # a gate guards what is beside it, not what it is made of: all conditions can be computed at every step
        holds = np.ones(offsets.shape, bool)
        for condition in conditions:
            holds &= values[condition] != 0
        yield sums[holds]


def _check_size(u: UOp, scale: int) -> None:
    if max(abs(int(u.vmin)), abs(int(u.vmax))) * abs(scale) > _LIMIT:
        raise Undecided("large numbers in an address")


def _evaluate(u: UOp, sources: list[Integers]) -> Integers:
    if u.op is Ops.CONST:
        if not isinstance(u.arg, (int, float)):
            raise Undecided(f"{u.arg} in an address")
        return np.asarray(bool(u.arg) if u.dtype == dtypes.bool else int(u.arg))
    if u.op is Ops.CAST:
        if u.dtype == dtypes.bool:
            return sources[0] != 0
        if not keeps_value(u):
            raise Undecided(f"a cast to {u.dtype} in an address")
        return sources[0].astype(np.int64)
    return NUMPY_OF[u.op](*sources)


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
    return first if first < size else None


def add_all(sets: Sequence[range | Integers]) -> Integers:
    """Returns the sums of one value of each set, each once, sorted."""
    sums = np.zeros(1, np.int64)
    for values in sets:
        sums = find_distinct(np.add.outer(sums, np.asarray(values)).ravel())
    return sums


def find_gap(values: Integers) -> int:
    """Returns the smallest difference of two neighbours."""
    return int(np.diff(values).min())


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
    return [run] if len(starts) == 1 else [run, *split_runs(starts)]
