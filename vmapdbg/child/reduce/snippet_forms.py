"""What tinygrad's Tensor API makes of an expression, and which nodes can be written so. Runs in the child."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinygrad.dtype import dtypes, sum_acc_dtype
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.reduce.snippet_data import WriteError

OPERATORS = {
    Ops.ADD: "+",
    Ops.MUL: "*",
    Ops.CMPLT: "<",
    Ops.CMPNE: "!=",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
}
# Tensor's operators refuse floats for them
BITWISE = {Ops.AND, Ops.OR, Ops.XOR}
FLOAT_UNARY = {
    Ops.EXP2: "exp2",
    Ops.LOG2: "log2",
    Ops.SIN: "sin",
    Ops.SQRT: "sqrt",
    Ops.RECIPROCAL: "reciprocal",
}
REDUCES = {Ops.ADD: "sum", Ops.MAX: "max", Ops.MUL: "prod"}
INDEX_OPERATORS = {**OPERATORS, Ops.IDIV: "//", Ops.MOD: "%"}
CANNOT = {
    Ops.KERNEL: "it has a kernel in it (a custom kernel, or a graph that is scheduled already)",
    Ops.AFTER: "it has a kernel in it (a custom kernel, or a graph that is scheduled already)",
    Ops.CUSTOM_KERNEL: "it has a custom kernel in it",
    Ops.MULTI: "it is sharded over devices",
    Ops.MSELECT: "it is sharded over devices",
    Ops.MSTACK: "it is sharded over devices",
    Ops.BUFFER_VIEW: "it has a view of a DISK buffer in it",
}


def is_python_data(copy: UOp) -> bool:
    """A COPY of Python numbers: what Tensor([...]) is until it is realized."""
    base = copy.src[0].base
    views = copy.src[0].op is Ops.BUFFER or (copy.src[0].op is Ops.RESHAPE and copy.src[0].src[0] is base)
    return base.op is Ops.BUFFER and base.device == "PYTHON" and copy.device != "PYTHON" and views


def is_operator(u: UOp) -> bool:
    """Whether Python's operator between two Tensors makes just this node."""
    if u.op not in OPERATORS or len({s.dtype for s in u.src}) != 1 or len({s._shape for s in u.src}) != 1:
        return False
    # Tensor's operators cast what they would sum in a larger dtype there and back
    return sum_acc_dtype(u.src[0].dtype) == u.src[0].dtype and (u.op not in BITWISE or not dtypes.is_float(u.dtype))


def find_scalar(u: UOp) -> int | None:
    """Which operand of an operator is one that a plain number beside the other one would make."""
    if not is_operator(u):
        return None
    left, right = u.src
    if _is_number(right, left):
        return 1
    # Python turns the sides of these around where the number is on the left
    if u.op not in {Ops.CMPLT, Ops.CMPNE} and _is_number(left, right):
        return 0
    return None


def _is_number(u: UOp, other: UOp) -> bool:
    const = u
    while const.op in {Ops.RESHAPE, Ops.EXPAND}:
        const = const.src[0]
    if const.op is not Ops.CONST or other._device is None or not ints(other._shape) or other.base.op is Ops.CONST:
        return False
    if not (dtypes.is_float(const.dtype) or dtypes.is_int(const.dtype)):
        return False
    same = UOp.const(const.dtype, const.arg, other.device)
    if other.shape:
        same = same.reshape((1,) * len(other.shape)).expand(other.shape)
    return u is same


def ints(shape: Any) -> bool:
    return shape is not None and all(isinstance(size, int) for size in shape)


def write_tuple(parts: Iterable[str]) -> str:
    written = list(parts)
    return f"({', '.join(written)}{',' * (len(written) == 1)})"


def write_arg(arg: Any) -> str:
    if isinstance(arg, Ops):
        return f"Ops.{arg.name}"
    if isinstance(arg, tuple):
        return write_tuple(map(write_arg, arg))
    if arg is None or isinstance(arg, (int, float, str)):
        return repr(arg)
    raise WriteError(f"it has an op with the argument {arg!r}")
