"""Accumulators that are initialised inside the loop that adds to them: facts for `lint`. Runs in the child.

A reduce adds to registers step by step: they are initialised before its loop and read after it. Where the program
initialises them inside the loop, each step forgets those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vmapdbg.child.program.accesses import describe_loop
from vmapdbg.child.program.dependence import find_data
from vmapdbg.child.program.linear import Access, Buffer, LinearProgram, Loop
from vmapdbg.child.program.source_lines import find_source_lines
from vmapdbg.model import capture as model


@dataclass(frozen=True)
class Accumulation:
    """A store that adds to a register what it finds there, in the steps of a loop that is done when the register is
    read."""

    store: Access
    loop: Loop


def find_resets(program: LinearProgram, source: str) -> tuple[model.Reset, ...]:
    """Returns the accumulators that loops add to and initialise in each of their steps."""
    found: dict[Access, dict[Loop, None]] = {}
    for added in find_accumulations(program):
        initial = find_initial(program, added)
        if initial is not None:
            found.setdefault(initial, {})[added.loop] = None
    lines = find_source_lines(program, source) if found else {}
    return tuple(
        model.Reset(initial.buffer.name, tuple(map(describe_loop, loops)), lines.get(initial))
        for initial, loops in found.items()
    )


def find_accumulations(program: LinearProgram) -> Iterator[Accumulation]:
    """Yields the stores whose value is read after a loop around them, once for each such loop."""
    seen: set[tuple[Access, Loop]] = set()
    for read in program.accesses:
        if read.is_store or read.buffer.space != "register":
            continue
        for store in read.follows:
            done = [loop for loop in store.loops if loop not in read.loops and loop.trips > 1]
            for loop in done:
                if (store, loop) not in seen and store.buffer is read.buffer:
                    seen.add((store, loop))
                    yield Accumulation(store, loop)


def find_initial(program: LinearProgram, added: Accumulation) -> Access | None:
    """Returns the store that initialises an accumulator in each step of the loop that adds to it, None where there is
    none: it is in the loop, the sum begins with it, and both are at the same place in each step."""
    store, loop = added.store, added.loop
    stored = find_data(store.value, loaded=program.loaded)
    if loop not in stored.values or is_addressed_by(program, store, loop):
        return None
    for read in stored.accesses:
        if read.is_store or read.buffer is not store.buffer or loop not in read.loops:
            continue
        for initial in read.follows:
            if initial is store or loop not in initial.loops or not has_same_place(initial, read):
                continue
            begun = find_data(initial.value, loaded=program.loaded)
            is_sum = any(other.buffer is store.buffer for other in begun.accesses)
            if not is_sum and not is_addressed_by(program, initial, loop):
                return initial
    return None


def is_addressed_by(program: LinearProgram, access: Access, loop: Loop) -> bool:
    """Whether address or gate of an access use a loop."""
    return loop in find_data(*access.addressing, loaded=program.loaded).values


def has_same_place(initial: Access, read: Access) -> bool:
    """Whether a store writes all that a load reads."""
    if initial.index is read.index:
        return initial.width >= read.width
    first, wanted = initial.index.constant, read.index.constant
    if first is None or wanted is None:
        return False
    return first <= wanted and wanted + read.width <= first + initial.width


def carries_values(program: LinearProgram, loop: Loop) -> bool:
    """Returns whether a step of a loop may use what another step left in memory: it reads a register before it writes
    it, or the threads of a group write to their memory."""
    first: dict[Buffer, Access] = {}
    for access in program.accesses:
        if loop not in access.loops:
            continue
        if access.is_store and access.buffer.space == "local":
            return True
        earlier = first.setdefault(access.buffer, access)
        if access.is_store and not earlier.is_store and access.buffer.space == "register":
            return True
    return False
