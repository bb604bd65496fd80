"""Facts for `lint` about the loads and stores of a linear program, in the child. All are certain: no step of any loop
or thread leaves a bound, some step reaches each address that is called outside, and all steps of a loop that is called
lost store to the same address. What cannot be decided is None."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from vmapdbg.child.program import linear
from vmapdbg.child.program.linear import LinearProgram, MemoryAccess, ProgramLoop, Value
from vmapdbg.child.program.reach import Reach, bound_address, count_written, find_known_reach, find_reach
from vmapdbg.model import capture as model
from vmapdbg.model.schedule_index import group_equal
from vmapdbg.reference.graph import Unknown, reach

_STORE = re.compile(r"\s*(\*\(.*\) = |(data|temp|acc|buf)\w*\[.*\] = )")
_LOAD = re.compile(r"\s*[\w<> ]+ val\d+ = [(*]*(\w*)")


def find_source_lines(program: LinearProgram, source: str) -> dict[MemoryAccess, int]:
    """Returns the source line (from 1) of stores, and of loads with their own line; empty if lines do not match."""
    stores = [access for access in program.accesses if access.is_store]
    loads = [access for access in program.accesses if not access.is_store and access.buffer.space != "register"]
    # the source may read a register in a line of its own
    registers = {buffer.name for buffer in program.buffers if buffer.space == "register"}
    lines = list(enumerate(source.split("\n"), 1))
    store_lines = [number for number, line in lines if _STORE.match(line)]
    loaded = [(number, match[1]) for number, line in lines if (match := _LOAD.match(line))]
    if len(loaded) != len(loads):
        loaded = [(number, name) for number, name in loaded if name not in registers]
    found: dict[MemoryAccess, int] = {}
    for accesses, numbers in ((stores, store_lines), (loads, [number for number, _ in loaded])):
        if len(accesses) == len(numbers):
            found |= zip(accesses, numbers, strict=True)
    return found


def find_data(
    program: LinearProgram, *values: Value, through_local: bool = True
) -> tuple[set[Value], set[MemoryAccess]]:
    """Returns all values that some values are computed from, and the loads and stores on the way. A loop that only
    orders a store does not count; without `through_local`, nor do values that other threads stored to LOCAL memory."""

    def follow(item: Value | MemoryAccess) -> list[Value | MemoryAccess]:
        if isinstance(item, Value):
            return [*item.sources, *([program.loaded[item]] if item in program.loaded else ())]
        stored = [item.value] if item.is_store else []
        return [*item.addressing, *stored, *(item.follows if through_local or item.buffer.space != "local" else ())]

    reached = reach(values, follow)
    accesses = {item for item in reached if isinstance(item, MemoryAccess)}
    return {item for item in reached if isinstance(item, Value)}, accesses


# the facts are not about registers
_SPACES: dict[str, Literal["GLOBAL", "LOCAL"]] = {"global": "GLOBAL", "local": "LOCAL"}


def find_accesses(program: LinearProgram, source: str) -> tuple[model.Access, ...]:
    """Returns the facts about each GLOBAL and LOCAL buffer of a linear program, loads and stores apart."""
    lines = find_source_lines(program, source)
    known = [access for access in program.accesses if access.buffer.space in _SPACES and access.buffer.size >= 0]
    groups = group_equal(known, lambda access: (access.buffer, access.is_store))
    return tuple(_describe(program, lines, accesses) for accesses in groups)


def _describe(
    program: LinearProgram, lines: Mapping[MemoryAccess, int], accesses: Sequence[MemoryAccess]
) -> model.Access:
    """Sums up the loads, or the stores, of one buffer."""
    buffer, is_store = accesses[0].buffer, accesses[0].is_store
    reaches: list[Reach] = []
    bounds: list[tuple[int, int]] = []
    outside: list[MemoryAccess] = []
    lost: dict[MemoryAccess, tuple[ProgramLoop, ...]] = {}
    for access in accesses:
        reach = find_known_reach(access.index, access.gate, access.loops, access.width)
        if reach is not None:
            reaches.append(reach)
        if (found := find_bounds(access, reach)) is not None:
            bounds.append(found)
            if found[0] < 0 or found[1] >= buffer.size:
                outside.append(access)
        if loops := find_lost(program, access, reach):
            lost[access] = loops
    lowest, highest = None, None
    if outside or len(bounds) == len(accesses):
        lowest, highest = min(low for low, _ in bounds), max(high for _, high in bounds)
    stores, elements, missing = None, None, None
    if is_store and len(reaches) == len(accesses):
        stores, elements, missing = count_written(reaches, buffer.size)
    worst = next(iter([*outside, *lost]), accesses[0])
    names: dict[Value, str] = {loop: loop.name for access in accesses for loop in access.loops}
    return model.Access(
        buffer=buffer.name,
        kind=accesses[0].kind,
        addrspace=_SPACES[buffer.space],
        size=buffer.size,
        lowest=lowest,
        highest=highest,
        address=linear.write_expression(worst.index, names),
        gate=worst.gate and linear.write_expression(worst.gate, names),
        source_line=lines.get(worst),
        lost=tuple(map(_describe_loop, lost.get(worst, ()))),
        stores=stores,
        elements=elements,
        missing=missing,
    )


def find_bounds(access: MemoryAccess, reach: Reach | None) -> tuple[int, int] | None:
    """Returns the lowest and highest element that is accessed; None if it may leave the buffer, or may not."""
    if reach is not None:
        return (reach.lowest, reach.highest) if reach.steps else (0, 0)  # without steps nothing is accessed
    lowest, highest = bound_address(access.index, access.gate)
    highest += access.width - 1
    return None if lowest < 0 or highest >= access.buffer.size else (lowest, highest)


def find_lost(program: LinearProgram, access: MemoryAccess, reach: Reach | None) -> tuple[ProgramLoop, ...]:
    """Returns the loops and threads whose steps store different values to the same address, so that the last value
    stays: neither address nor gate uses the loop, but the value does. LOCAL memory belongs to one group of threads and
    is used again in each step of a loop: there only the threads of the group count."""
    if not access.is_store or (reach is not None and not reach.steps):
        return ()
    candidates = [loop for loop in access.loops if loop.trips > 1]
    if access.buffer.space == "local":
        candidates = [loop for loop in candidates if loop.op == "thread" and loop.name.startswith("l")]
    used, _ = find_data(program, *access.addressing)
    unused = [loop for loop in candidates if loop not in used]
    pinned = [loop for loop in find_pinned(program, access) if loop in candidates]
    if not unused and not pinned:
        return ()
    stored, accesses = find_data(program, access.value)
    # a sum in the buffer is not lost
    if any(other.buffer is access.buffer for other in accesses):
        return ()
    lost = {loop for loop in unused if loop in stored}
    if pinned:
        of_thread, _ = find_data(program, access.value, through_local=False)
        lost |= {loop for loop in pinned if loop in of_thread}
    return tuple(loop for loop in candidates if loop in lost)


def find_pinned(program: LinearProgram, access: MemoryAccess) -> Iterator[ProgramLoop]:
    """Yields the threads that do not change the address, and whose first step alone passes the gate. tinygrad puts
    such a gate on a store without the range of some threads of a group. After a GROUP reduce that is right: the first
    thread stores what LOCAL memory has collected. But a value that differs between threads is lost."""
    address, _ = find_data(program, access.index)
    for condition in linear.split_conditions(access.gate):
        compared, _ = find_data(program, condition)
        loops = [loop for loop in access.loops if loop in compared]
        if len(loops) != 1 or loops[0].op != "thread" or loops[0] in address:
            continue
        with suppress(Unknown):
            reach = find_reach(loops[0], condition, loops, 1)
            if reach.steps == 1 and reach.highest == 0:
                yield loops[0]


def _describe_loop(loop: ProgramLoop) -> model.Loop:
    if loop.op == "loop":
        return model.Loop(loop.name, loop.trips, "loop")
    return model.Loop(loop.name, loop.trips, "thread" if loop.is_thread else "launch")


# *** accumulators


def find_resets(program: LinearProgram, source: str) -> tuple[model.Reset, ...]:
    """Returns the accumulators that loops add to and initialise in each of their steps."""
    # stores to registers that are read after a loop around the store, with each such loop
    reads = (access for access in program.accesses if not access.is_store and access.buffer.space == "register")
    pairs = [(read, store) for read in reads for store in read.follows if store.buffer is read.buffer]
    loops = ((read, store, loop) for read, store in pairs for loop in store.loops if loop.trips > 1)
    summed = dict.fromkeys((store, loop) for read, store, loop in loops if loop not in read.loops)
    found: dict[MemoryAccess, list[ProgramLoop]] = {}
    for store, loop in summed:
        initial = find_initial(program, store, loop)
        if initial is not None and loop not in found.setdefault(initial, []):
            found[initial].append(loop)
    lines = find_source_lines(program, source) if found else {}
    return tuple(
        model.Reset(initial.buffer.name, tuple(map(_describe_loop, loops)), lines.get(initial))
        for initial, loops in found.items()
    )


def find_initial(program: LinearProgram, store: MemoryAccess, loop: ProgramLoop) -> MemoryAccess | None:
    """Returns the store that initialises an accumulator in each step of the loop that adds to it, None if the program
    has no such store. It is in the loop, the sum begins with it, and both are at the same place in each step."""

    def is_addressed(access: MemoryAccess) -> bool:
        return loop in find_data(program, *access.addressing)[0]

    stored, accesses = find_data(program, store.value)
    if loop not in stored or is_addressed(store):
        return None
    for read in accesses:
        if read.is_store or read.buffer is not store.buffer or loop not in read.loops:
            continue
        for initial in read.follows:
            if initial is store or loop not in initial.loops or not has_same_place(initial, read):
                continue
            _, begun = find_data(program, initial.value)
            is_sum = any(other.buffer is store.buffer for other in begun)
            if not is_sum and not is_addressed(initial):
                return initial
    return None


def has_same_place(initial: MemoryAccess, read: MemoryAccess) -> bool:
    """Whether a store writes all that a load reads."""
    if initial.index is read.index:
        return initial.width >= read.width
    first, wanted = initial.index.constant, read.index.constant
    if first is None or wanted is None:
        return False
    return first <= wanted and wanted + read.width <= first + initial.width
