"""A linear program in terms that no tinygrad release owns: buffers, accesses, loops, threads, variables, expressions.

`linear_reader.read_linear(uops)` takes the linear UOps of a compiled kernel (`CompiledKernel.uops`,
`ProgramSpec.uops`) of any release from 0.12.0 on. What differs between them ends here: DEFINE_GLOBAL/LOCAL/REG and
PARAM/BUFFER, PtrDType or none, the gate on INDEX or LOAD or in an IF, IDIV/MOD and CDIV/CMOD/FLOORDIV/FLOORMOD,
constants with or without a cast, a vector access as a cast pointer or as a SHRINK.

How the facts are to be written onto it:

- accesses.find_uses    `program.accesses`: an Access is a Use (`loops` with their trip counts, `symbolic`, `width`).
- reach, expressions    a `Value` stands where a UOp stood: a UOp has one Value, so it is a key as before; `op` is one
                        of OPERATIONS, `sources` are `src`, `constant` is the `arg` of a CONST. `lowest`, `highest` are
                        tinygrad's own bounds. Division towards zero is "div", "mod", Python's "floordiv", "floormod".
- bounds                the same; a gate is a Value, conditions are split at "and".
- dependence.find_data  from a "load" on: `program.loaded[value]` is its Access; `access.follows` are the stores that
                        it comes after, which is what the sources of an AFTER named.
- programs.count_work   `program.steps` in order: Step.OPEN and CLOSE a loop, COMPUTE a value, ACCESS memory; a Value
                        has `arithmetic`, `lanes` and `itemsize`. Arithmetic of addresses and gates is what
                        `access.index` and `access.gate` reach.
- VD108                 an accumulator that is initialised inside the loop that adds to it: stores to a "register"
                        buffer, `loops` of the one that stores a constant against those of the ones that load it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

UOp = Any

OPERATIONS = {
    "ADD": "add",
    "SUB": "sub",
    "MUL": "mul",
    "NEG": "neg",
    "IDIV": "div",
    "CDIV": "div",
    "MOD": "mod",
    "CMOD": "mod",
    "FLOORDIV": "floordiv",
    "FLOORMOD": "floormod",
    "SHL": "shl",
    "SHR": "shr",
    "AND": "and",
    "OR": "or",
    "XOR": "xor",
    "MAX": "max",
    "CMPLT": "lt",
    "CMPNE": "ne",
    "CMPEQ": "eq",
    "WHERE": "where",
    "CAST": "cast",
}
"""tinygrad's name -> ours, for what an address or a gate is made of. Any other op has its own name, in lower case."""


@dataclass(eq=False)
class Value:
    """One value of the program.

    `op` is "const", "loop", "thread", "variable", "load", an op of OPERATIONS, or tinygrad's own name in lower case.
    `dtype` is tinygrad's name of the scalar ("int", "float", "bool"), `itemsize` its bytes, `lanes` how many of them.
    `lowest` and `highest` are bounds of an integer, None where there are none. `arithmetic` is false for what only
    moves or packs.
    """

    op: str
    sources: tuple[Value, ...]
    dtype: str
    itemsize: int
    lanes: int = 1
    constant: int | float | bool | None = None
    name: str = ""
    lowest: int | None = None
    highest: int | None = None
    uop: UOp = field(default=None, repr=False)
    arithmetic: bool = False


@dataclass(eq=False)
class Loop(Value):
    """A loop, a thread, or a variable of the program. `trips` is how often it runs, at most where `symbolic` says that
    it depends on a variable."""

    trips: int = 1
    symbolic: bool = False


@dataclass(frozen=True)
class Buffer:
    """Memory of the program: `space` is "global", "local" (of a group of threads) or "register". `slot` is that of the
    argument where it is global; `size` is in elements."""

    slot: int
    name: str
    size: int
    dtype: str
    itemsize: int
    space: str


@dataclass(eq=False)
class Access:
    """One load or store. `index` is the element that it begins at, `width` how many it takes; `gate` is what must hold
    (None: always). `value` is what is stored, or what is loaded. `loops` are the loops and threads around it."""

    buffer: Buffer
    index: Value
    gate: Value | None
    is_store: bool
    value: Value
    width: int
    loops: tuple[Loop, ...]
    follows: tuple[Access, ...] = ()
    uop: UOp = field(default=None, repr=False)

    @property
    def symbolic(self) -> bool:
        return any(loop.symbolic for loop in self.loops)


class Step(enum.Enum):
    OPEN, CLOSE, COMPUTE, ACCESS = range(4)


@dataclass
class LinearProgram:
    """All of a program: `steps` in order, each with its Loop, Value or Access.

    `threads` are also the variables that a launch goes through (`core_id`). `open_loops` are loops that nothing ends.
    """

    buffers: list[Buffer] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    threads: list[Loop] = field(default_factory=list)
    variables: list[Loop] = field(default_factory=list)
    loaded: dict[Value, Access] = field(default_factory=dict)
    steps: list[tuple[Step, Loop | Value | Access]] = field(default_factory=list)
    open_loops: list[Loop] = field(default_factory=list)
