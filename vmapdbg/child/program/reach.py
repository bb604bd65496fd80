"""Addresses and gates of a linear program: their bounds, how they are written, and what they reach. Runs in the child.

An address is a sum of terms. Terms that share no loop are independent. Terms that share a loop are gone through
together, step by step, as one summand, and the whole is one value of each summand, added: exact, and small even if the
kernel has millions of steps. A set that takes more than `MOST_STEPS` stays undecided (None) and is never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from vmapdbg.child.program.linear import INTEGERS, UOp, Value
from vmapdbg.child.program.linear_reader import read_values
from vmapdbg.model.ops import ARITHMETIC


class Undecided(Exception):
    """A set is not known: it depends on data, or is too large to enumerate."""


def keeps_value(cast: Value) -> bool:
    """Returns whether a cast from an integer to an integer keeps all values that its source may have."""
    source = cast.sources[0]
    if cast.dtype not in INTEGERS or (source.dtype not in INTEGERS and source.dtype != "bool"):
        return False
    lowest, highest = INTEGERS[cast.dtype]
    least, most = bounds_of(source)
    return lowest <= least and most <= highest


def bounds_of(value: Value) -> tuple[int, int]:
    """Returns tinygrad's bounds of a value, or the bounds of its dtype."""
    if value.lowest is None or value.highest is None:
        return INTEGERS.get(value.dtype, INTEGERS["weakint"])
    return value.lowest, value.highest


def walk(roots: Iterable[Value], ends: Container[Value]) -> list[Value]:
    """Returns the parts of expressions, sources first, down to `ends` and to what is loaded, those included."""
    found: dict[Value, None] = {}

    def visit(value: Value) -> None:
        if value in found:
            return
        if value not in ends and value.op != "load":
            for source in value.sources:
                visit(source)
        found[value] = None

    for root in roots:
        visit(root)
    return list(found)


TEXT = {op.name: op.text for op in ARITHMETIC.values() if op.text is not None} | {"cast": "{}"}
"""The ops that an address or a gate may have -> how they are written."""


def write_expression(expression: Value, names: Mapping[Value, str]) -> str:
    """Returns an address or a gate as text, its loops by the names that the source gives them."""
    written = dict(names)
    for value in walk([expression], names):
        if value in written:
            continue
        if value.op == "const":
            written[value] = str(value.constant)
        elif value.op == "load":
            written[value] = "a loaded value"
        elif value.op == "variable":
            written[value] = value.name
        elif value.op in TEXT:
            written[value] = TEXT[value.op].format(*(written[source] for source in value.sources))
        else:
            written[value] = value.op.upper()
    text = written[expression]
    return text[1:-1] if text.startswith("(") and _closes_at_end(text) else text


def _closes_at_end(text: str) -> bool:
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return i == len(text) - 1
    return False


if TYPE_CHECKING:
    from vmapdbg.child.program.steps import Integers

MOST_STEPS = 100 << 14
"""How many steps of one group of loops, or elements of one buffer, are gone through one by one: a tenth of a second."""

Values: TypeAlias = "range | Integers"


@dataclass(frozen=True, eq=False)
class Summand:
    """The values that terms with loops in common add to an address, each once, sorted; and in how many steps."""

    values: Values
    steps: int


@dataclass(frozen=True)
class Reach:
    """The addresses of one access: `base` + one value of each summand + 0..`width`-1, in elements. A summand without
    values: no step passes the gate."""

    base: int
    summands: tuple[Summand, ...]
    width: int
    # how often each address is accessed by loops that neither the address nor the gate uses
    repeats: int = 1

    @property
    def steps(self) -> int:
        return math.prod(s.steps for s in self.summands) * self.repeats

    @property
    def lowest(self) -> int:
        return self.base + sum(int(s.values[0]) for s in self.summands)

    @property
    def highest(self) -> int:
        return self.base + sum(int(s.values[-1]) for s in self.summands) + self.width - 1


def find_reach(address: Value, gate: Value | None, sizes: Mapping[Value, int], width: int) -> Reach:
    """Returns what an access reaches. `sizes` has the loops and threads around it with their trip counts.

    Raises Undecided.
    """
    base, terms = split_terms(address)
    parts: list[tuple[frozenset[Value], list[tuple[Value, int]], list[Value]]] = []
    for expression, scale in terms:
        parts.append((find_loops(expression, sizes), [(expression, scale)], []))
    for condition in split_conditions(gate):
        parts.append((find_loops(condition, sizes), [], [condition]))
    summands = [make_summand(loops, inside, held, sizes) for loops, inside, held in join_parts(parts)]
    used = {loop for loops, _, _ in parts for loop in loops}
    repeats = math.prod(size for loop, size in sizes.items() if loop not in used)
    return Reach(base, tuple(summands), width, repeats)


