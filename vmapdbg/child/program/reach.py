"""Which addresses an access reaches, over all steps of its loops and all its threads. Runs in the child.

An address is a sum of terms. Terms that share no loop are independent, so each group of terms that do is gone through
on its own, step by step, and the whole is the sum of one value of each group: exact, and small also where the kernel
has millions of steps. What cannot be gone through within `MOST_STEPS` is left undecided (None), never guessed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.program.expressions import PYTHON_OF, Undecided, compile_sum, keeps_value, walk

MOST_STEPS = 1 << 14
"""How many steps of one group of loops, or elements of one buffer, are gone through one by one."""


@dataclass(frozen=True)
class Group:
    """The values that terms with loops in common add to an address, sorted, and in how many steps (repeats counted)."""

    values: Sequence[int]
    steps: int


@dataclass(frozen=True)
class Reach:
    """The addresses of one access: `base` + one value of each group + 0..`width`-1, in elements. No value: no step of
    it passes its gate."""

    base: int
    groups: tuple[Group, ...]
    width: int
    # how often each address is accessed by loops that neither the address nor the gate uses
    repeats: int = 1

    @property
    def steps(self) -> int:
        return math.prod(g.steps for g in self.groups) * self.repeats

    @property
    def lowest(self) -> int:
        return self.base + sum(g.values[0] for g in self.groups)

    @property
    def highest(self) -> int:
        return self.base + sum(g.values[-1] for g in self.groups) + self.width - 1


def find_reach(address: UOp, gate: UOp | None, sizes: dict[UOp, int], width: int) -> Reach:
    """Returns what an access reaches. `sizes` has the loops and threads around it with their trip counts.

    Raises Undecided.
    """
    base, terms = split_terms(address)
    conditions = [] if gate is None else split_conditions(gate)
    parts: list[tuple[frozenset[UOp], list[tuple[UOp, int]], list[UOp]]] = []
    for expression, scale in terms:
        parts.append((find_loops(expression, sizes), [(expression, scale)], []))
    for condition in conditions:
        parts.append((find_loops(condition, sizes), [], [condition]))
    groups = [make_group(loops, inside, held, sizes) for loops, inside, held in join_parts(parts)]
    used = {loop for loops, _, _ in parts for loop in loops}
    repeats = math.prod(size for loop, size in sizes.items() if loop not in used)
    return Reach(base, tuple(groups), width, repeats)


def split_terms(address: UOp) -> tuple[int, list[tuple[UOp, int]]]:
    """Returns an address as a constant and terms (expression, factor), sums and constant factors taken apart."""
    base, terms = 0, dict[UOp, int]()
    todo = [(address, 1)]
    while todo:
        u, scale = todo.pop()
        left, right = u.src if len(u.src) == 2 else (None, None)
        if u.op is Ops.CONST and isinstance(u.arg, int):
            base += u.arg * scale
        elif u.op is Ops.ADD and left is not None and right is not None:
            todo += [(left, scale), (right, scale)]
        elif u.op is Ops.SUB and left is not None and right is not None:
            todo += [(left, scale), (right, -scale)]
        elif u.op in {Ops.MUL, Ops.SHL} and right is not None and right.op is Ops.CONST and left is not None:
            todo.append((left, scale * int(right.arg) if u.op is Ops.MUL else scale << int(right.arg)))
        elif u.op is Ops.CAST and keeps_value(u):
            todo.append((u.src[0], scale))
        else:
            terms[u] = terms.get(u, 0) + scale
    return base, list(terms.items())


def split_conditions(gate: UOp) -> list[UOp]:
    if gate.op is Ops.AND and gate.dtype == dtypes.bool:
        return [part for s in gate.src for part in split_conditions(s)]
    return [gate]


def find_loops(expression: UOp, sizes: dict[UOp, int]) -> frozenset[UOp]:
    """Returns the loops and threads that an expression uses. Raises Undecided where it uses anything else."""
    found = set()
    for u in walk(expression, sizes):
        if u in sizes:
            found.add(u)
        elif u.op not in PYTHON_OF and u.op is not Ops.CONST:
            raise Undecided(f"{u.op.name} in an address")
    return frozenset(found)


_Part = tuple[frozenset[UOp], list[tuple[UOp, int]], list[UOp]]


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


def make_group(
    loops: frozenset[UOp], terms: list[tuple[UOp, int]], conditions: list[UOp], sizes: dict[UOp, int]
) -> Group:
    if len(loops) == 1 and not conditions and len(terms) == 1 and terms[0][0] in loops:
        size, step = sizes[terms[0][0]], terms[0][1]
        if step == 0:
            return Group((0,), size)
        return Group(range(0, size * step, step) if step > 0 else range((size - 1) * step, 1, -step), size)
    order = sorted(loops, key=lambda loop: str(loop.arg))
    steps = math.prod(sizes[loop] for loop in order)
    if steps > MOST_STEPS:
        raise Undecided(f"{steps} steps")
    value = compile_sum(terms, conditions, order)
    found = [
        v for step in itertools.product(*(range(sizes[loop]) for loop in order)) if (v := value(*step)) is not None
    ]
    return Group(sorted(set(found)), len(found))


# *** several accesses of one buffer


@dataclass(frozen=True)
class Written:
    """What stores do to a buffer: how often they store an element, how many different ones (None: undecided), and the
    first one of the buffer that is not among them (None: none, or undecided)."""

    stores: int
    elements: int | None
    missing: int | None


def count_written(reaches: Sequence[Reach], size: int) -> Written:
    """Returns what all the stores to one buffer of `size` elements reach together.

    Repeats of a whole store count as one (they are told apart by `Reach.repeats`).
    """
    live = [r for r in reaches if r.steps]
    stores = sum(r.steps // r.repeats * r.width for r in live)
    merged = merge_constants(live)
    if len(merged) == 1 and (elements := count_distinct(merged[0])) is not None and elements == size:
        lowest, highest = (sum(g.values[end] for g in merged[0]) for end in (0, -1))
        # as many as the buffer has, and none of them outside of it
        if lowest >= 0 and highest < size:
            return Written(stores, elements, None)
    if sum(math.prod(len(g.values) for g in groups) for groups in merged) <= MOST_STEPS:
        reached = {v for groups in merged for v in add_all(groups)}
        missing = next((i for i in range(size) if i not in reached), None)
        return Written(stores, len(reached), missing)
    return Written(stores, None, None)


def merge_constants(reaches: Sequence[Reach]) -> list[list[Group]]:
    """Returns each reach as groups alone; stores that differ by a constant (an unrolled loop) become one."""
    by_groups: dict[tuple[Sequence[int], ...], list[Reach]] = {}
    for r in reaches:
        key = tuple(g.values if isinstance(g.values, range) else tuple(g.values) for g in r.groups)
        by_groups.setdefault(key, []).append(r)
    merged = []
    for alike in by_groups.values():
        constants = sorted({r.base + i for r in alike for i in range(r.width)})
        merged.append([Group(constants, len(constants)), *alike[0].groups])
    return merged


def count_distinct(groups: Sequence[Group]) -> int | None:
    """Returns how many sums of one value of each group there are: their product, where no two sums can be the same."""
    span = 0
    runs = [run for g in groups for run in split_runs(g.values) if len(run) > 1]
    for run in sorted(runs, key=lambda run: run[1] - run[0]):
        gap = min(b - a for a, b in itertools.pairwise(run)) if not isinstance(run, range) else run.step
        if gap <= span:
            return None
        span += run[-1] - run[0]
    return math.prod(len(g.values) for g in groups)


def split_runs(values: Sequence[int]) -> list[Sequence[int]]:
    """Returns sets whose sums are `values`, up to a constant: 0,1,8,9 is 0,1 and 0,8."""
    if isinstance(values, range) or len(values) < 3:
        return [values]
    step = values[1] - values[0]
    length = next((i for i in range(1, len(values)) if values[i] - values[i - 1] != step), len(values))
    starts = values[::length]
    run = range(0, step * length, step)
    if len(values) % length or any(values[i] != starts[i // length] + run[i % length] for i in range(len(values))):
        return [values]
    return [run] if len(starts) == 1 else [run, *split_runs(starts)]


def add_all(groups: Sequence[Group]) -> set[int]:
    sums = {0}
    for group in groups:
        sums = {a + b for a in sums for b in group.values}
    return sums
