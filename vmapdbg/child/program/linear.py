"""A linear program in terms that no tinygrad release owns: buffers, accesses, loops, threads, variables, expressions.

`linear_reader.read_linear(uops)` takes the linear UOps of a compiled kernel (`CompiledKernel.uops`,
`ProgramSpec.uops`) of any release from 0.12.0 on. What differs between them ends here: DEFINE_GLOBAL/LOCAL/REG and
PARAM/BUFFER, PtrDType or none, the gate on INDEX or LOAD or in an IF, IDIV/MOD and CDIV/CMOD/FLOORDIV/FLOORMOD,
constants with or without a cast, a vector access as a cast pointer or as a SHRINK.

A UOp has one Value, so two values are equal if they are the same object.
"""

from __future__ import annotations

import enum
import math
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
    `lowest` and `highest` are bounds of an integer, None if they are not known. `sources` of a load are its result if
    its gate does not hold. `operations` counts its arithmetic ops, 0 if it only moves or packs values.
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
class ProgramLoop(Value):
    """A loop, a thread, or a variable of the program. `trips` is how often it runs; if `symbolic`, that depends on a
    variable and `trips` is the most."""

    trips: int = 1
    symbolic: bool = False


@dataclass(frozen=True)
class Buffer:
    """Memory of the program: `space` is "global", "local" (of a group of threads), "register", or "image" (global, and
    indexed by a pair). `name` is the name in the source, `slot` the number of the argument if it is global or an image;
    `size` is in elements, negative if it is not known."""

    slot: int
    name: str
    size: int
    dtype: str
    itemsize: int
    space: str


@dataclass(eq=False)
class MemoryAccess:
    """One load or store. `index` is the first element, `width` the number of elements; `gate` is the condition (None:
    always). `value` is what is stored, or what is loaded. `loops` are the threads, and the loops around it from
    the outermost. `follows` are the stores that it is ordered after, whose values a load may find."""

    buffer: Buffer
    index: Value
    gate: Value | None
    is_store: bool
    value: Value
    width: int
    loops: tuple[ProgramLoop, ...]
    follows: tuple[MemoryAccess, ...] = ()
    uop: UOp = field(default=None, repr=False)

    @property
    def addressing(self) -> list[Value]:
        """The values that decide whether and where it accesses memory."""
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
    """A whole program: `steps` in order, each with its ProgramLoop, Value or MemoryAccess.

    `threads` are also the variables that a launch goes through (`core_id`). `addressing` are the addresses, the
    gates (also of ops that are no access), and the numbers of threads. `open_loops` are loops without an END.
    """

    buffers: list[Buffer] = field(default_factory=list)
    accesses: list[MemoryAccess] = field(default_factory=list)
    loops: list[ProgramLoop] = field(default_factory=list)
    threads: list[ProgramLoop] = field(default_factory=list)
    variables: list[ProgramLoop] = field(default_factory=list)
    addressing: list[Value] = field(default_factory=list)
    loaded: dict[Value, MemoryAccess] = field(default_factory=dict)
    steps: list[tuple[Step, ProgramLoop | Value | MemoryAccess]] = field(default_factory=list)
    open_loops: list[ProgramLoop] = field(default_factory=list)


# what is memory, by op; where a release has one op for all spaces, its argument says which
_SPACE_OF = {"DEFINE_GLOBAL": "global", "DEFINE_LOCAL": "local", "DEFINE_REG": "register"}
_MEMORY = frozenset({*_SPACE_OF, "PARAM", "BUFFER"})
_SPACES = {"GLOBAL": "global", "LOCAL": "local", "REG": "register"}
POINTER_OPS = frozenset({"CAST", "BITCAST", "AFTER", "INDEX", "SHRINK"})


def is_variable(u: UOp) -> bool:
    if u.op.name != "PARAM":
        return u.op.name == "DEFINE_VAR"
    # its argument has the bounds of a variable; in the graphs of 0.13's scheduler its third and fourth source do
    return getattr(u.arg, "vmin_vmax", None) is not None or len(u.src) > 3


