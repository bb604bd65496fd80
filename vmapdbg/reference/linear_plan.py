"""How a linear program is run: which of its loops certainly carry something from step to step."""

from __future__ import annotations

from vmapdbg.reference.linear import Block, LinearProgram


def find_stored(program: LinearProgram) -> set[int]:
    """Returns the memories that are written."""
    return {one.arg for one in program.instructions if one.op == "store"}


def find_accessed(program: LinearProgram, block: Block) -> tuple[set[int], set[int]]:
    """Returns the memories that a block reads or writes, and those that it writes."""
    inside = [program.instructions[position] for position in block.list_instructions()]
    stored = {one.arg for one in inside if one.op == "store"}
    return stored | {one.arg for one in inside if one.op == "load"}, stored


def find_carrying(program: LinearProgram, tree: Block) -> set[int]:
    """Returns the loops that have to run step after step: where a register is read before it is written, or where the
    threads of a group use memory together."""
    found: set[int] = set()
    for part in tree.parts:
        if isinstance(part, Block):
            assert part.opened_by is not None
            found |= find_carrying(program, part)
            if program.instructions[part.opened_by].op == "loop" and _carries(program, part):
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
