"""How a linear program is run: which of its loops certainly carry something from step to step, and what in them does
not; how long it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vmapdbg.reference.linear import Block, LinearProgram


def find_stored(program: LinearProgram) -> set[int]:
    """Returns the memories that are written."""
    return {one.arg for one in program.instructions if one.op == "store"}


def find_loaded(program: LinearProgram) -> set[int]:
    """Returns the memories that are read."""
    return {one.arg for one in program.instructions if one.op == "load"}


def find_accessed(program: LinearProgram, block: Block) -> tuple[set[int], set[int]]:
    """Returns the memories that a block reads or writes, and those that it writes."""
    inside = [program.instructions[position] for position in block.list_instructions()]
    stored = {one.arg for one in inside if one.op == "store"}
    return stored | {one.arg for one in inside if one.op == "load"}, stored


# *** loops that carry something


def find_carrying(program: LinearProgram, tree: Block) -> set[int]:
    """Returns the loops that have to run step after step: where a register is read before it is written, or where the
    threads of a group use memory together."""
    found: set[int] = set()
    for part in tree.parts:
        if isinstance(part, Block):
            found |= find_carrying(program, part)
            if part.opened_by is not None and _carries(program, part):
                found.add(part.opened_by)
    return found


def _carries(program: LinearProgram, body: Block) -> bool:
    inside = [program.instructions[position] for position in body.list_instructions()]
    if any(one.op == "barrier" for one in inside):
        return True
    _, stored = find_accessed(program, body)
    if any(program.memories[memory].space == "group" for memory in stored):
        return True
    first: dict[int, str] = {}
    for one in inside:
        if one.op in {"load", "store"}:
            first.setdefault(one.arg, one.op)
    carried = {memory for memory, op in first.items() if op == "load"} & stored
    return any(program.memories[memory].space == "register" for memory in carried)


# *** what in such a loop does not depend on what it carries


@dataclass(frozen=True)
class Split:
    """The body of a loop in two: `free` instructions, which give the same in whatever order the steps run, and the
    others, which are `bound`. `passed` are the free ones whose values the others use."""

    free: tuple[int, ...]
    bound: tuple[int, ...]
    passed: tuple[int, ...]


def split_body(program: LinearProgram, body: Block) -> Split | None:
    """Returns the body of a loop in two, None where it has blocks of its own."""
    stored = find_stored(program)
    bound: set[int] = set()
    inside: list[int] = []
    for part in body.parts:
        if isinstance(part, Block):
            return None
        inside.append(part)
        one = program.instructions[part]
        is_state = one.op in {"store", "barrier"} or (one.op == "load" and one.arg in stored)
        if is_state or not bound.isdisjoint(one.src):
            bound.add(part)
    used = {source for position in bound for source in program.instructions[position].src}
    free = tuple(position for position in inside if position not in bound)
    return Split(free, tuple(sorted(bound)), tuple(position for position in free if position in used))


# *** how long it takes


def count_numbers(program: LinearProgram, tree: Block) -> int | None:
    """Returns how many numbers a program computes in all; None where that depends on what it reads."""
    total = 1
    for one in program.instructions:
        if one.op == "thread":
            total *= one.arg[1]
    own = _count(program, tree)
    return None if own is None else total * own


def _count(program: LinearProgram, block: Block) -> int | None:
    total = 0
    for part in block.parts:
        if not isinstance(part, Block):
            total += program.instructions[part].lanes
            continue
        inside = _count(program, part)
        steps = count_steps(program, part)
        if inside is None or steps is None:
            return None
        total += steps * inside
    return total


def count_steps(program: LinearProgram, block: Block) -> int | None:
    """Returns how often a loop runs: 1 for a block that is none, None where that is no constant."""
    if block.opened_by is None or program.instructions[block.opened_by].op == "if":
        return 1
    end = program.instructions[program.instructions[block.opened_by].src[0]]
    return int(end.arg) if end.op == "const" else None


# *** what is needed for some elements


def find_needed(program: LinearProgram, positions: Iterable[int]) -> set[int]:
    """Returns the instructions that values are made from, with themselves."""
    found: set[int] = set()
    stack = list(positions)
    while stack:
        position = stack.pop()
        if position not in found:
            found.add(position)
            stack += program.instructions[position].src
    return found


def keep_parts(block: Block, kept: set[int]) -> Block:
    """Returns a block with those instructions alone, and the blocks around them."""
    made = Block(block.opened_by)
    for part in block.parts:
        if isinstance(part, Block):
            inner = keep_parts(part, kept)
            if inner.parts:
                made.parts.append(inner)
        elif part in kept:
            made.parts.append(part)
    return made