def split_terms(address: Value) -> tuple[int, list[tuple[Value, int]]]:
    """Returns an address as a constant and terms (expression, factor), sums and constant factors taken apart."""
    base, terms = 0, dict[Value, int]()
    todo = [(address, 1)]
    while todo:
        value, scale = todo.pop()
        if isinstance(value.constant, int):
            base += value.constant * scale
            continue
        match value.op, value.sources:
            case "add", (left, right):
                todo += [(left, scale), (right, scale)]
            case "sub", (left, right):
                todo += [(left, scale), (right, -scale)]
            case "mul", (left, Value(constant=int(factor))):
                todo.append((left, scale * factor))
            case "shl", (left, Value(constant=int(bits))):
                todo.append((left, scale << bits))
            case "cast", (inside,) if keeps_value(value):
                todo.append((inside, scale))
            case _:
                terms[value] = terms.get(value, 0) + scale
    return base, list(terms.items())


def split_conditions(gate: Value | None) -> list[Value]:
    """Returns the conditions of a gate; all of them must hold. None: no conditions."""
    if gate is None:
        return []
    if gate.op == "and" and gate.dtype == "bool":
        return [part for source in gate.sources for part in split_conditions(source)]
    return [gate]


def find_loops(expression: Value, sizes: Mapping[Value, int]) -> frozenset[Value]:
    """Returns the loops and threads that an expression uses. Raises Undecided where it uses anything else."""
    found = set()
    for value in walk([expression], sizes):
        if value in sizes:
            found.add(value)
        elif value.op not in TEXT and value.op != "const":
            raise Undecided(f"{value.op} in an address")
    return frozenset(found)


_Part = tuple[frozenset[Value], list[tuple[Value, int]], list[Value]]


def join_parts(parts: Iterable[_Part]) -> list[_Part]:
    """Joins the parts that have a loop in common."""
    joined: list[_Part] = []
    for part in parts:
        apart = [other for other in joined if not (other[0] & part[0])]
        for other in joined:
            if other[0] & part[0]:
                part = (part[0] | other[0], part[1] + other[1], part[2] + other[2])
        joined = [*apart, part]
    return joined


def make_summand(
    loops: frozenset[Value], terms: list[tuple[Value, int]], conditions: list[Value], sizes: Mapping[Value, int]
) -> Summand:
    if len(loops) == 1 and not conditions and len(terms) == 1 and terms[0][0] in loops:
        size, step = sizes[terms[0][0]], terms[0][1]
        if step == 0:
            return Summand(range(1), size)
        if step > 0:
            return Summand(range(0, size * step, step), size)
        return Summand(range((size - 1) * step, 1, -step), size)
    steps = math.prod(sizes[loop] for loop in loops)
    if steps > MOST_STEPS:
        raise Undecided(f"{steps} steps")
    # numpy takes a tenth of a second to import, and most kernels never get here
    from vmapdbg.child.program.steps import evaluate_sums, join_distinct

    order = sorted(loops, key=lambda loop: loop.name)
    blocks = list(evaluate_sums(terms, conditions, {loop: sizes[loop] for loop in order}))
    passed = sum(block.size for block in blocks)
    return Summand(join_distinct(blocks), passed)


# *** several accesses of one buffer


class WriteCounts(NamedTuple):
    """The elements that stores write: how many with repetitions, how many different (None: undecided), and the first
    element of the buffer that they do not write (None: there is none, or undecided)."""

    stores: int
    elements: int | None
    missing: int | None


