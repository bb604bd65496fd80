"""A linear program as code generation made it, in a form that belongs to no release of tinygrad: what
`vmapdbg.reference.run_linear` runs.

Instructions stand in the order in which they are executed; `src` has the positions of those whose values are used. A
value has one number, or several lanes. Each memory is flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vmapdbg.reference.graph import Unknown

CONTROL_OPS = {
    "loop": "None; its source says how often it runs, its value counts the steps from 0",
    "end": "the position of the loop that ends",
    "if": "None; its source is the condition",
    "endif": "None",
    "barrier": "None: the threads of a group wait for each other",
}
"""Op -> what its `arg` says."""
VALUE_OPS = {
    "const": "one number",
    "thread": "(whether it is one of a group, how many there are): the number of the thread",
    "load": "the memory; sources: the first element, and under a condition what is taken where it fails, and it",
    "store": "the memory; sources: the first element, the value, and where there is one the condition",
    "lanes": "the lanes of the source that are taken",
    "pack": "None: the lanes of all sources, one after the other",
    "cast": "None",
    "bitcast": "None",
}
"""Op -> what its `arg` says. What is in none of the two is arithmetic, with no `arg`: `arithmetic.FUNCTIONS`."""

Space = Literal["argument", "register", "group"]


@dataclass(frozen=True)
class Instruction:
    """One op. `dtype` is a name of `vmapdbg.values.numbers`; what has no value has `bool`."""

    op: str
    dtype: str
    lanes: int = 1
    src: tuple[int, ...] = ()
    arg: Any = None


@dataclass(frozen=True)
class Memory:
    """Memory of a program: an argument, by its number; registers, which each thread has for itself; or what the threads
    of a group share. `size` is in elements; that of an argument is known when it runs."""

    space: Space
    dtype: str
    size: int = 0
    argument: int | None = None


@dataclass
class LinearProgram:
    """All of a program; an instruction names a memory by its position."""

    instructions: list[Instruction] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)


@dataclass(frozen=True)
class Block:
    """What is executed one after the other: positions of instructions, and blocks that a `loop` or an `if` opens, whose
    position is `opened_by` (None: the whole program)."""

    opened_by: int | None
    parts: list[int | Block] = field(default_factory=list)

    def list_instructions(self) -> list[int]:
        """Returns the positions of all instructions inside, in order; what opens a block stands before it."""
        found: list[int] = []
        for part in self.parts:
            if isinstance(part, Block):
                assert part.opened_by is not None
                found += [part.opened_by, *part.list_instructions()]
            else:
                found.append(part)
        return found


_ENDS = {"end": "loop", "endif": "if"}


def nest(instructions: Sequence[Instruction]) -> Block:
    """Returns the program as blocks inside of each other. Raises Unknown where they overlap, or are left open."""
    stack = [Block(None)]
    for position, one in enumerate(instructions):
        if one.op in {"loop", "if"}:
            block = Block(position)
            stack[-1].parts.append(block)
            stack.append(block)
        elif one.op in _ENDS:
            opened = stack.pop().opened_by
            if opened is None or instructions[opened].op != _ENDS[one.op] or one.arg not in {None, opened}:
                raise Unknown("its loops overlap")
        else:
            stack[-1].parts.append(position)
    if len(stack) > 1:
        raise Unknown("one of its loops does not end")
    return stack[0]
