"""A linear program in terms that no tinygrad release owns: buffers, accesses, loops, threads, variables, expressions.

`linear_reader.read_linear(uops)` takes the linear UOps of a compiled kernel (`CompiledKernel.uops`,
`ProgramSpec.uops`) of any release from 0.12.0 on. What differs between them ends here: DEFINE_GLOBAL/LOCAL/REG and
PARAM/BUFFER, PtrDType or none, the gate on INDEX or LOAD or in an IF, IDIV/MOD and CDIV/CMOD/FLOORDIV/FLOORMOD,
constants with or without a cast, a vector access as a cast pointer or as a SHRINK.

A UOp has one Value, so two values are equal if they are the same object.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

UOp = Any

_UNSIZED = 1 << 800
INTEGERS = {
    "char": (-(1 << 7), (1 << 7) - 1),
    "short": (-(1 << 15), (1 << 15) - 1),
    "int": (-(1 << 31), (1 << 31) - 1),
    "long": (-(1 << 63), (1 << 63) - 1),
    "uchar": (0, (1 << 8) - 1),
    "ushort": (0, (1 << 16) - 1),
    "uint": (0, (1 << 32) - 1),
    "ulong": (0, (1 << 64) - 1),
    "index": (-_UNSIZED, _UNSIZED),
    "weakint": (-_UNSIZED, _UNSIZED),
}
"""tinygrad's names of the integers, with the bounds of each. The last two have no size: a scheduler's range."""


@dataclass(eq=False)
class Value:
    """One value of the program.

    `op` is "const", "loop", "thread", "variable", "load", "cast", a name of `model.ops.ARITHMETIC`, or tinygrad's
    own name in lower case.
    `dtype` is tinygrad's name of the scalar ("int", "float", "bool"), `itemsize` its bytes, `lanes` how many of them.
    `lowest` and `highest` are bounds of an integer, None where there are none. `sources` of a load are what it gives
    where its gate does not hold. `operations` is how many arithmetic ops it takes, 0 for what only moves or packs.
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
    operations: int = 0


@dataclass(eq=False)
class Loop(Value):
    """A loop, a thread, or a variable of the program. `trips` is how often it runs, at most where `symbolic` says that
    it depends on a variable."""

    trips: int = 1
    symbolic: bool = False


@dataclass(frozen=True)
class Buffer:
    """Memory of the program: `space` is "global", "local" (of a group of threads), "register", or "image" (global, and
    indexed by a pair). `name` is that of the source, `slot` that of the argument where it is global or an image; `size`
    is in elements, negative where it is not known."""

    slot: int
    name: str
    size: int
    dtype: str
    itemsize: int
    space: str


@dataclass(eq=False)
class Access:
    """One load or store. `index` is the element that it begins at, `width` how many it takes; `gate` is what must hold
    (None: always). `value` is what is stored, or what is loaded. `loops` are the threads, and the loops around it from
    the outermost. `follows` are the stores that it was ordered after: those whose values a load may find."""

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
    def addressing(self) -> list[Value]:
        """What says whether and where it accesses."""
        if self.gate is None:
            return [self.index]
        return [self.index, self.gate]

    @property
    def symbolic(self) -> bool:
        return any(loop.symbolic for loop in self.loops)


class Step(enum.Enum):
    OPEN, CLOSE, COMPUTE, ACCESS = range(4)


@dataclass
class LinearProgram:
    """All of a program: `steps` in order, each with its Loop, Value or Access.

    `threads` are also the variables that a launch goes through (`core_id`). `addressing` are the addresses and the
    gates, those of what is no access included, and how many threads there are. `open_loops` are loops that nothing
    ends.
    """

    buffers: list[Buffer] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    threads: list[Loop] = field(default_factory=list)
    variables: list[Loop] = field(default_factory=list)
    addressing: list[Value] = field(default_factory=list)
    loaded: dict[Value, Access] = field(default_factory=dict)
    steps: list[tuple[Step, Loop | Value | Access]] = field(default_factory=list)
    open_loops: list[Loop] = field(default_factory=list)
