"""Linear programs made by hand and run by the reference, against numbers by hand and by numpy."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from integers import INTEGER_OPS, SIGNED, UNSIGNED, wrap
from linear_programs import ProgramMaker, make_elementwise

from vmapdbg.reference import linear_machine, linear_plan, run_linear
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.linear import nest
from vmapdbg.reference.linear_memory import LeavesMemory
from vmapdbg.reference.linear_wanted import find_steps
from vmapdbg.values.numbers import decode

NUMBERS = np.arange(24.0)


# *** loops


def make_row_sums(rows: int, columns: int, is_reset: bool = True) -> ProgramMaker:
    """For each row: a register is set to zero (unless it is done once, before all), and each element added to it."""
    made = ProgramMaker()
    out, read = made.argument(np.zeros(rows)), made.argument(NUMBERS[: rows * columns])
    total, zero = made.memory("register", 1), made.number(0)
    if not is_reset:
        made.store(total, zero, made.number(0.0, "float"))
    row = made.loop(rows)
    if is_reset:
        made.store(total, zero, made.number(0.0, "float"))
    column = made.loop(columns)
    value = made.load(read, made.place((row, columns), (column, 1)))
    made.store(total, zero, made.add("add", made.load(total, zero), value))
    made.end(column)
    made.store(out, row, made.load(total, zero))
    made.end(row)
    return made


def test_an_accumulator() -> None:
    assert make_row_sums(4, 6).numbers().tolist() == NUMBERS.reshape(4, 6).sum(1).tolist()


def test_an_accumulator_that_is_reset_too_rarely() -> None:
    assert make_row_sums(4, 6, is_reset=False).numbers().tolist() == NUMBERS.reshape(4, 6).sum(1).cumsum().tolist()


def test_an_accumulator_that_is_reset_in_the_loop_that_adds_to_it() -> None:
    made = ProgramMaker()
    out, read = made.argument([0.0]), made.argument(NUMBERS)
    total, zero = made.memory("register", 1), made.number(0)
    column = made.loop(24)
    made.store(total, zero, made.number(0.0, "float"))
    made.store(total, zero, made.add("add", made.load(total, zero), made.load(read, column)))
    made.end(column)
    made.store(out, zero, made.load(total, zero))
    assert made.numbers().tolist() == [23]


def test_a_register_that_nobody_has_written_is_undefined() -> None:
    made = ProgramMaker()
    out, total, zero = made.argument([0.0]), made.memory("register", 2), made.number(0)
    made.store(total, made.number(1), made.number(3.0, "float"))
    made.store(out, zero, made.load(total, zero))
    undefined = made.run().undefined
    assert undefined is not None
    assert undefined.tolist() == [True]


def test_registers_that_a_loop_fills() -> None:
    made = ProgramMaker()
    out, squares = made.argument(np.zeros(5)), made.memory("register", 5)
    first = made.loop(5)
    value = made.add("cast", first)
    made.store(squares, first, made.add("mul", value, value))
    made.end(first)
    second = made.loop(5)
    turned = made.add("sub", made.number(4), second, dtype="int")
    made.store(out, second, made.load(squares, turned))
    made.end(second)
    assert made.numbers().tolist() == [16, 9, 4, 1, 0]


def test_of_a_lost_loop_the_last_step_stays() -> None:
    made = ProgramMaker()
    out, read = made.argument(np.zeros(3)), made.argument(NUMBERS[:12])
    lost, column = made.loop(4), made.loop(3)
    made.store(out, column, made.load(read, made.place((lost, 3), (column, 1))))
    made.end(column)
    made.end(lost)
    assert made.numbers().tolist() == [9, 10, 11]


def test_two_stores_of_one_element_keep_their_order() -> None:
    made = ProgramMaker()
    out = made.argument(np.zeros(5))
    step = made.loop(4)
    value = made.add("cast", step)
    made.store(out, made.add("add", step, made.number(1), dtype="int"), made.number(-1.0, "float"))
    made.store(out, step, value)
    made.end(step)
    assert made.numbers().tolist() == [0, 1, 2, 3, -1]


def test_what_an_earlier_step_wrote_is_read() -> None:
    """A sum of all before, in place."""
    made = ProgramMaker()
    out = made.argument(np.arange(6.0))
    step = made.loop(5)
    following = made.add("add", step, made.number(1), dtype="int")
    made.store(out, following, made.add("add", made.load(out, step), made.load(out, following)))
    made.end(step)
    assert made.numbers().tolist() == np.arange(6.0).cumsum().tolist()


def test_what_a_later_step_writes_is_not_read() -> None:
    made = ProgramMaker()
    out = made.argument(np.arange(6.0))
    step = made.loop(5)
    following = made.add("add", step, made.number(1), dtype="int")
    made.store(out, step, made.load(out, following))
    made.end(step)
    assert made.numbers().tolist() == [1, 2, 3, 4, 5, 5]


def test_in_place() -> None:
    made = ProgramMaker()
    out = made.argument(np.arange(6.0))
    step = made.loop(6)
    made.store(out, step, made.add("mul", made.load(out, step), made.number(2.0, "float")))
    made.end(step)
    assert made.numbers().tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_in_parts_it_is_the_same(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_linear, "_MOST_ROWS", rows)
    assert make_row_sums(4, 6).numbers().tolist() == NUMBERS.reshape(4, 6).sum(1).tolist()


def test_what_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_machine, "MOST_STEPS", 12)
    with pytest.raises(Unknown, match="too long to be run: over 13 steps"):
        make_row_sums(4, 6).run()


def test_loops_that_overlap_are_refused() -> None:
    made = ProgramMaker()
    first, _ = made.loop(2), made.loop(3)
    made.end(first)
    with pytest.raises(Unknown, match="overlap"):
        nest(made.program.instructions)
    made = ProgramMaker()
    made.loop(2)
    with pytest.raises(Unknown, match="does not end"):
        nest(made.program.instructions)


# *** conditions


def test_a_gated_load_takes_the_other_value() -> None:
    made = ProgramMaker()
    out, read = made.argument(np.zeros(5)), made.argument([7.0, 8.0, 9.0])
    step = made.loop(5)
    gate = made.add("lt", step, made.number(3), dtype="bool")
    made.store(out, step, made.load(read, step, made.number(-1.0, "float"), gate))
    made.end(step)
    assert made.numbers().tolist() == [7, 8, 9, -1, -1]


def test_a_load_outside_is_undefined_and_a_store_is_an_error() -> None:
    made = ProgramMaker()
    out, read = made.argument(np.zeros(5)), made.argument([7.0, 8.0, 9.0])
    step = made.loop(5)
    made.store(out, step, made.load(read, step))
    made.end(step)
    undefined = made.run().undefined
    assert undefined is not None
    assert undefined.tolist() == [False, False, False, True, True]
    made = ProgramMaker()
    out = made.argument(np.zeros(2))
    made.store(out, made.number(2), made.number(0.0, "float"))
    with pytest.raises(LeavesMemory, match="outside"):
        made.run()


@pytest.mark.parametrize("is_if", [False, True])
def test_a_store_under_a_condition(is_if: bool) -> None:
    made = ProgramMaker()
    out = made.argument(np.full(4, 9.0))
    step = made.loop(6)
    gate = made.add("lt", step, made.number(3), dtype="bool")
    if is_if:
        made.add("if", gate, dtype="bool")
    made.store(out, step, made.number(1.0, "float"), *([] if is_if else [gate]))
    if is_if:
        made.add("endif", dtype="bool")
    made.end(step)
    assert made.numbers().tolist() == [1, 1, 1, 9]


def test_what_is_not_chosen_may_be_undefined() -> None:
    made = ProgramMaker()
    out, read = made.argument(np.zeros(3), "int"), made.argument([2, 0, 3], "int")
    step = made.loop(3)
    by = made.load(read, step)
    is_zero = made.add("eq", by, made.number(0), dtype="bool")
    quotient = made.add("cdiv", made.number(-7), by, dtype="int")
    made.store(out, step, made.add("where", is_zero, made.number(5), quotient, dtype="int"))
    made.end(step)
    assert made.numbers().tolist() == [-3, 5, -2]


# *** lanes


def test_lanes_are_read_turned_and_written() -> None:
    made = ProgramMaker()
    out, read = made.argument(np.zeros(12)), made.argument(NUMBERS[:12])
    step = made.loop(3)
    place = made.place((step, 4))
    four = made.load(read, place, lanes=4)
    last, first = made.add("lanes", four, lanes=2, arg=(3, 2)), made.add("lanes", four, arg=(0,))
    turned = made.add("pack", last, first, made.number(-1.0, "float"), lanes=4)
    doubled = made.add("add", turned, turned, lanes=4)
    made.store(out, place, doubled, lanes=4)
    made.end(step)
    assert made.numbers().reshape(3, 4).tolist() == [[6, 4, 0, -2], [14, 12, 8, -2], [22, 20, 16, -2]]


def test_an_accumulator_of_several_lanes() -> None:
    made = ProgramMaker()
    out, read = made.argument(np.zeros(2)), made.argument(NUMBERS[:10])
    total, zero = made.memory("register", 2), made.number(0)
    made.store(total, zero, made.number(0.0, "float"), lanes=2)
    step = made.loop(5)
    two = made.load(read, made.place((step, 2)), lanes=2)
    made.store(total, zero, made.add("add", made.load(total, zero, lanes=2), two, lanes=2), lanes=2)
    made.end(step)
    made.store(out, zero, made.load(total, zero, lanes=2), lanes=2)
    assert made.numbers().tolist() == [20, 25]


# *** threads


def make_group_sum(has_barrier: bool = True) -> ProgramMaker:
    """Each of 3 groups has 4 threads; each thread adds 2 numbers, the first one those of the others."""
    made = ProgramMaker()
    out, read = made.argument(np.zeros(3)), made.argument(NUMBERS)
    shared, total, zero = made.memory("group", 4), made.memory("register", 1), made.number(0)
    group, own = made.thread(3), made.thread(4, is_own=True)
    first = made.place((group, 8), (own, 2))
    second = made.add("add", first, made.number(1), dtype="int")
    made.store(shared, own, made.add("add", made.load(read, first), made.load(read, second)))
    if has_barrier:
        made.add("barrier", dtype="bool")
    made.store(total, zero, made.number(0.0, "float"))
    step = made.loop(4)
    made.store(total, zero, made.add("add", made.load(total, zero), made.load(shared, step)))
    made.end(step)
    made.add("if", made.add("eq", own, zero, dtype="bool"), dtype="bool")
    made.store(out, group, made.load(total, zero))
    made.add("endif", dtype="bool")
    return made


def test_threads_share_the_memory_of_their_group() -> None:
    assert make_group_sum().numbers().tolist() == NUMBERS.reshape(3, 8).sum(1).tolist()


def test_groups_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_linear, "_MOST_ROWS", 4)
    assert make_group_sum().numbers().tolist() == NUMBERS.reshape(3, 8).sum(1).tolist()


def test_threads_that_do_not_wait_for_each_other_are_told_of() -> None:
    with pytest.raises(Unknown, match="without waiting for each other"):
        make_group_sum(has_barrier=False).run()


def test_threads_that_write_the_same_place_are_told_of() -> None:
    made = ProgramMaker()
    out = made.argument([0.0])
    made.store(out, made.number(0), made.add("cast", made.thread(4)))
    with pytest.raises(Unknown, match="write to the same place"):
        made.run()


# *** some elements alone


def make_matmul(rows: int, deep: int, columns: int) -> ProgramMaker:
    made = ProgramMaker()
    out = made.argument(np.zeros(rows * columns))
    left, right = made.argument(np.arange(rows * deep) - 5.0), made.argument(np.arange(deep * columns) % 7)
    total, zero = made.memory("register", 1), made.number(0)
    i, j = made.loop(rows), made.loop(columns)
    made.store(total, zero, made.number(0.0, "float"))
    k = made.loop(deep)
    product = made.add(
        "mul", made.load(left, made.place((i, deep), (k, 1))), made.load(right, made.place((k, columns), (j, 1)))
    )
    made.store(total, zero, made.add("add", made.load(total, zero), product))
    made.end(k)
    made.store(out, made.place((i, columns), (j, 1)), made.load(total, zero))
    made.end(j)
    made.end(i)
    return made


def test_only_the_steps_that_write_some_elements_are_run() -> None:
    made = make_matmul(6, 5, 4)
    whole = made.numbers()
    assert whole.tolist() == ((np.arange(30).reshape(6, 5) - 5.0) @ (np.arange(20) % 7).reshape(5, 4)).ravel().tolist()
    kept = find_steps(made.program, 0, 24, np.array([6, 21]))
    assert kept is not None
    assert sorted(steps.tolist() for steps in kept.values()) == [[1, 2], [1, 5]]
    some = made.numbers(kept)
    assert some[[6, 21]].tolist() == whole[[6, 21]].tolist()
    assert (some != 0).sum() <= 4


def test_threads_alone_that_write_some_elements() -> None:
    made = make_group_sum()
    kept = find_steps(made.program, 0, 3, np.array([1]))
    assert kept is not None
    assert made.numbers(kept).tolist() == [0, NUMBERS[8:16].sum(), 0]


def test_all_steps_are_run_where_they_depend_on_each_other() -> None:
    made = make_row_sums(4, 6, is_reset=False)
    kept = find_steps(made.program, 0, 4, np.array([3]))
    assert made.numbers(kept or {})[3] == NUMBERS.sum()


def test_where_the_data_says_what_is_written_no_steps_are_left_out() -> None:
    made = ProgramMaker()
    out, places = made.argument(np.zeros(3)), made.argument([2, 0, 1], "int")
    step = made.loop(3)
    made.store(out, made.load(places, step), made.add("cast", step))
    made.end(step)
    assert find_steps(made.program, 0, 3, np.array([1])) is None
    assert made.numbers().tolist() == [1, 2, 0]


def test_how_many_numbers_a_program_computes() -> None:
    made = make_row_sums(4, 6)
    for_each_column = 5 + 1 + 1 + 1 + 1
    for_each_row = 3 + 6 * for_each_column + 2
    assert linear_plan.count_numbers(made.program, nest(made.program.instructions)) == 2 + 4 * for_each_row


# *** ops and dtypes

FLOATS = ["half", "bfloat16", "float", "double"]


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
@pytest.mark.parametrize("op", INTEGER_OPS)
def test_integers_wrap_around(op: str, dtype: str) -> None:
    left = [wrap(x, dtype) for x in (-7, 7, 100, 127, -128, (1 << 63) - 1)]
    right = [wrap(x, dtype) for x in (3, -3, 77, 127, 5, 9)]
    expected = [wrap(INTEGER_OPS[op](x, y), dtype) for x, y in zip(left, right, strict=True)]
    operands = [np.array(one, "u8" if dtype in UNSIGNED else "i8") for one in (left, right)]
    assert make_elementwise(op, dtype, dtype, *operands).numbers().tolist() == expected


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_shifts(dtype: str) -> None:
    numbers = [wrap(x, dtype) for x in (-7, 7, 100, -128)]
    operands = [np.array(one, "u8" if dtype in UNSIGNED else "i8") for one in (numbers, [1, 2, 3, 0])]
    shifted = make_elementwise("shl", dtype, dtype, *operands).numbers().tolist()
    assert shifted == [wrap(x << y, dtype) for x, y in zip(numbers, [1, 2, 3, 0], strict=True)]
    shifted = make_elementwise("shr", dtype, dtype, *operands).numbers().tolist()
    assert shifted == [x >> y for x, y in zip(numbers, [1, 2, 3, 0], strict=True)]


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED, *FLOATS, "bool"])
def test_comparisons_and_choices(dtype: str) -> None:
    left, right = np.array([0, 1, 1, 0]), np.array([1, 0, 1, 0])
    for op, function in (("lt", np.less), ("ne", np.not_equal), ("eq", np.equal)):
        assert make_elementwise(op, dtype, "bool", left, right).numbers().tolist() == function(left, right).tolist()


def round_to(value: float, dtype: str) -> float:
    """Rounds to the nearest number of a dtype, ties to even, by the bits."""
    if dtype == "double":
        return value
    if dtype == "half":
        return struct.unpack("e", struct.pack("e", value))[0]
    bits = struct.unpack("I", struct.pack("f", value))[0]
    if dtype == "bfloat16":
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return struct.unpack("f", struct.pack("I", bits))[0]


FLOAT_OPS: dict[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, lambda x, y: x + y),
    "sub": (2, lambda x, y: x - y),
    "mul": (2, lambda x, y: x * y),
    "fdiv": (2, lambda x, y: x / y),
    "max": (2, max),
    "sqrt": (1, math.sqrt),
    "reciprocal": (1, lambda x: 1 / x),
    "trunc": (1, math.trunc),
    "neg": (1, lambda x: -x),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", FLOAT_OPS)
def test_floats_are_rounded_after_each_op(op: str, dtype: str) -> None:
    count, function = FLOAT_OPS[op]
    left = [round_to(x, dtype) for x in (0.1, 3.7, 1000.5, 2.5)]
    right = [round_to(x, dtype) for x in (0.3, 0.7, 0.5, 2.5)]
    operands = [left, right][:count]
    expected = [round_to(float(function(*one)), dtype) for one in zip(*operands, strict=True)]
    assert make_elementwise(op, dtype, dtype, *operands).numbers().tolist() == expected


def test_functions_are_those_of_numpy() -> None:
    numbers = np.array([0.1, 0.5, 3.0, 8.0], np.float32)
    for op, function in (("sin", np.sin), ("exp2", np.exp2), ("log2", np.log2)):
        assert make_elementwise(op, "float", "float", numbers).numbers().tolist() == function(numbers).tolist()
    added = make_elementwise("mulacc", "float", "float", numbers, numbers, numbers).numbers()
    assert added.tolist() == (numbers * numbers + numbers).tolist()


CASTS = [
    ("float", "int", [-1.7, 2.9, 3.0], [-1, 2, 3]),
    ("int", "uchar", [-1, 256, 7], [255, 0, 7]),
    ("uint", "int", [2**32 - 1, 5], [-1, 5]),
    ("float", "bool", [0.0, -0.5, 2.0], [False, True, True]),
    ("bool", "float", [True, False], [1.0, 0.0]),
    ("double", "half", [0.1, 70000.0], [0.0999755859375, math.inf]),
    ("float", "bfloat16", [1.00390625, 3.0], [1.0, 3.0]),
    ("long", "float", [2**24 + 1, -3], [2.0**24, -3.0]),
    ("float", "fp8e4m3", [0.3, 17.0], [0.3125, 16.0]),
    ("fp8e5m2", "float", [1.25, -0.5], [1.25, -0.5]),
]


@pytest.mark.parametrize(("source", "dtype", "given", "expected"), CASTS)
def test_casts(source: str, dtype: str, given: list[Any], expected: list[Any]) -> None:
    assert make_elementwise("cast", source, dtype, given).numbers().tolist() == expected


def test_a_float_that_no_integer_is_near_is_undefined() -> None:
    written = make_elementwise("cast", "float", "int", [1.5, 3e9, math.nan]).run()
    assert written.undefined is not None
    assert written.undefined.tolist() == [False, True, True]
    assert decode(written.array)[0] == 1


def test_bitcasts() -> None:
    bits = make_elementwise("bitcast", "float", "uint", [1.0, -2.0]).numbers()
    assert bits.tolist() == [0x3F800000, 0xC0000000]
    assert make_elementwise("bitcast", "uint", "float", bits).numbers().tolist() == [1.0, -2.0]
    halves = make_elementwise("bitcast", "bfloat16", "ushort", [1.0, -2.0]).numbers()
    assert halves.tolist() == [0x3F80, 0xC000]
