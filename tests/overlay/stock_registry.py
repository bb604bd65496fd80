"""The registry of the programs in stock_*.py, and the functions that they share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from func_ops.data import Op
from func_ops.table import OPS
from tinygrad import Device, Tensor, dtypes

Program = Callable[..., Any]
PROGRAMS: list[tuple[str, Program, tuple[Any, ...], bool]] = []
FLOATS = (dtypes.float32, dtypes.half, dtypes.bfloat16, dtypes.double)
INTS = (dtypes.int8, dtypes.int32, dtypes.uint8, dtypes.int64)
MATRICES = ((3, 5), (16, 16), (1, 7), (8, 128))
DEVICES = tuple(f"{Device.DEFAULT}:{i}" for i in range(4))


def program(*variants: Any, executes: bool = False) -> Callable[[Program], Program]:
    """Registers a program once for each variant: a tuple of its arguments, or its only argument."""

    def register(function: Program) -> Program:
        for variant in variants or ((),):
            arguments = variant if isinstance(variant, tuple) else (variant,)
            PROGRAMS.append((function.__name__, function, arguments, executes))
        return function

    return register


def shapes(*choices: tuple[int, ...]) -> list[tuple[tuple[int, ...]]]:
    return [(choice,) for choice in choices]


def data(*shape: Any, dtype: Any = dtypes.float32, **options: Any) -> Tensor:
    """Returns a tensor that is a buffer already."""
    return Tensor.empty(*shape, dtype=dtype, **options)


def apply_op(op: Op) -> list[Tensor]:
    """Returns the result of an op of the table of `tinygrad.func`, and its gradient by each float."""
    inputs = [data(*array.shape[2:], dtype=getattr(dtypes, str(array.dtype))) for array in op.arrays()]
    result = op.fn(*inputs)
    moved = [x for x in inputs if op.moves and x.is_floating_point()]
    if not moved:
        return [result]
    cotangent = data(*result.shape, dtype=result.dtype)
    return [result, *result.gradient(*moved, gradient=cotangent, materialize_grads=True)]


PROGRAMS += [(f"op {name}", partial(apply_op, op), (), False) for name, op in OPS.items()]
