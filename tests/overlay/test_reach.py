"""What an access reaches, counted group by group, is what going through every step gives."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

from vmapdbg.child.program.linear import ProgramLoop, Undecided, Value
from vmapdbg.child.program.linear_reader import read_values
from vmapdbg.child.program.reach import MOST_STEPS, Reach, bound_address, count_written, find_outside, find_reach


def loop(number: int, size: int) -> UOp:
    return UOp(Ops.RANGE, dtypes.int, (const(size),), (number, AxisType.LOOP))


def const(value: int) -> UOp:
    return UOp.const(dtypes.int, value)


def reach_of(address: UOp, gate: UOp | None, sizes: dict[UOp, int], width: int) -> Reach:
    (start, *values), _ = read_values(address, *sizes, *([] if gate is None else [gate]))
    condition = None if gate is None else values.pop()
    loops = [value for value in values if isinstance(value, ProgramLoop)]
    assert [loop.trips for loop in loops] == list(sizes.values())
    return find_reach(start, condition, loops, width)


def bounds_of(address: UOp, gate: UOp | None) -> tuple[int, int]:
    values: list[Value | None] = [*read_values(address, *([] if gate is None else [gate]))[0], None]
    start, condition = values[:2]
    assert start is not None
    return bound_address(start, condition)


def elements(reach: Reach) -> set[int]:
    bases = {reach.base + sum(map(int, step)) for step in itertools.product(*reach.sets)}
    return {base + i for base in bases for i in range(reach.width)}


# a term of an address: (which loop, what is done to it, the constant of that, the factor)
TERM = st.tuples(
    st.integers(0, 2), st.sampled_from(["", "//", "%", ">>", "&", "?", "+other"]), st.integers(1, 5), st.integers(-7, 7)
)


def make_term(loops: list[UOp], which: int, what: str, number: int, factor: int) -> UOp:
    x = loops[which]
    if what == "//":
        x = x.alu(Ops.IDIV, const(number))
    elif what == "%":
        x = x.alu(Ops.MOD, const(number))
    elif what == ">>":
        x = x.alu(Ops.SHR, const(number % 3))
    elif what == "&":
        x = x.alu(Ops.AND, const(number))
    elif what == "?":
        x = x.alu(Ops.CMPLT, const(number)).alu(Ops.WHERE, const(3), x)
    elif what == "+other":
        x = (x + loops[(which + 1) % 3]).alu(Ops.MOD, const(number))
    return x.alu(Ops.MUL, const(factor))


def evaluate(u: UOp, values: dict[UOp, int]) -> int:
    """The values of an expression, computed without the code under test."""
    if u in values:
        return values[u]
    if u.op is Ops.CONST:
        return int(u.arg)
    s = [evaluate(x, values) for x in u.src]
    match u.op:
        case Ops.ADD:
            return s[0] + s[1]
        case Ops.MUL:
            return s[0] * s[1]
        case Ops.IDIV:
            return int(s[0] / s[1])
        case Ops.MOD:
            return s[0] - s[1] * int(s[0] / s[1])
        case Ops.SHR:
            return s[0] >> s[1]
        case Ops.AND:
            return s[0] & s[1]
        case Ops.CMPLT:
            return int(s[0] < s[1])
        case Ops.WHERE:
            return s[1] if s[0] else s[2]
    raise AssertionError(u.op)


@given(
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(TERM, max_size=4),
    st.none() | st.tuples(st.integers(0, 2), st.integers(0, 5)),
    st.integers(1, 4),
)
def test_reach_is_exact(sizes: list[int], terms: list, gate: tuple[int, int] | None, width: int) -> None:
    loops = [loop(i, size) for i, size in enumerate(sizes)]
    address = const(2)
    for term in terms:
        address = address + make_term(loops, *term)
    condition = None if gate is None else loops[gate[0]].alu(Ops.CMPLT, const(gate[1]))
    reach = reach_of(address, condition, dict(zip(loops, sizes, strict=True)), width)
    steps = [dict(zip(loops, values, strict=True)) for values in itertools.product(*map(range, sizes))]
    passed = [step for step in steps if condition is None or evaluate(condition, step)]
    starts = [evaluate(address, step) for step in passed]
    used = {u for root in (address, condition) if root is not None for u in root.toposort()}
    repeats = math.prod(size for loop, size in zip(loops, sizes, strict=True) if loop not in used)
    assert reach.steps * repeats == len(passed)
    if passed:
        assert (reach.lowest, reach.highest) == (min(starts), max(starts) + width - 1)
        assert elements(reach) == {start + i for start in starts for i in range(width)}
        size = max(1, reach.highest + 2)
        _, written, missing = count_written([reach], size)
        assert written == len(elements(reach))
        assert missing == next((i for i in range(size) if i not in elements(reach)), None)


def test_unrolled_stores_are_one_set() -> None:
    """Four stores, one element apart, in a million steps: nothing is gone through, and all is known."""
    rows = loop(0, 1 << 20)
    reaches = [reach_of(rows.alu(Ops.SHL, const(2)) + const(i), None, {rows: 1 << 20}, 1) for i in range(4)]
    assert count_written(reaches, 1 << 22) == (1 << 22, 1 << 22, None)


def test_too_large_to_go_through_is_undecided() -> None:
    big = loop(0, MOST_STEPS + 1)
    with pytest.raises(Undecided):
        reach_of(big.alu(Ops.MOD, const(7)), None, {big: MOST_STEPS + 1}, 1)


def test_loaded_values_are_undecided_and_bounded_by_the_gate() -> None:
    buffer = UOp(Ops.DEFINE_GLOBAL, dtypes.int.ptr(4), (), 0)
    loaded = buffer.index(const(0)).load()
    with pytest.raises(Undecided):
        reach_of(loaded, None, {}, 1)
    gate = const(-1).alu(Ops.CMPLT, loaded) & loaded.alu(Ops.CMPLT, const(6))
    row = loop(0, 3)
    assert bounds_of(loaded.alu(Ops.SHL, const(2)) + row, gate) == (0, 22)
    assert bounds_of(loaded + row, None)[1] > 1 << 30


def test_range_outside_of_its_axis() -> None:
    r = UOp.range(5, 0)
    assert find_outside(r, 5) is None
    assert find_outside(r + 1, 5) == (1, 5)
    assert find_outside((r < 4).where(r + 1, UOp.invalid()), 5) is None
    assert find_outside((r < 5).where(r - 1, UOp.invalid()), 5) == (-1, 3)
