"""What addresses of a linear program reach if their gates hold. Runs in the child.

An address is a sum of terms. Terms that share no loop are independent; terms that share a loop are gone through step by
step and give one set. The whole is one value of each set, added: exact, and small even for millions of steps. A set
that takes more than `MOST_STEPS` stays undecided (None). numpy takes a tenth of a second to import, and most kernels do
not need it: only the functions that need it import it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from vmapdbg.child.program.linear import (
    MemoryAccess,
    ProgramLoop,
    Value,
    find_loops,
    split_conditions,
    split_terms,
    walk,
)
from vmapdbg.child.program.linear_reader import read_values
from vmapdbg.reference.graph import Unknown

if TYPE_CHECKING:
    from numpy.typing import NDArray

Integers: TypeAlias = "NDArray[Any]"
Values: TypeAlias = "range | list[int] | Integers"

MOST_STEPS = 100 << 14
"""How many steps of one group of loops, or elements of one buffer, are gone through one by one: a tenth of a second."""
_BLOCK = 1 << 16  # how many steps are computed at once: all the parts of an expression fit into the cache
_LIMIT = 1 << 62  # no part of an expression may be larger: int64 would wrap around


@dataclass(frozen=True, eq=False)
class Reach:
    """The addresses of an access, in elements: `base` + one value of each set + 0..`width`-1. A set has the sums of
    terms with common loops, sorted, each once; none if no step passes the gate. `steps`: how many do, of its loops."""

    base: int
    sets: "tuple[range | Integers, ...]"
    width: int
    steps: int

    @property
    def lowest(self) -> int:
        return self.base + sum(int(values[0]) for values in self.sets)

    @property
    def highest(self) -> int:
        return self.base + sum(int(values[-1]) for values in self.sets) + self.width - 1


Term: TypeAlias = tuple[Value, int]
_Part: TypeAlias = tuple[frozenset[Value], list[Term], list[Value]]
"""Loops, and the terms and conditions that use them."""


def find_reach(address: Value, gate: Value | None, loops: Iterable[ProgramLoop], width: int) -> Reach:
    """Returns what an access reaches. `loops` are the loops and threads around it. Raises Unknown."""
    return _find_sums(*split_terms(address), gate, loops, width)


def _find_sums(base: int, terms: list[Term], gate: Value | None, loops: Iterable[ProgramLoop], width: int) -> Reach:
    sizes: dict[Value, int] = {loop: loop.trips for loop in loops}
    parts: list[_Part] = [(find_loops(expression, sizes), [(expression, scale)], []) for expression, scale in terms]
    parts += [(find_loops(condition, sizes), [], [condition]) for condition in split_conditions(gate)]
    joined: list[_Part] = []
    for part in parts:
        apart = [other for other in joined if not (other[0] & part[0])]
        for other in joined:
            if other[0] & part[0]:
                part = (part[0] | other[0], part[1] + other[1], part[2] + other[2])
        joined = [*apart, part]
    found = [_find_values(part, sizes) for part in joined]
    return Reach(base, tuple(values for values, _ in found), width, math.prod(steps for _, steps in found))


def find_known_reach(address: Value, gate: Value | None, loops: Sequence[ProgramLoop], width: int) -> Reach | None:
    """Returns what an access reaches, None if that is undecided."""
    with suppress(Unknown):
        if not any(loop.symbolic for loop in loops):
            return find_reach(address, gate, loops, width)
    return None


def _find_values(part: _Part, sizes: Mapping[Value, int]) -> "tuple[range | Integers, int]":
    """Returns the values that some terms add to an address, and in how many steps. Raises Unknown."""
    loops, terms, conditions = part
    if len(loops) == 1 and not conditions and len(terms) == 1 and terms[0][0] in loops:
        size, step = sizes[terms[0][0]], terms[0][1]
        values = range(0, size * step, step) if step else range(1)
        return values if step >= 0 else values[::-1], size
    steps = math.prod(sizes[loop] for loop in loops)
    if steps > MOST_STEPS:
        raise Unknown(f"{steps} steps")
    order = sorted(loops, key=lambda loop: loop.name)
    blocks = list(evaluate_sums(terms, conditions, {loop: sizes[loop] for loop in order}))
    return _join_distinct(blocks), sum(block.size for block in blocks)


def evaluate_sums(terms: list[Term], conditions: list[Value], loops: Mapping[Value, int]) -> "Iterator[Integers]":
    """Yields in blocks sums of (expression, factor) terms at all steps where the conditions hold. Raises Unknown."""
    import numpy as np

    parts = walk([*conditions, *(value for value, _ in terms)], loops)
    for value, scale in [*((part, 1) for part in parts), *terms]:
        if value.compute is None and max(map(abs, value.limits)) * abs(scale) > _LIMIT:
            raise Unknown("large numbers in an address")
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


def _evaluate(value: Value, sources: "list[Integers]") -> "Integers":
    import numpy as np

    from vmapdbg.reference.arithmetic import compute

    if value.compute is not None:
        return value.compute(sources)
    if value.op == "const":
        if value.constant is None:
            raise Unknown("an invalid address")
        kind = bool if value.dtype == "bool" else int
        return np.asarray(kind(value.constant))
    if value.op == "cast":
        if value.dtype == "bool":
            return sources[0] != 0
        if not value.keeps_source:
            raise Unknown(f"a cast to {value.dtype} in an address")
        return sources[0].astype(np.int64)
    numbers, undefined = compute(value.op, sources)
    if undefined is not None and undefined.any():
        raise Unknown("an address that C leaves undefined, as by a division by zero")
    return numbers


# *** several accesses of one buffer


def count_written(reaches: Sequence[Reach], size: int) -> tuple[int, int | None, int | None]:
    """Returns how many elements all stores to a buffer of `size` elements write with repetitions, how many different
    ones (None: undecided), and the first that they do not write (None: none, or undecided). Repeats of a whole store,
    in loops that its address does not use, count as one."""
    live = [r for r in reaches if r.steps]
    stores = sum(r.steps * r.width for r in live)
    merged = list(_merge_constants(live))
    if len(merged) == 1 and (elements := _count_distinct(merged[0])) is not None and elements == size:
        lowest, highest = (sum(int(values[end]) for values in merged[0]) for end in (0, -1))
        # as many as the buffer has, and none of them outside of it
        if lowest >= 0 and highest < size:
            return stores, elements, None
    if sum(math.prod(map(len, sets)) for sets in merged) > MOST_STEPS:
        return stores, None, None
    import numpy as np

    blocks: list[Integers] = []
    for sets in merged:
        sums = np.zeros(1, np.int64)
        for values in sets:
            sums = _find_distinct(np.add.outer(sums, np.asarray(values)).ravel())
        blocks.append(sums)
    reached = _join_distinct(blocks)
    found = reached[(reached >= 0) & (reached < size)]
    gaps = np.flatnonzero(found != np.arange(found.size))
    missing = int(gaps[0]) if gaps.size else found.size
    return stores, reached.size, None if missing == size else missing


def is_injective(accesses: Sequence[MemoryAccess], threads: Iterable[ProgramLoop]) -> bool:
    """Whether accesses have the same address up to a constant, and each element that they reach belongs to one thread,
    also without their gates. False if that is unknown. A variable of the launch is a constant."""
    loops = accesses[0].loops
    split = [split_terms(access.index) for access in accesses]
    if any(dict(terms) != dict(split[0][1]) for _, terms in split):
        return False
    terms = [(value, scale) for value, scale in split[0][1] if value.op != "variable" or value in loops]
    with suppress(Unknown):
        reach, parts = _find_sums(0, terms, None, loops, 1), walk((value for value, _ in terms), ())
        numbers = {base + i for (base, _), access in zip(split, accesses, strict=True) for i in range(access.width)}
        is_each_once = math.prod(map(len, reach.sets)) == reach.steps and set(threads) <= set(parts)
        return is_each_once and _count_distinct([sorted(numbers), *reach.sets]) is not None
    return False


def _merge_constants(reaches: Sequence[Reach]) -> "Iterator[list[Values]]":
    """Yields the sets of values whose sums each reach has; an unrolled loop, stores a constant apart, becomes one."""
    by_values: dict[tuple[object, ...], list[Reach]] = {}
    for r in reaches:
        alike = (values if isinstance(values, range) else values.tobytes() for values in r.sets)
        by_values.setdefault(tuple(alike), []).append(r)
    for alike in by_values.values():
        constants: Values = sorted({r.base + i for r in alike for i in range(r.width)})
        step = (constants[-1] - constants[0]) // max(1, len(constants) - 1)
        packed = range(constants[0], constants[-1] + 1, step or 1)
        if list(packed) == constants:
            constants = packed
        yield [constants, *alike[0].sets]


def _count_distinct(sets: "Sequence[Values]") -> int | None:
    """Counts the different sums of one value of each set: the product of the sizes; None if two sums can be equal."""
    runs = [run for values in sets for run in ([values] if isinstance(values, range) else _split_runs(values))]
    span = 0
    for run in sorted((run for run in runs if len(run) > 1), key=lambda run: run[1] - run[0]):
        smallest_gap = run.step if isinstance(run, range) else (run[1:] - run[:-1]).min()
        if smallest_gap <= span:
            return None
        span += int(run[-1] - run[0])
    return math.prod(map(len, sets))


def _split_runs(values: "list[int] | Integers") -> "list[range | Integers]":
    """Returns sets whose sums are `values`, up to a constant: 0,1,8,9 is 0,1 and 0,8."""
    import numpy as np

    values = np.asarray(values)
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
    return [run] if len(starts) == 1 else [run, *_split_runs(starts)]


def _find_distinct(values: "Integers") -> "Integers":
    """Returns the values that occur, sorted."""
    import numpy as np

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


def _join_distinct(blocks: "Sequence[Integers]") -> "Integers":
    import numpy as np

    # each block by itself first: many steps have few values
    return _find_distinct(np.concatenate([np.zeros(0, np.int64), *map(_find_distinct, blocks)]))


# *** bounds


def bound_address(address: Value, gate: Value | None) -> tuple[int, int]:
    """Returns bounds of an address when its gate holds: tinygrad's bounds, narrowed by what the gate compares."""
    known: dict[Value, tuple[int, int]] = {}
    for condition in split_conditions(gate):
        compared = _read_comparison(condition)
        if compared is not None:
            value, low, high = compared
            lowest, highest = known.get(value, value.limits)
            known[value] = max(lowest, low), min(highest, high)
    lowest, terms = split_terms(address, known)
    highest = lowest
    for value, scale in terms:
        ends = [scale * end for end in known.get(value, value.limits)]
        lowest, highest = lowest + min(ends), highest + max(ends)
    return lowest, highest


