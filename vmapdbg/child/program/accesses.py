"""What a kernel's loads and stores do to its buffers, read off its linear program: facts for `lint`. Runs in the child.

Every fact holds: a bound is one that no step of any loop or thread leaves, an address outside of a buffer is reached by
a step, a loop that is called lost is one whose steps store to the same address. What cannot be decided is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from vmapdbg.child.program.bounds import bound_address
from vmapdbg.child.program.dependence import find_data
from vmapdbg.child.program.expressions import Undecided, write_expression
from vmapdbg.child.program.linear import Access, Buffer, LinearProgram, Loop, Value
from vmapdbg.child.program.reach import Reach, Written, count_written, find_reach, split_conditions
from vmapdbg.child.program.source_lines import find_source_lines
from vmapdbg.model import capture as model
from vmapdbg.model.vocabulary import LoopKind

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
    """Returns the lowest and highest element that is accessed; None where it might leave the buffer, and might not."""
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
