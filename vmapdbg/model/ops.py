"""The ops of tinygrad, by their names in all releases: what this tool calls them, and what they do."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

RESHAPING = frozenset({"RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP"})
"""Ops that show the value of their first source in another shape; other sources are sizes."""

MOVEMENT = RESHAPING | {"VIEW", "DETACH", "CONTIGUOUS_BACKWARD"}
"""Ops that move a value or leave it as it is, and compute nothing."""

REDUCES = frozenset({"REDUCE", "REDUCE_AXIS"})
"""The op that reduces, in the graph and in a kernel, by its names in all releases."""

STORES = frozenset({"ASSIGN", "STORE"})  # the op that writes to memory: its names in the releases

WRITES = STORES | {"AFTER"}  # ops whose first source is memory that is written, or was

COMPUTES_NOTHING = MOVEMENT | {"CONST", "VCONST", "BUFFER", "PARAM", "VMAPIN", "VMAPOUT"}
"""Ops that compute no value: movement ops, constants and memory."""

SAME_VALUE = frozenset({"CONTIGUOUS", "CONTIGUOUS_BACKWARD", "DETACH", "COPY", "NOOP"})
"""Ops whose value is the value of their first source."""

STAGE_OPS = ("STAGE", "BUFFERIZE")
"""The op that makes a buffer of a value, before kernels are lowered: its names in the releases, newest first."""

_SAME_OP = {"REDUCE_AXIS": "REDUCE", "BUFFER": "PARAM", "ASSIGN": "STORE", "IDIV": "CDIV", "MOD": "CMOD"}


def name_op(op: str) -> str:
    """Returns the name of an op that is the same for all releases."""
    return _SAME_OP.get(op, op)


class Arithmetic(NamedTuple):
    """An op on elements. `name` is the same for all releases. `text` writes it in an address or a gate, and
    `on_integers` computes it exactly; both are None for ops that no address has."""

    name: str
    text: str | None = None
    on_integers: Callable[..., Any] | None = None


def _divide_towards_zero(x: int, y: int) -> int:
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


_CDIV = Arithmetic("cdiv", "({}/{})", _divide_towards_zero)
_CMOD = Arithmetic("cmod", "({}%{})", lambda x, y: x - y * _divide_towards_zero(x, y))
_IN_NO_ADDRESS = ("FDIV", "POW", "SQRT", "SIN", "EXP2", "LOG2", "RECIPROCAL", "TRUNC", "MULACC", "THREEFRY")

ARITHMETIC = {
    "ADD": Arithmetic("add", "({}+{})", operator.add),
    "SUB": Arithmetic("sub", "({}-{})", operator.sub),
    "MUL": Arithmetic("mul", "({}*{})", operator.mul),
    "NEG": Arithmetic("neg", "(-{})", operator.neg),
    # 0.12 has the first two, which round as C does; 0.13 renamed them, and added ops that round as Python does
    "IDIV": _CDIV,
    "MOD": _CMOD,
    "CDIV": _CDIV,
    "CMOD": _CMOD,
    "FLOORDIV": Arithmetic("floordiv", "({}//{})", operator.floordiv),
    # a remainder that is never negative
    "FLOORMOD": Arithmetic("floormod", "({}%%{})", operator.mod),
    "SHL": Arithmetic("shl", "({}<<{})", operator.lshift),
    "SHR": Arithmetic("shr", "({}>>{})", operator.rshift),
    "AND": Arithmetic("and", "({}&{})", operator.and_),
    "OR": Arithmetic("or", "({}|{})", operator.or_),
    "XOR": Arithmetic("xor", "({}^{})", operator.xor),
    "MAX": Arithmetic("max", "max({},{})", max),
    "CMPLT": Arithmetic("lt", "({}<{})", operator.lt),
    "CMPNE": Arithmetic("ne", "({}!={})", operator.ne),
    "CMPEQ": Arithmetic("eq", "({}=={})", operator.eq),
    "WHERE": Arithmetic("where", "({}?{}:{})", lambda condition, one, other: one if condition else other),
    **{op: Arithmetic(op.lower()) for op in _IN_NO_ADDRESS},
}
"""tinygrad's name -> the op. `vmapdbg.reference.arithmetic` computes each of them by numpy."""

ELEMENTWISE = frozenset(ARITHMETIC) | {"CAST", "BITCAST"}
"""Ops that compute each element from the elements of the broadcast sources at the same place."""
