"""Facts for `lint` about the loads and stores of a linear program. Runs in the child.

Every fact is certain: no step of any loop or thread leaves a bound, some step reaches each address that is called
outside, and all steps of a loop that is called lost store to the same address. What cannot be decided is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from vmapdbg.child.program.linear import Access, Buffer, LinearProgram, Loop, Value
from vmapdbg.child.program.reach import (
    Reach,
    Undecided,
    Written,
    bound_address,
    count_written,
    find_reach,
    split_conditions,
    write_expression,
)
from vmapdbg.model import capture as model
from vmapdbg.model.vocabulary import LoopKind

_STORE = re.compile(r"\s*(\*\(.*\) = |(data|temp|acc|buf)\w*\[.*\] = )")
_LOAD = re.compile(r"\s*[\w<> ]+ val\d+ = ")
_LOADED_FROM = re.compile(r"\s*[\w<> ]+ val\d+ = [(*]*(\w*)")


def find_source_lines(program: LinearProgram, source: str) -> dict[Access, int]:
    """Returns the line of the source (from 1) of each store, and of each load that has a line of its own.

    Empty if the lines cannot be matched, as for a renderer that writes stores in another way.
    """
    lines = list(enumerate(source.split("\n"), 1))
    stores = [access for access in program.accesses if access.is_store]
    loads = [access for access in program.accesses if not access.is_store and access.buffer.space != "register"]
    load_lines = [i for i, line in lines if _LOAD.match(line)]
    if len(load_lines) != len(loads):
        # a register that is read twice may have a line, too
        registers = {buffer.name for buffer in program.buffers if buffer.space == "register"}
        found = ((i, _LOADED_FROM.match(line)) for i, line in lines)
        load_lines = [i for i, match in found if match is not None and match[1] not in registers]
    matched = [(stores, [i for i, line in lines if _STORE.match(line)]), (loads, load_lines)]
    return {
        access: line
        for accesses, numbers in matched
        if len(accesses) == len(numbers)
        for access, line in zip(accesses, numbers, strict=True)
    }


@dataclass
class Data:
    """What values are computed from: other values, and what is loaded and stored on the way."""

    values: set[Value] = field(default_factory=set)
    accesses: set[Access] = field(default_factory=set)


def find_data(*values: Value, loaded: Mapping[Value, Access], through_local: bool = True) -> Data:
    """Returns all that values are computed from; `loaded` has the access of each load (LinearProgram.loaded).

    What only orders (the loop around a store) is not followed. Without `through_local` what other threads stored to
    LOCAL memory does not count, only where it is read.
    """
    data = Data()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value in data.values:
            continue
        data.values.add(value)
        todo += value.sources
        if value in loaded:
            for access in follow_stores(loaded[value], through_local):
                data.accesses.add(access)
                todo += access.addressing
                if access.is_store:
                    todo.append(access.value)
    return data


def follow_stores(access: Access, through_local: bool = True) -> list[Access]:
    """Returns an access, the stores that it follows, the stores that these follow, and so on."""
    found: dict[Access, None] = {}
    todo = [access]
    while todo:
        access = todo.pop()
        if access in found:
            continue
        found[access] = None
        if through_local or access.buffer.space != "local":
            todo += access.follows
    return list(found)


# what facts are about; registers are not
_SPACES: dict[str, Literal["GLOBAL", "LOCAL"]] = {"global": "GLOBAL", "local": "LOCAL"}


@dataclass
class Use:
    """One load or store, with what its addresses reach (None: undecided) and its line of the source."""

    access: Access
    source_line: int | None
    loaded: Mapping[Value, Access]
    reach: Reach | None = None

    @property
    def sizes(self) -> dict[Value, int]:
        """The loops and threads around it with their trip counts."""
        return {loop: loop.trips for loop in self.access.loops}


def find_accesses(program: LinearProgram, source: str) -> tuple[model.Access, ...]:
    """Returns the facts about each GLOBAL and LOCAL buffer of a linear program, loads and stores apart."""
    lines = find_source_lines(program, source)
    groups: dict[tuple[Buffer, bool], list[Use]] = {}
    for access in program.accesses:
        if access.buffer.space not in _SPACES or access.buffer.size < 0:
            continue
        use = Use(access, lines.get(access), program.loaded)
        if not access.symbolic:
            with suppress(Undecided):
                use.reach = find_reach(access.index, access.gate, use.sizes, access.width)
        groups.setdefault((access.buffer, access.is_store), []).append(use)
    return tuple(describe(buffer, group) for (buffer, _), group in groups.items())


# *** facts


def describe(buffer: Buffer, uses: list[Use]) -> model.Access:
    """Sums up the loads, or the stores, of one buffer."""
    size, is_store = buffer.size, uses[0].access.is_store
    bounds = [find_bounds(use, size) for use in uses]
    lost = [find_lost(use) for use in uses]
    known = [b for b in bounds if b is not None]
    outside = [i for i, b in enumerate(bounds) if b is not None and (b[0] < 0 or b[1] >= size)]
    losing = [i for i, loops in enumerate(lost) if loops]
    # what is shown is the worst one
    worst = next(iter(outside + losing), 0)
    lowest, highest = None, None
    if outside or len(known) == len(bounds):
        lowest, highest = min(low for low, _ in known), max(high for _, high in known)
    written = count_all(uses, size)
    use = uses[worst]
    access = use.access
    names: dict[Value, str] = {loop: loop.name for other in uses for loop in other.access.loops}
    return model.Access(
        buffer=buffer.name,
        kind="store" if is_store else "load",
        addrspace=_SPACES[buffer.space],
        size=size,
        lowest=lowest,
        highest=highest,
        address=write_expression(access.index, names),
        gate=None if access.gate is None else write_expression(access.gate, names),
        source_line=use.source_line,
        lost=tuple(describe_loop(loop) for loop in lost[worst]),
        stores=written.stores,
        elements=written.elements,
        missing=written.missing,
    )


def count_all(uses: list[Use], size: int) -> Written:
    reaches = [use.reach for use in uses if use.access.is_store and use.reach is not None]
    if len(reaches) < len(uses):
        return Written(None, None, None)
    return count_written(reaches, size)


def find_bounds(use: Use, size: int) -> tuple[int, int] | None:
    """Returns the lowest and highest element that is accessed; None if it is not known whether it leaves the buffer."""
    if use.reach is not None:
        # without a step nothing is accessed
        return (use.reach.lowest, use.reach.highest) if use.reach.steps else (0, 0)
    lowest, highest = bound_address(use.access.index, use.access.gate)
    highest += use.access.width - 1
    if lowest < 0 or highest >= size:
        return None
    return lowest, highest


def find_lost(use: Use) -> tuple[Loop, ...]:
    """Returns the loops and threads whose steps all store to the same address, each another value: the last one stays.

    A loop counts where neither address nor gate uses it and the value does. LOCAL memory belongs to one group of
    threads and is used again in each step of a loop: there only the threads of the group count.
    """
    access = use.access
    if not access.is_store or (use.reach is not None and not use.reach.steps):
        return ()
    candidates = [loop for loop in access.loops if loop.trips > 1]
    if access.buffer.space == "local":
        candidates = [loop for loop in candidates if loop.op == "thread" and loop.name.startswith("l")]
    used = find_data(*access.addressing, loaded=use.loaded).values
    unused = [loop for loop in candidates if loop not in used]
    pinned = [loop for loop in find_pinned(use) if loop in candidates]
    if not unused and not pinned:
        return ()
    stored = find_data(access.value, loaded=use.loaded)
    # what is added to the buffer step by step is not lost
    if any(other.buffer is access.buffer for other in stored.accesses):
        return ()
    lost = {loop for loop in unused if loop in stored.values}
    if pinned:
        own = find_data(access.value, loaded=use.loaded, through_local=False).values
        lost |= {loop for loop in pinned if loop in own}
    return tuple(loop for loop in candidates if loop in lost)


def find_pinned(use: Use) -> list[Loop]:
    """Returns the threads of which the gate lets the first alone through, to an address that they do not change.

    tinygrad puts such a gate on a store that lacks the range of some threads of a group. After a GROUP reduce that is
    right: what the first stores was brought together in LOCAL memory. A value that each thread has of its own is lost.
    """
    access = use.access
    if access.gate is None:
        return []
    address = find_data(access.index, loaded=use.loaded).values
    pinned: list[Loop] = []
    for condition in split_conditions(access.gate):
        compared = find_data(condition, loaded=use.loaded).values
        threads = [loop for loop in access.loops if loop in compared]
        if len(threads) != 1 or threads[0].op != "thread" or threads[0] in address:
            continue
        try:
            steps = find_reach(threads[0], condition, {threads[0]: threads[0].trips}, 1)
        except Undecided:
            continue
        if steps.steps == 1 and steps.highest == 0:
            pinned.append(threads[0])
    return pinned


def describe_loop(loop: Loop) -> model.Loop:
    return model.Loop(loop.name, loop.trips, _find_kind(loop))


def _find_kind(loop: Loop) -> LoopKind:
    if loop.op == "loop":
        return "loop"
    # from 0.13 on the CPU's threads are a variable
    if loop.op == "thread" or loop.name == "core_id":
        return "thread"
    return "launch"


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
    """Returns the store that initialises an accumulator in each step of the loop that adds to it, None if the program
    has no such store. It is in the loop, the sum begins with it, and both are at the same place in each step."""
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
