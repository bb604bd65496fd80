"""What the ops of tinygrad's tensor graph do, in the names that no release owns."""

from __future__ import annotations

_SAME_OP = {"REDUCE_AXIS": "REDUCE", "BUFFER": "PARAM", "ASSIGN": "STORE", "IDIV": "CDIV", "MOD": "CMOD"}

LEAVES = frozenset({"PARAM"})
"""Memory that is there already."""

MOVEMENT = frozenset({"RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP"})
"""The first source is a value that these show otherwise; what follows, where anything does, are sizes."""

SAME_VALUE = frozenset({"CONTIGUOUS", "CONTIGUOUS_BACKWARD", "DETACH", "COPY", "NOOP"})
"""These have the value of their first source, wherever it lies."""

TYPED = frozenset({"PARAM", "CAST", "BITCAST"})
"""What these are is told by a dtype; that of any other op follows from its sources."""

ELEMENTWISE = frozenset(
    {
        *("ADD", "SUB", "MUL", "MULACC", "FDIV", "CDIV", "FLOORDIV", "CMOD", "FLOORMOD", "POW", "MAX", "NEG", "TRUNC"),
        *("CMPLT", "CMPNE", "CMPEQ", "WHERE", "AND", "OR", "XOR", "SHL", "SHR", "THREEFRY"),
        *("EXP2", "LOG2", "SIN", "SQRT", "RECIPROCAL", "CAST", "BITCAST"),
    }
)
"""Each element is computed from the elements of the sources at the same place, which are broadcast."""


def name_op(op: str) -> str:
    """Returns the name of an op that all releases have in common."""
    return _SAME_OP.get(op, op)
