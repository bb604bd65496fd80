"""What a kernel's loads and stores do to its buffers, read off its linear program: facts for `lint`. Runs in the child.

Every fact holds: a bound is one that no step of any loop or thread leaves, an address outside of a buffer is reached by
a step, a loop that is called lost is one whose steps store to the same address. What cannot be decided is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tinygrad.dtype import AddrSpace, ImageDType, PtrDType
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, axis_letters, range_str

from vmapdbg.child.program.bounds import bound_address
from vmapdbg.child.program.dependence import find_data, find_memory
from vmapdbg.child.program.expressions import Undecided, write_expression
from vmapdbg.child.program.reach import Reach, Written, count_written, find_reach, split_conditions
from vmapdbg.model import capture as model


@dataclass
class Use:
    """One LOAD or STORE of the linear program. `loops` are the loops and threads around it with their trip counts."""

    uop: UOp
    index: UOp
    buffer: UOp
    loops: dict[UOp, int]
    # a loop has a trip count that depends on a variable
    symbolic: bool
    source_line: int | None
    reach: Reach | None = None

    @property
    def is_store(self) -> bool:
        return self.uop.op is Ops.STORE

    @property
    def address(self) -> UOp:
        return self.index.src[1]

    @property
    def gate(self) -> UOp | None:
        return self.index.src[2] if len(self.index.src) > 2 else None

    @property
    def width(self) -> int:
        return (self.uop.src[1] if self.is_store else self.uop).dtype.count


def find_accesses(uops: Sequence[UOp], source: str, launched_by: frozenset[str]) -> tuple[model.Access, ...]:
    """Returns the facts about each GLOBAL and LOCAL buffer of a linear program, loads and stores apart.

    `launched_by` names the variables whose values a schedule goes through by launching the kernel again and again.
    """
    uses = list(find_uses(uops, source, launched_by))
    for use in uses:
        if use.symbolic:
            continue
        with suppress(Undecided):
            use.reach = find_reach(use.address, use.gate, use.loops, use.width)
    groups: dict[tuple[UOp, bool], list[Use]] = {}
    for use in uses:
        groups.setdefault((use.buffer, use.is_store), []).append(use)
    return tuple(describe(buffer, group) for (buffer, _), group in groups.items())


def find_uses(uops: Sequence[UOp], source: str, launched_by: frozenset[str]) -> Iterable[Use]:
    threads = {u: int(u.src[0].vmax) for u in uops if u.op is Ops.SPECIAL}
    for u in uops:
        if u.op is Ops.DEFINE_VAR and u.arg[1] == 0 and (u.arg[0] == "core_id" or u.arg[0] in launched_by):
            threads[u] = int(u.arg[2]) + 1
    lines = find_source_lines(uops, source)
    loops: list[UOp] = []
    for u in uops:
        if u.op is Ops.RANGE:
            loops.append(u)
        elif u.op is Ops.END:
            loops.pop()
        elif u.op in {Ops.LOAD, Ops.STORE} and (index := find_index(u.src[0])) is not None:
            buffer = find_buffer(index)
            if buffer is None:
                continue
            around = {**threads, **{loop: int(loop.src[0].vmax) for loop in loops}}
            symbolic = any(loop.src[0].vmin != loop.src[0].vmax for loop in [*loops, *threads] if loop.src)
            yield Use(u, index, buffer, around, symbolic, lines.get(u))


def find_open_loops(uops: Sequence[UOp]) -> tuple[str, ...]:
    """Returns the loops of a linear program that nothing ends."""
    ended = {u.src[1] for u in uops if u.op is Ops.END}
    return tuple(name_loop(u) for u in uops if u.op is Ops.RANGE and u not in ended)


def find_index(pointer: UOp) -> UOp | None:
    while pointer.op is Ops.CAST:
        pointer = pointer.src[0]
    return pointer if pointer.op is Ops.INDEX else None


def find_buffer(index: UOp) -> UOp | None:
    """Returns the GLOBAL or LOCAL buffer that is indexed; None for registers and images."""
    buffer = find_memory(index.src[0])
    if buffer.op not in {Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL} or not isinstance(buffer.dtype, PtrDType):
        return None
    return None if isinstance(buffer.dtype, ImageDType) or buffer.ptrdtype.size < 0 else buffer


def find_source_lines(uops: Sequence[UOp], source: str) -> dict[UOp, int]:
    """Returns the line of the source (from 1) of each STORE, and of each LOAD that has a line of its own.

    Empty where the lines cannot be told apart: a renderer that writes a store in another way.
    """
    lines = source.split("\n")
    found: dict[UOp, int] = {}
    wanted = [
        ([u for u in uops if u.op is Ops.STORE], re.compile(r"\s*(\*\(.*\) = |(data|temp|acc|buf)\w*\[.*\] = )")),
        ([u for u in uops if u.op is Ops.LOAD and _leaves_register(u)], re.compile(r"\s*[\w<> ]+ val\d+ = ")),
    ]
    for wanted_uops, pattern in wanted:
        matching = [i for i, line in enumerate(lines, 1) if pattern.match(line)]
        if len(matching) == len(wanted_uops):
            found |= dict(zip(wanted_uops, matching, strict=True))
    return found


def _leaves_register(load: UOp) -> bool:
    index = find_index(load.src[0])
    return index is None or not (isinstance(index.dtype, PtrDType) and index.dtype.addrspace == AddrSpace.REG)


# *** facts


def describe(buffer: UOp, uses: list[Use]) -> model.Access:
    """Sums up the loads, or the stores, of one buffer."""
    size = buffer.ptrdtype.size
    bounds = [find_bounds(use, size) for use in uses]
    outside = next((i for i, b in enumerate(bounds) if b is not None and (b[0] < 0 or b[1] >= size)), None)
    lost = [find_lost(use) for use in uses] if uses[0].is_store else [() for _ in uses]
    worst = next((i for i, names in enumerate(lost) if names), 0)
    if outside is not None:
        worst = outside
    known = [b for b in bounds if b is not None]
    decided = outside is not None or len(known) == len(bounds)
    written = count_all(uses, size)
    use = uses[worst]
    names = {loop: name_loop(loop) for other in uses for loop in other.loops}
    return model.Access(
        buffer=name_buffer(buffer),
        kind="store" if use.is_store else "load",
        addrspace="GLOBAL" if buffer.op is Ops.DEFINE_GLOBAL else "LOCAL",
        size=size,
        lowest=min((b[0] for b in known), default=0) if decided else None,
        highest=max((b[1] for b in known), default=0) if decided else None,
        address=write_expression(use.address, names),
        gate=None if use.gate is None else write_expression(use.gate, names),
        source_line=use.source_line,
        lost=tuple(describe_loop(loop, use.loops[loop]) for loop in lost[worst]),
        stores=written.stores,
        elements=written.elements,
        missing=written.missing,
    )


def count_all(uses: list[Use], size: int) -> Written:
    reaches = [use.reach for use in uses if use.is_store and use.reach is not None]
    if len(reaches) < len(uses):
        return Written(None, None, None)
    return count_written(reaches, size)


def find_bounds(use: Use, size: int) -> tuple[int, int] | None:
    """Returns the lowest and highest element that is accessed; None where it might leave the buffer, and might not."""
    if use.reach is not None:
        return (use.reach.lowest, use.reach.highest) if use.reach.steps else (0, 0)
    lowest, highest = bound_address(use.address, use.gate)
    highest += use.width - 1
    return (lowest, highest) if lowest >= 0 and highest < size else None


def find_lost(use: Use) -> tuple[UOp, ...]:
    """Returns the loops and threads whose steps all store to the same address, each another value: the last one stays.

    A loop counts where neither address nor gate uses it and the value does. LOCAL memory belongs to one group of
    threads and is used again in each step of a loop: there only the threads of the group count.
    """
    if use.reach is not None and not use.reach.steps:
        return ()
    candidates = [loop for loop, size in use.loops.items() if size > 1]
    if use.buffer.op is Ops.DEFINE_LOCAL:
        candidates = [loop for loop in candidates if loop.op is Ops.SPECIAL and loop.arg.startswith("l")]
    used = find_data(*use.index.src[1:])
    unused = [loop for loop in candidates if loop not in used]
    pinned = [loop for loop in find_pinned(use) if loop in candidates]
    if not unused and not pinned:
        return ()
    value = use.uop.src[1]
    # what is added to the buffer step by step is not lost
    if any(u.op is Ops.INDEX and find_memory(u.src[0]) is use.buffer for u in find_data(value)):
        return ()
    lost = {loop for loop in unused if loop in find_data(value)}
    lost |= {loop for loop in pinned if loop in find_data(value, through_local=False)}
    return tuple(loop for loop in candidates if loop in lost)


def find_pinned(use: Use) -> list[UOp]:
    """Returns the threads of which the gate lets the first alone through, to an address that they do not change.

    tinygrad puts such a gate on a store that lacks the range of some threads of a group. After a GROUP reduce that is
    right: what the first stores was brought together in LOCAL memory. A value that each thread has of its own is lost.
    """
    if use.gate is None:
        return []
    address = find_data(use.address)
    pinned = []
    for condition in split_conditions(use.gate):
        threads = [loop for loop in use.loops if loop in find_data(condition)]
        if len(threads) != 1 or threads[0].op is not Ops.SPECIAL or threads[0] in address:
            continue
        try:
            steps = find_reach(threads[0], condition, {threads[0]: use.loops[threads[0]]}, 1)
        except Undecided:
            continue
        if steps.steps == 1 and steps.highest == 0:
            pinned.append(threads[0])
    return pinned


# *** names, as the source has them


def name_loop(loop: UOp) -> str:
    if loop.op is Ops.RANGE:
        return f"{axis_letters.get(loop.arg[-1], '')}idx{range_str(loop)}"
    return str(loop.arg[0]) if loop.op is Ops.DEFINE_VAR else str(loop.arg)


def describe_loop(loop: UOp, size: int) -> model.Loop:
    kind = "loop" if loop.op is Ops.RANGE else "thread"
    if loop.op is Ops.DEFINE_VAR and loop.arg[0] != "core_id":
        kind = "launch"
    return model.Loop(name_loop(loop), size, kind)


def name_buffer(buffer: UOp) -> str:
    if buffer.op is Ops.DEFINE_GLOBAL:
        return f"data{buffer.arg}_{buffer.ptrdtype.size}"
    return f"temp{buffer.arg}"
