"""What a linear UOp of any release says: whether it is memory, a pointer or a variable, its dtype, its bounds."""

from __future__ import annotations

import math
from typing import Any

from vmapdbg.child.program.linear import INTEGERS, UOp

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