def is_memory(u: UOp) -> bool:
    return u.op.name in _MEMORY and not is_variable(u)


def is_pointer(u: UOp) -> bool:
    """Whether a UOp only addresses memory: memory itself, an INDEX, a cast pointer, a SHRINK."""
    while u.op.name in POINTER_OPS:
        u = u.src[0]
    return is_memory(u)


def count_operations(u: UOp, lanes: int) -> int:
    from tinygrad.uop import GroupOp

    if u.op.name == "WMMA":
        dimensions, threads = _read_wmma(u.arg)
        return 2 * math.prod(dimensions) // threads
    if u.op not in GroupOp.ALU:
        return 0
    return 2 * lanes if u.op.name == "MULACC" else lanes


def _read_wmma(arg: tuple[Any, ...]) -> tuple[tuple[int, ...], int]:
    """The dimensions of the product of a tensor core, and how many threads compute it."""
    # before 0.14 a name comes first
    if isinstance(arg[0], str):
        return arg[1], arg[5]
    return arg[0], arg[3]


def find_space(u: UOp) -> str:
    if "image" in str(u.dtype):
        return "image"
    if u.op.name in _SPACE_OF:
        return _SPACE_OF[u.op.name]
    space = getattr(u.dtype, "addrspace", None) or getattr(u.arg, "addrspace", None)
    return _SPACES.get(getattr(space, "name", "GLOBAL"), "global")


def size_of_memory(u: UOp) -> int:
    """How many elements memory has: in its dtype, or in its first source (0.14 on)."""
    size = getattr(u.dtype, "size", None)
    if size is not None:
        return size
    return int(u.src[0].vmax) if u.src else 0


def find_constant(u: UOp) -> Any:
    """The value of a constant; 0.14 writes each one as the cast of one without a size."""
    if u.op.name == "CAST" and u.src[0].op.name == "CONST":
        u = u.src[0]
    if u.op.name != "CONST" or not isinstance(u.arg, (bool, int, float)):
        return None
    return u.arg


def bounds_of(u: UOp) -> tuple[int | None, int | None]:
    if dtype_of(u) not in INTEGERS and dtype_of(u) != "bool":
        return None, None
    try:
        lowest, highest = u.vmin, u.vmax
    except Exception:  # what is loaded, or a kind of value that has no bounds in this release
        return None, None
    if not isinstance(lowest, int) or not isinstance(highest, int):
        return None, None
    return int(lowest), int(highest)


def lanes_of(u: UOp) -> int:
    """How many scalars a value has: in its dtype, or in its shape where dtypes have no lanes (0.14 on)."""
    count = getattr(u.dtype, "count", 1)
    if count > 1 or hasattr(u.dtype, "ptr"):
        return count
    try:
        return max(1, math.prod(int(s) for s in u.shape))
    except Exception:  # no shape: a scalar
        return 1


def dtype_of(u: UOp) -> str:
    return plain(scalar_of(u))


def scalar_of(u: UOp) -> Any:
    """The dtype of each lane; from 0.14 on no dtype has more than one."""
    if hasattr(u.dtype, "scalar"):
        return u.dtype.scalar()
    return u.dtype


def plain(dtype: Any) -> str:
    return str(dtype).removeprefix("dtypes.")


def loop_name(u: UOp) -> str:
    """As the source has it: Lidx2, gidx0, the name of a variable."""
    if u.op.name == "RANGE":
        from tinygrad.uop.ops import axis_letters, range_str

        return f"{axis_letters.get(u.arg[-1], '')}idx{range_str(u)}"
    if u.op.name == "DEFINE_VAR":
        return str(u.arg[0])
    if isinstance(u.arg, int):
        # a variable of 0.13's scheduler: its name is the last source
        return str(u.src[-1].arg)
    return str(getattr(u.arg, "name", u.arg))
