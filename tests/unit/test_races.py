"""Races between threads, in linear programs that are written down here."""

from __future__ import annotations

import pytest

from vmapdbg.child.program.linear import Buffer, LinearProgram, MemoryAccess, ProgramLoop, Value
from vmapdbg.child.program.races import find_races

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
    buffer: Buffer, index: Value, is_store: bool, *loops: ProgramLoop, gate: Value | None = None
) -> MemoryAccess:
    return MemoryAccess(buffer, index, gate, is_store, ONE, 1, (GROUP, THREAD, *loops))


def program(*order: MemoryAccess | ProgramLoop | str) -> LinearProgram:
    accesses = [step for step in order if isinstance(step, MemoryAccess)]
    loops = list(dict.fromkeys(step for step in order if isinstance(step, ProgramLoop)))
    buffers = list(dict.fromkeys(one.buffer for one in accesses))
    return LinearProgram(buffers, accesses, loops=loops, order=list(order), threads=[GROUP, THREAD])


STORE, OWN, OTHERS = access(LOCAL, THREAD, True), access(LOCAL, THREAD, False), access(LOCAL, INNER, False, INNER)
LOOP_STORE, LOOP_LOAD = access(LOCAL, THREAD, True, LOOP), access(LOCAL, INNER, False, LOOP, INNER)
IN_LOOP = LOOP, LOOP_STORE, "barrier", INNER, LOOP_LOAD, INNER
# the first thread alone stores, and the first thread alone loads
IS_FIRST = Value("lt", (THREAD, number(1)), "bool", 1, bounds=(0, 1))
ALL_STORE = access(LOCAL, number(0), True)
FIRST_STORE, FIRST_LOAD = (access(LOCAL, number(0), is_store, gate=IS_FIRST) for is_store in (True, False))
ELEMENT = compute("add", compute("mul", GROUP, number(4)), THREAD)
TURNED = compute("sub", number(7), ELEMENT)

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
    "a loaded address": program(STORE, access(LOCAL, Value("load", (), "int", 4, bounds=(0, 3)), False)),
}


@pytest.mark.parametrize("what", RACES)
def test_races(what: str) -> None:
    linear, kinds, repeated = RACES[what]
    (race,) = find_races(linear, "")
    assert (race.kinds, race.repeated) == (kinds, repeated)
    assert race.threads[0] != race.threads[1]


@pytest.mark.parametrize("what", FINE)
def test_no_race(what: str) -> None:
    assert find_races(FINE[what], "") == ()