def _read_comparison(condition: Value) -> tuple[Value, int, int] | None:
    """Returns what a condition says about an expression: (expression, lowest, highest)."""
    # tinygrad writes `not x < y` as `(x < y) != True`
    flipped = condition.op == "ne" and condition.sources[1].constant == 1
    if flipped:
        condition = condition.sources[0]
    if condition.op != "lt":
        return None
    left, right = condition.sources
    if right.constant is not None:
        value, edge = left, int(right.constant)
    elif left.constant is not None:
        value, edge, flipped = right, int(left.constant) + 1, not flipped  # edge < value is not value < edge + 1
    else:
        return None
    lowest, highest = value.limits
    return (value, edge, highest) if flipped else (value, lowest, edge - 1)


def find_outside(index: Any, size: int) -> tuple[int, int] | None:
    """Returns the bounds of an index (a UOp of the scheduler) into an axis of `size` elements, if a step leaves it;
    None if not, or unknown. With flattened axes such an address stays in the buffer, but reads something else."""
    low, high = index.vmin, index.vmax
    if isinstance(low, int) and isinstance(high, int) and low >= 0 and high < size:
        return None
    (address, valid), loops = read_values(index.get_idx(), index.get_valid())
    reach = find_known_reach(address, valid, loops, 1)
    if reach is None or not reach.steps or (reach.lowest >= 0 and reach.highest < size):
        return None
    return reach.lowest, reach.highest