def count_written(reaches: Sequence[Reach], size: int) -> WriteCounts:
    """Returns what all the stores to one buffer of `size` elements reach together.

    Repeats of a whole store count as one (`Reach.repeats` has them).
    """
    live = [r for r in reaches if r.steps]
    stores = sum(r.steps // r.repeats * r.width for r in live)
    merged = merge_constants(live)
    if len(merged) == 1 and (elements := count_distinct(merged[0])) is not None and elements == size:
        lowest, highest = (sum(int(values[end]) for values in merged[0]) for end in (0, -1))
        # as many as the buffer has, and none of them outside of it
        if lowest >= 0 and highest < size:
            return WriteCounts(stores, elements, None)
    if sum(math.prod(map(len, sets)) for sets in merged) > MOST_STEPS:
        return WriteCounts(stores, None, None)
    from vmapdbg.child.program.steps import add_all, find_missing, join_distinct

    reached = join_distinct(list(map(add_all, merged)))
    return WriteCounts(stores, reached.size, find_missing(reached, size))


def merge_constants(reaches: Sequence[Reach]) -> list[list[Values]]:
    """Returns for each reach the sets of values whose sums it has. Stores that differ by a constant become one: a loop
    was unrolled."""
    by_values: dict[tuple[object, ...], list[Reach]] = {}
    for r in reaches:
        alike = (s.values if isinstance(s.values, range) else s.values.tobytes() for s in r.summands)
        by_values.setdefault(tuple(alike), []).append(r)
    merged: list[list[Values]] = []
    for alike in by_values.values():
        constants = {r.base + i for r in alike for i in range(r.width)}
        merged.append([_pack(constants), *(s.values for s in alike[0].summands)])
    return merged


def _pack(constants: set[int]) -> Values:
    """Returns a range if the numbers have equal distances."""
    found = sorted(constants)
    step = found[1] - found[0] if len(found) > 1 else 1
    packed = range(found[0], found[-1] + 1, step)
    if len(packed) == len(found) and constants.issuperset(packed):
        return packed
    from vmapdbg.child.program.steps import make_integers

    return make_integers(found)


def count_distinct(sets: Sequence[Values]) -> int | None:
    """Counts the different sums of one value of each set: the product of their sizes if no two sums can be equal, else
    None."""
    runs: list[Values] = []
    for values in sets:
        if isinstance(values, range):
            runs.append(values)
        else:
            from vmapdbg.child.program.steps import split_runs

            runs += split_runs(values)
    span = 0
    for run in sorted((run for run in runs if len(run) > 1), key=lambda run: run[1] - run[0]):
        if _find_gap(run) <= span:
            return None
        span += int(run[-1] - run[0])
    return math.prod(map(len, sets))


def _find_gap(run: Values) -> int:
    """Returns the smallest difference of two neighbours."""
    if isinstance(run, range):
        return run.step
    return int((run[1:] - run[:-1]).min())


def bound_address(address: Value, gate: Value | None) -> tuple[int, int]:
    """Returns bounds of an address when its gate holds: tinygrad's bounds, narrowed by what the gate compares."""
    known: dict[Value, tuple[int, int]] = {}
    for condition in split_conditions(gate):
        compared = read_comparison(condition)
        if compared is not None:
            value, low, high = compared
            lowest, highest = known.get(value, bounds_of(value))
            known[value] = max(lowest, low), min(highest, high)
    for value in walk([address], known):
        if value not in known and value.op in {"add", "mul", "shl", "sub"}:
            (a, b), (c, d) = known[value.sources[0]], known[value.sources[1]]
            if value.op == "shl":
                # the factors of the shifts
                c, d = 1 << max(c, 0), 1 << min(max(d, 0), 64)
            if value.op == "add":
                ends = [a + c, b + d]
            elif value.op == "sub":
                ends = [a - d, b - c]
            else:
                ends = [a * c, a * d, b * c, b * d]
            known[value] = min(ends), max(ends)
        known.setdefault(value, bounds_of(value))
    return known[address]


def read_comparison(condition: Value) -> tuple[Value, int, int] | None:
    """Returns what a condition says about an expression: (expression, lowest, highest)."""
    # tinygrad writes `not x < y` as `(x < y) != True`
    flipped = condition.op == "ne" and condition.sources[1].constant == 1
    if flipped:
        condition = condition.sources[0]
    if condition.op != "lt":
        return None
    left, right = condition.sources
    if right.constant is not None:
        value, edge, is_below = left, int(right.constant), not flipped
    elif left.constant is not None:
        # edge < value; not so is value < edge + 1
        value, edge, is_below = right, int(left.constant) + 1, flipped
    else:
        return None
    if is_below:
        return value, bounds_of(value)[0], edge - 1
    return value, edge, bounds_of(value)[1]


def find_outside(index: UOp, size: int) -> tuple[int, int] | None:
    """Returns the bounds of a range (a UOp of the scheduler) that indexes an axis of `size` elements, if a step of it
    leaves the axis.

    None if no step does, or if that is not known. tinygrad wraps such an index around when it flattens the axes, so
    that the address in the kernel stays in the buffer, and reads something else.
    """
    low, high = index.vmin, index.vmax
    if isinstance(low, int) and isinstance(high, int) and low >= 0 and high < size:
        return None
    (address, valid), loops = read_values(index.get_idx(), index.get_valid())
    if any(loop.symbolic for loop in loops):
        return None
    try:
        reach = find_reach(address, valid, {loop: loop.trips for loop in loops}, 1)
    except Undecided:
        return None
    if not reach.steps or (reach.lowest >= 0 and reach.highest < size):
        return None
    return reach.lowest, reach.highest
