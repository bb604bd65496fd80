"""Races of a linear program, in the child: two threads access the same element, at least one of them stores, and no
barrier is between. All are certain: the addresses of all threads are computed. What cannot be computed is no race."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from vmapdbg.child.program import linear
from vmapdbg.child.program.accesses import find_source_lines
from vmapdbg.child.program.linear import LinearProgram, MemoryAccess, ProgramLoop, Value
from vmapdbg.child.program.reach import MOST_STEPS, Integers, evaluate_sums
from vmapdbg.model import capture as model
from vmapdbg.model.schedule_index import group_equal
from vmapdbg.reference.graph import Unknown


class _Pair(NamedTuple):
    """Two accesses without a barrier between: `first`, then `second`, in the next step of the loop `repeated` if that
    is not None. Both are in the same step of the loops `common`."""

    first: MemoryAccess
    second: MemoryAccess
    common: tuple[ProgramLoop, ...]
    repeated: ProgramLoop | None


def find_races(program: LinearProgram, source: str) -> tuple[model.Race, ...]:
    """Returns the first race of each GLOBAL and LOCAL buffer."""
    found: dict[str, model.Race] = {}
    for pair in _list_pairs(program):
        buffer = pair.first.buffer
        if buffer.name in found:
            continue
        with suppress(Unknown):
            conflict = _find_conflict(program, pair)
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
    return tuple(found.values())


def _list_pairs(program: LinearProgram) -> list[_Pair]:
    """Returns the pairs of a store and another access of one buffer that threads may make at the same time. Threads of
    different groups have no barrier: GLOBAL memory that a kernel stores and loads is shared by all of them."""
    found: list[_Pair] = []
    order = program.order
    places = {step: place for place, step in enumerate(order) if isinstance(step, MemoryAccess)}
    ends = {step: place for place, step in enumerate(order) if isinstance(step, ProgramLoop)}
    groups = group_equal(places, lambda access: access.buffer)
    for first, second in itertools.chain.from_iterable(itertools.combinations(group, 2) for group in groups):
        if not (first.is_store or second.is_store):
            continue
        if first.buffer.space == "global":
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


def _find_conflict(program: LinearProgram, pair: _Pair) -> tuple[int, tuple[int, int]] | None:
    """Returns an element that two threads access, and the two, counted over the threads of a group (of a launch, for
    GLOBAL memory); None if each element belongs to one thread. Raises Unknown."""
    is_local = pair.first.buffer.space == "local"
    threads = [loop for loop in program.threads if loop.is_thread and (loop.name.startswith("l") or not is_local)]
    if not threads:
        return None
    import numpy as np

    groups = [loop for loop in program.threads if loop not in threads]
    shared = [*groups, *pair.common, *filter(None, [pair.repeated])]
    addressing = [*pair.first.addressing, *pair.second.addressing]
    used = set(linear.walk(addressing, {*program.loops, *program.threads}))
    # what both are in the same step of counts only if an address uses it
    shared = [loop for loop in shared if loop in used]
    places, least, most = _list_owners(pair, pair.first, threads, shared)
    others, others_least, others_most = _list_owners(pair, pair.second, threads, shared)
    both, at, others_at = np.intersect1d(places, others, return_indices=True)
    for mine, theirs in ((least[at], others_most[others_at]), (most[at], others_least[others_at])):
        different = np.flatnonzero(mine != theirs)
        if different.size:
            first = different[0]
            return int(both[first] % pair.first.buffer.size), (int(mine[first]), int(theirs[first]))
    return None


def _list_owners(
    pair: _Pair, access: MemoryAccess, threads: Sequence[ProgramLoop], shared: Sequence[ProgramLoop]
) -> tuple[Integers, Integers, Integers]:
    """Returns the places that an access reaches (element + size of the buffer * step of the `shared` loops), and the
    first and last thread that reaches each. The first access counts its step of `repeated` one more. Raises Unknown."""
    import numpy as np

    base, terms = linear.split_terms(access.index)
    conditions = linear.split_conditions(access.gate)
    sizes: dict[Value, int] = {loop: loop.trips for loop in access.loops}
    parts = [*conditions, *(value for value, _ in terms)]
    used = frozenset[Value]().union(*(linear.find_loops(part, sizes) for part in parts))
    around = [loop for loop in access.loops if loop in used or loop in threads or loop in shared]
    loops: dict[Value, int] = {loop: loop.trips for loop in around}
    if any(loop.symbolic for loop in around) or math.prod(loops.values()) * access.width > MOST_STEPS:
        raise Unknown("too many steps")
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
