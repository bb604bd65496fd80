"""Races of a linear program: two threads access the same element, at least one of them stores, and no barrier is
between. All are certain: addresses are computed. If the steps are too many, a part of them is: the first steps of the
longest loops, and the first threads, which are neighbours. Runs in the child, and where it is compared."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vmapdbg.child.program import linear
from vmapdbg.child.program.accesses import find_data, find_source_lines
from vmapdbg.child.program.linear import CORE, LinearProgram, MemoryAccess, ProgramLoop, UOp, Value
from vmapdbg.child.program.linear_reader import read_linear
from vmapdbg.child.program.reach import MOST_STEPS, Integers, evaluate_sums, is_injective
from vmapdbg.child.program.uops import find_memory, find_space, is_variable, loop_name
from vmapdbg.model import capture as model
from vmapdbg.model.schedule_index import group_equal
from vmapdbg.reference.graph import Unknown

_FULL_PAIRS = 16  # more pairs of accesses share the steps that these may take


class _Pair(NamedTuple):
    """Two accesses without a barrier between: `first`, then `second`, in the next step of the loop `repeated` if that
    is not None. Both are in the same step of the loops `common`."""

    first: MemoryAccess
    second: MemoryAccess
    common: tuple[ProgramLoop, ...]
    repeated: ProgramLoop | None


def find_races(program: LinearProgram, source: str) -> tuple[tuple[model.Race, ...], str | None]:
    """Returns the first race of each GLOBAL and LOCAL buffer, and why it is not known whether there are others (None:
    there are none)."""
    found: dict[str, model.Race] = {}
    unknown: str | None = None
    pairs = _list_pairs(program)
    most = _FULL_PAIRS * MOST_STEPS // max(_FULL_PAIRS, len(pairs))
    for pair in pairs:
        buffer = pair.first.buffer
        if buffer.name in found:
            continue
        try:
            conflict, is_sample = _find_conflict(program, pair, most)
        except Unknown as error:
            unknown = unknown or str(error)
            continue
        if conflict is not None:
            element, threads = conflict
            found[buffer.name] = model.Race(
                buffer=buffer.name,
                kinds=(pair.first.kind, pair.second.kind),
                element=element,
                threads=threads,
                repeated=None if pair.repeated is None else pair.repeated.name,
                source_line=find_source_lines(program, source).get(pair.second),
            )
        elif is_sample:
            unknown = unknown or "it has too many steps: the first of them have no race"
    return tuple(found.values()), unknown


def may_race(uops: Sequence[UOp], most: int) -> bool:
    """Whether it takes a launch to tell if the threads of a program race: an address is loaded, or has a variable. A
    program of more than `most` ops is not read: it may."""
    if not any(u.op.name == "SPECIAL" or (is_variable(u) and loop_name(u) == CORE) for u in uops):
        return False
    memories: dict[str, set[UOp | None]] = {"LOAD": set(), "STORE": set()}
    of_loads: set[UOp] = set()
    is_scattered = False
    for u in uops:
        if u.op.name == "LOAD" or not of_loads.isdisjoint(u.src):
            of_loads.add(u)
        memory = find_memory(u.src[0]) if u.op.name in memories else None
        if memory is not None and find_space(memory) != "register":
            memories[u.op.name].add(memory)
            is_scattered |= u.op.name == "STORE" and u.src[0] in of_loads
    # reading a program takes longer than this look at it
    if not is_scattered and memories["LOAD"].isdisjoint(memories["STORE"]):
        return False
    if len(uops) > most:
        return True
    program = read_linear(uops)
    return any(_is_unknown(program, access) for pair in _list_pairs(program) for access in (pair.first, pair.second))


def _is_unknown(program: LinearProgram, access: MemoryAccess) -> bool:
    loops = {*program.loops, *program.threads}
    is_symbolic = any(loop.symbolic for loop in access.loops)
    return is_symbolic or linear.find_unknown(linear.walk(access.addressing, loops), loops) is not None


def _list_pairs(program: LinearProgram) -> list[_Pair]:
    """Returns the pairs of a store and another access of one buffer that threads may make at the same time. Threads of
    different groups have no barrier: GLOBAL memory that a kernel stores and loads is shared by all of them. Two threads
    make one store at a loaded address, too; if no address of a store is loaded, VD101 is about that."""
    found: list[_Pair] = []
    order = program.order
    places = {step: place for place, step in enumerate(order) if isinstance(step, MemoryAccess)}
    ends = {step: place for place, step in enumerate(order) if isinstance(step, ProgramLoop)}
    groups = group_equal(places, lambda access: access.buffer)
    scattered = [(store, store) for store in places if store.is_store and _is_scattered(program, store)]
    pairs = itertools.chain.from_iterable(itertools.combinations(group, 2) for group in groups)
    for first, second in itertools.chain(pairs, scattered):
        if not (first.is_store or second.is_store) or not (threads := _list_threads(program, first)):
            continue
        if first.buffer.space == "global" and not is_injective([first, second], threads):
            found.append(_Pair(first, second, (), None))
        if first.buffer.space != "local":
            continue
        common = tuple(loop for loop in first.loops if loop in second.loops and loop.op == "loop")
        start, end = places[first], places[second]
        if "barrier" not in order[start:end]:
            found.append(_Pair(first, second, common, None))
        for depth, loop in enumerate(common):
            around = order[end : ends[loop]] + order[order.index(loop) : start]
            if loop.trips > 1 and "barrier" not in around:
                found.append(_Pair(second, first, common[:depth], loop))
    return found


def _is_scattered(program: LinearProgram, store: MemoryAccess) -> bool:
    """Whether a store to GLOBAL memory has a loaded address, and a value that may differ between its threads."""
    is_loaded = any(part.op == "load" or part.compute is not None for part in linear.walk([store.index], ()))
    if store.buffer.space != "global" or not is_loaded:
        return False
    return not find_data(program, store.value)[0].isdisjoint(program.threads)


def _list_threads(program: LinearProgram, access: MemoryAccess) -> list[ProgramLoop]:
    """Returns the threads that share the memory of an access: of a group, or of a launch for GLOBAL memory."""
    threads = [loop for loop in program.threads if loop.is_thread and loop.trips > 1]
    return threads if access.buffer.space == "global" else [loop for loop in threads if loop.name.startswith("l")]


def _find_conflict(program: LinearProgram, pair: _Pair, most: int) -> tuple[tuple[int, tuple[int, int]] | None, bool]:
    """Returns an element that two threads access, and the two, counted over the threads of a group (of a launch, for
    GLOBAL memory); None if each element belongs to one thread. Then whether only a part of more than the `most` steps
    was computed. Raises Unknown."""
    import numpy as np

    threads = _list_threads(program, pair.first)
    groups = [loop for loop in program.threads if loop not in threads]
    shared = [*groups, *pair.common, *filter(None, [pair.repeated])]
    addressing = [*pair.first.addressing, *pair.second.addressing]
    used = set(linear.walk(addressing, {*program.loops, *program.threads}))
    # what both are in the same step of counts only if an address uses it
    shared = [loop for loop in shared if loop in used]
    steps, others_steps = (_choose_steps(access, [*threads, *shared], most) for access in (pair.first, pair.second))
    is_sample = any(size < loop.trips for chosen in (steps, others_steps) for loop, size in chosen.items())
    places, least, last = _list_owners(pair, pair.first, threads, shared, steps)
    others, others_least, others_last = _list_owners(pair, pair.second, threads, shared, others_steps)
    both, at, others_at = np.intersect1d(places, others, return_indices=True)
    for mine, theirs in ((least[at], others_last[others_at]), (last[at], others_least[others_at])):
        different = np.flatnonzero(mine != theirs)
        if different.size:
            first = different[0]
            return (int(both[first] % pair.first.buffer.size), (int(mine[first]), int(theirs[first]))), is_sample
    return None, is_sample


def _choose_steps(access: MemoryAccess, shared: Sequence[ProgramLoop], most: int) -> dict[ProgramLoop, int]:
    """Returns the loops around an access that are `shared` or decide what it accesses, with how many of their first
    steps to compute: together `most` elements. Raises Unknown."""
    sizes: dict[Value, int] = {loop: loop.trips for loop in access.loops}
    _, terms = linear.split_terms(access.index)
    parts = [*linear.split_conditions(access.gate), *(value for value, _ in terms)]
    used = frozenset[Value]().union(*(linear.find_loops(part, sizes) for part in parts))
    steps = {loop: loop.trips for loop in access.loops if loop in used or loop in shared}
    if any(loop.symbolic for loop in steps):
        raise Unknown("a variable decides how often a loop runs")
    while math.prod(steps.values()) * access.width > max(most, access.width):
        longest = max(steps, key=steps.__getitem__)
        steps[longest] = (steps[longest] + 1) // 2
    return steps


def _list_owners(
    pair: _Pair,
    access: MemoryAccess,
    threads: Sequence[ProgramLoop],
    shared: Sequence[ProgramLoop],
    steps: Mapping[ProgramLoop, int],
) -> tuple[Integers, Integers, Integers]:
    """Returns the places that an access reaches (element + size of the buffer * step of the `shared` loops), and the
    first and last thread that reaches each. `steps` has how many steps of each loop are computed. The first access
    counts its step of `repeated` one more. Raises Unknown."""
    import numpy as np

    base, terms = linear.split_terms(access.index)
    conditions = linear.split_conditions(access.gate)
    loops: dict[Value, int] = {**steps}
    factor = access.buffer.size
    for loop in shared:
        if loop is pair.repeated and access is pair.first:
            base += factor
        terms.append((loop, factor))
        factor *= loop.trips + 1
    count = 1
    for thread in threads:
        terms.append((thread, factor * count))
        count *= thread.trips
    sums = np.concatenate([np.zeros(0, np.int64), *evaluate_sums(terms, conditions, loops)]) + base
    wide = np.add.outer(sums, np.arange(access.width)).ravel()
    places, owners = wide % factor, wide // factor
    order = np.lexsort((owners, places))
    places, owners = places[order], owners[order]
    found, starts = np.unique(places, return_index=True)
    return found, owners[starts], owners[np.append(starts[1:], len(owners)) - 1]
