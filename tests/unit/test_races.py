"""Races between threads, in linear programs that are written down here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vmapdbg.child.program.linear import Buffer, LinearProgram, MemoryAccess, ProgramLoop, Value
from vmapdbg.child.program.races import find_races, may_race
from vmapdbg.child.program.reach import MOST_STEPS

GROUP = ProgramLoop("thread", (), "int", 4, name="gidx0", trips=2, bounds=(0, 1))
THREAD = ProgramLoop("thread", (), "int", 4, name="lidx0", trips=4, bounds=(0, 3))
LOOP = ProgramLoop("loop", (), "int", 4, name="Ridx0", trips=3, bounds=(0, 2))
INNER = ProgramLoop("loop", (), "int", 4, name="Ridx1", trips=4, bounds=(0, 3))
LOCAL = Buffer(0, "temp0", 4, "float", 4, "local")
GLOBAL = Buffer(0, "data0_8", 8, "float", 4, "global")
ONE = Value("const", (), "float", 4, constant=1.0)


def number(value: int) -> Value:
    return Value("const", (), "int", 4, constant=value, bounds=(value, value))


def compute(op: str, one: Value, other: Value) -> Value:
    return Value(op, (one, other), "int", 4, bounds=(0, 8))


def access(
    buffer: Buffer, index: Value, is_store: bool, *loops: ProgramLoop, gate: Value | None = None, value: Value = ONE
) -> MemoryAccess:
    return MemoryAccess(buffer, index, gate, is_store, value, 1, (GROUP, THREAD, *loops))


def program(*order: MemoryAccess | ProgramLoop | str) -> LinearProgram:
    accesses = [step for step in order if isinstance(step, MemoryAccess)]
    loops = list(dict.fromkeys(step for step in order if isinstance(step, ProgramLoop)))
    buffers = list(dict.fromkeys(one.buffer for one in accesses))
    return LinearProgram(buffers, accesses, loops=loops, order=list(order), threads=[GROUP, THREAD])


def large(*indices: Value) -> LinearProgram:
    """A store, and a load, in many steps of a loop."""
    buffer = Buffer(0, "data0", 8 * MANY, "float", 4, "global")
    return program(LONG, *(access(buffer, index, not number, LONG) for number, index in enumerate(indices)), LONG)


STORE, OWN, OTHERS = access(LOCAL, THREAD, True), access(LOCAL, THREAD, False), access(LOCAL, INNER, False, INNER)
LOOP_STORE, LOOP_LOAD = access(LOCAL, THREAD, True, LOOP), access(LOCAL, INNER, False, LOOP, INNER)
IN_LOOP = LOOP, LOOP_STORE, "barrier", INNER, LOOP_LOAD, INNER
# the first thread alone stores, and the first thread alone loads
IS_FIRST = Value("lt", (THREAD, number(1)), "bool", 1, bounds=(0, 1))
ALL_STORE = access(LOCAL, number(0), True)
FIRST_STORE, FIRST_LOAD = (access(LOCAL, number(0), is_store, gate=IS_FIRST) for is_store in (True, False))
ELEMENT = compute("add", compute("mul", GROUP, number(4)), THREAD)
TURNED = compute("sub", number(7), ELEMENT)
MANY = 2 * MOST_STEPS
LONG = ProgramLoop("loop", (), "int", 4, name="Ridx2", trips=MANY, bounds=(0, MANY - 1))
SOME = ProgramLoop("loop", (), "int", 4, name="Ridx3", trips=8, bounds=(0, 7), symbolic=True)
ELEMENTS = compute("add", compute("mul", LONG, number(8)), ELEMENT)
LOADED, VARIABLE = Value("load", (), "int", 4, bounds=(0, 3)), Value("variable", (), "int", 4, bounds=(0, 3))

RACES = {
    "no barrier": (program(STORE, INNER, OTHERS, INNER), ("store", "load"), None),
    "the next step of a loop": (
        program(LOOP, LOOP_STORE, "barrier", INNER, LOOP_LOAD, INNER, LOOP),
        ("load", "store"),
        "Ridx0",
    ),
    "GLOBAL memory is turned around": (
        program(access(GLOBAL, ELEMENT, False), access(GLOBAL, TURNED, True)),
        ("load", "store"),
        None,
    ),
    "all threads store to what the first thread loads": (
        program(access(LOCAL, number(0), True), FIRST_LOAD),
        ("store", "load"),
        None,
    ),
    "a part of many steps is enough": (
        large(ELEMENTS, compute("add", compute("mul", LONG, number(8)), TURNED)),
        ("store", "load"),
        None,
    ),
}
FINE = {
    "a barrier": program(STORE, "barrier", INNER, OTHERS, INNER),
    "each thread has its own element": program(STORE, OWN),
    "a barrier at the end of the loop, too": program(
        LOOP, LOOP_STORE, "barrier", INNER, LOOP_LOAD, INNER, "barrier", LOOP
    ),
    "in place": program(access(GLOBAL, ELEMENT, False), access(GLOBAL, ELEMENT, True)),
    "one thread": program(FIRST_STORE, FIRST_LOAD),
    "groups have LOCAL memory of their own": program(
        access(LOCAL, THREAD, True), access(LOCAL, compute("add", THREAD, compute("mul", GROUP, number(0))), False)
    ),
    "a store at a loaded address that is the same everywhere": program(access(GLOBAL, LOADED, True)),
    "each step has its own element, and the steps are many": large(ELEMENTS, ELEMENTS),
}
UNKNOWN = {
    "a loaded address": (program(access(GLOBAL, ELEMENT, True), access(GLOBAL, LOADED, False)), "load"),
    "a store at a loaded address": (program(access(GLOBAL, LOADED, True, value=ELEMENT)), "load"),
    "a variable": (program(access(GLOBAL, ELEMENT, True), access(GLOBAL, VARIABLE, False)), "variable"),
    "a loop with a variable": (program(access(GLOBAL, ELEMENT, True), access(GLOBAL, SOME, False, SOME)), "variable"),
    # the last threads have it
    "many steps": (large(ELEMENTS, compute("sub", number(MANY), ELEMENTS)), "too many steps"),
}


@pytest.mark.parametrize("what", RACES)
def test_races(what: str) -> None:
    linear, kinds, repeated = RACES[what]
    (race,), _ = find_races(linear, "")
    assert (race.kinds, race.repeated) == (kinds, repeated)
    assert race.threads[0] != race.threads[1]


@pytest.mark.parametrize("what", FINE)
def test_no_race(what: str) -> None:
    assert find_races(FINE[what], "") == ((), None)


@pytest.mark.parametrize("what", UNKNOWN)
def test_unknown(what: str) -> None:
    """Nothing calls a kernel free of races if not all of its addresses were computed."""
    linear, reason = UNKNOWN[what]
    races, unknown = find_races(linear, "")
    assert races == ()
    assert unknown is not None
    assert reason in unknown


@pytest.mark.parametrize("is_scatter", [False, True])
@pytest.mark.parametrize(("last", "threads"), [(0, {0, 7}), (7, None)])
def test_numbers_that_were_loaded(is_scatter: bool, last: int, threads: set[int] | None) -> None:
    """`check` knows the numbers: the last thread races with the first if it loads, or writes, its element."""
    numbers = np.array([*range(7), last])
    loaded = Value("known", (GROUP, THREAD), "int", 4, compute=lambda steps: numbers[4 * steps[0] + steps[1]])
    accesses = [access(GLOBAL, ELEMENT, True), access(GLOBAL, loaded, False)]
    if is_scatter:
        accesses = [access(GLOBAL, loaded, True, value=ELEMENT)]
    races, unknown = find_races(program(*accesses), "")
    assert unknown is None
    assert [set(race.threads) for race in races] == ([] if threads is None else [threads])


class Op:
    """As much of a UOp as is looked at."""

    def __init__(self, op: str, *src: Any, arg: Any = None) -> None:
        self.op, self.src, self.arg, self.dtype = SimpleNamespace(name=op), src, arg, "float"


@pytest.mark.parametrize(("threads", "expected"), [([Op("SPECIAL", arg="lidx0")], True), ([], False)])
def test_a_program_that_is_too_long_to_be_read_may_race(threads: list[Any], expected: bool) -> None:
    """If it loads what it stores, on several threads: then `check` counts it as not looked at."""
    memory = Op("DEFINE_GLOBAL", arg=0)
    load = Op("LOAD", memory)
    assert may_race([*threads, memory, load, Op("STORE", memory, load)], most=2) is expected
