"""What a single UOp of a kernel is, in any release: memory, a pointer, a variable, a constant, its lanes and dtype."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from vmapdbg.child.listen.releases import find_under
from vmapdbg.child.memory import name_dtype, scalar_of
from vmapdbg.child.program.linear import CORE

UOp = Any
POINTER_OPS = frozenset({"CAST", "BITCAST", "AFTER", "INDEX", "SHRINK"})
"""The ops of a pointer in a linear program."""
JOINS = frozenset({"VECTORIZE", "CAT", "STACK"})
SHOWN = frozenset({"CAST", "RESHAPE", "AFTER"})
MOVED = frozenset({"EXPAND", "PERMUTE"})
POINTERS = SHOWN | MOVED | JOINS | {"INDEX", "SHRINK", "PTRCAT", "GEP"}
"""The ops of a pointer at any stage."""
UNSIZED = {"index": "long", "weakint": "long", "weakfloat": "double"}
# memory by op; if a release has one op for all spaces, its argument names the space
_SPACE_OF = {"DEFINE_GLOBAL": "global", "DEFINE_LOCAL": "local", "DEFINE_REG": "register"}
_MEMORY = frozenset({*_SPACE_OF, "PARAM", "BUFFER"})
_SPACES = {"GLOBAL": "global", "LOCAL": "local", "REG": "register"}


def is_variable(u: UOp) -> bool:
    if u.op.name != "PARAM":
        return u.op.name == "DEFINE_VAR"
    # its argument has the bounds of a variable; in the graphs of 0.13's scheduler its third and fourth source do
    return getattr(u.arg, "vmin_vmax", None) is not None or len(u.src) > 3


def is_memory(u: UOp) -> bool:
    return u.op.name in _MEMORY and not is_variable(u)


def is_pointer(u: UOp) -> bool:
    """Whether a UOp only addresses memory: memory itself, an INDEX, a cast pointer, a SHRINK."""
    return is_memory(find_under(u, POINTER_OPS))


def slot_of(memory: UOp) -> int:
    """Returns the number that memory has among the arguments, or among the memories of its kind."""
    number = memory.arg[0] if isinstance(memory.arg, tuple) else memory.arg
    return number if isinstance(number, int) else number.slot


def find_space(memory: UOp) -> str:
    if "image" in str(memory.dtype):
        return "image"
    if memory.op.name in _SPACE_OF:
        return _SPACE_OF[memory.op.name]
    space = getattr(memory.dtype, "addrspace", None) or getattr(memory.arg, "addrspace", None)
    return _SPACES.get(getattr(space, "name", "GLOBAL"), "global")


def find_constant(u: UOp) -> Any:
    """The value of a constant; 0.14 writes each constant as a cast from a dtype without a size."""
    if u.op.name == "CAST" and u.src[0].op.name == "CONST":
        u = u.src[0]
    return u.arg if u.op.name == "CONST" and isinstance(u.arg, (bool, int, float)) else None


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


def lanes_of(u: UOp) -> int:
    """How many scalars a value has: in its dtype, or in its shape (from the summer of 2026 on)."""
    count = getattr(u.dtype, "count", 1)
    if count > 1:
        return count
    try:
        return max(1, math.prod(map(int, u.shape)))
    except Exception:  # no shape: a scalar
        return 1


def find_memory(pointer: UOp) -> UOp | None:
    """Returns the memory that a pointer addresses, None for a value."""
    memory = find_under(pointer, POINTERS)
    return memory if is_memory(memory) else None


def find_loops(u: UOp, text: Sequence[UOp] = ()) -> dict[UOp, None]:
    """Returns the loops that a UOp is in, by the order of a linear program if given, and the threads it depends on."""
    threads = (s for s in u.toposort() if s.op.name == "SPECIAL" or (is_variable(s) and loop_name(s) == CORE))
    loops = dict.fromkeys(u.ranges)
    if text:
        before = text[: text.index(u)]
        ended = {r for one in before if one.op.name == "END" for r in one.src[1:]}
        loops = dict.fromkeys(one for one in before if one.op.name == "RANGE" and one not in ended)
    return {**loops, **dict.fromkeys(threads)}


def find_threads(nodes: Iterable[UOp]) -> list[UOp]:
    """Returns the thread indices of a group, `lidx0` last: it counts fastest. At an earlier stage a warp is a RANGE."""
    nodes = list(nodes)
    threads = [u for u in nodes if u.op.name == "SPECIAL" and str(u.arg).startswith("l")]
    warps = [u for u in nodes if u.op.name == "RANGE" and u.arg[-1].name == "WARP"]
    return sorted(threads, key=loop_name, reverse=True) or warps


def is_argument(memory: UOp | None, slot: int) -> bool:
    """Whether memory is an argument of the kernel, with this number."""
    return memory is not None and find_space(memory) == "global" and slot_of(memory) == slot


def indices_of(pointer: UOp) -> tuple[UOp, ...]:
    """Returns where a pointer begins in memory, without gates."""
    return tuple(s for s in pointer.src[1:] if dtype_of(s) != "bool")


def dtype_of(u: UOp) -> str:
    """Returns the name of the dtype of each lane, with a size."""
    name = name_dtype(scalar_of(u.dtype))
    return UNSIZED.get(name, name)


def base_of(memory: UOp) -> Any:
    """Returns the dtype of an element of memory."""
    return getattr(memory.dtype, "base", memory.dtype)


def shape_of(u: UOp) -> tuple[int, ...]:
    """Returns the axes of a value's lanes; from 0.14 on a value has a shape."""
    return (lanes_of(u),) if getattr(u.dtype, "count", 1) > 1 or lanes_of(u) == 1 else tuple(map(int, u.shape))


def is_whole_register(u: UOp) -> bool:
    """Whether a pointer is all elements of a register, in its shape (from 0.14 on)."""
    return is_memory(u) and find_space(u) == "register" and not hasattr(u.dtype, "addrspace")


def is_element(u: UOp) -> bool:
    """Whether an INDEX is some of the elements that another pointer addresses (from 0.14 on)."""
    return u.op.name == "INDEX" and u.src[0].op.name in {"INDEX", *MOVED} and not hasattr(u.src[0].dtype, "addrspace")
