"""Values of a linear program: arithmetic on them, and what C leaves undefined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vmapdbg.reference.arithmetic import compute
from vmapdbg.reference.kinds import find_carrier, round_floats
from vmapdbg.reference.linear import Instruction
from vmapdbg.reference.linear_memory import Whole
from vmapdbg.reference.value import Mask
from vmapdbg.values.numbers import Numbers
from vmapdbg.values.tolerance import is_float


@dataclass(frozen=True)
class Lanes:
    """The value of an instruction: a row for each row (or one for all), a column for each lane (or one for all).
    `undefined` are those that C leaves undefined, in the same shape; None: there are none."""

    numbers: Numbers
    undefined: Mask | None = None

    def take(self, rows: Whole | slice) -> Lanes:
        """Returns the value for other rows, which come from these."""
        if len(self.numbers) == 1:
            return self
        undefined = None if self.undefined is None else self.undefined[rows]
        return Lanes(self.numbers[rows], undefined)

    def mark(self, undefined: Mask | None) -> Lanes:
        """Returns the value with more that is undefined."""
        if undefined is None or not undefined.any():
            return self
        if self.undefined is not None:
            undefined = undefined | self.undefined
        shape = np.broadcast_shapes(self.numbers.shape, undefined.shape)
        return Lanes(np.broadcast_to(self.numbers, shape), np.broadcast_to(undefined, shape))

    def spread(self, shape: tuple[int, ...]) -> Numbers:
        """Returns the numbers in a shape that they can be broadcast to."""
        return np.broadcast_to(self.numbers, shape)

    def spread_undefined(self, shape: tuple[int, ...]) -> Mask:
        """Returns `undefined` in a shape that it can be broadcast to."""
        if self.undefined is None:
            return np.broadcast_to(np.False_, shape)
        return np.broadcast_to(self.undefined, shape)


def calculate(one: Instruction, operands: Sequence[Lanes], dtypes: Sequence[str]) -> Lanes:
    """Returns what an arithmetic op gives; `dtypes` are those of its operands."""
    carrier = find_carrier(one.dtype)
    numbers: list[Numbers] = []
    for value, dtype in zip(operands, dtypes, strict=True):
        # comparisons, conditions and shifts have operands of other dtypes
        is_own = dtype == one.dtype and one.op not in {"shl", "shr"}
        numbers.append(value.numbers.astype(carrier, copy=False) if is_own else value.numbers)
    found, undefined = compute(one.op, numbers)
    if is_float(one.dtype):
        found = round_floats(found, one.dtype)
    value = Lanes(np.asarray(found, carrier)).mark(undefined)
    if one.op == "where":
        return value.mark(choose_undefined(*operands))
    for operand in operands:
        value = value.mark(operand.undefined)
    return value


def make_const(one: Instruction) -> Lanes:
    """Returns the value of a `const`: integers wrap around, floats are rounded."""
    number = one.arg
    if one.dtype == "bool":
        number = bool(number)
    elif is_float(one.dtype):
        number = round_floats(np.asarray(number, np.float64), one.dtype)
    else:
        limits = np.iinfo(find_carrier(one.dtype))
        number = (int(number) - limits.min) % (1 << limits.bits) + limits.min
    return Lanes(np.full((1, one.lanes), number, find_carrier(one.dtype)))


def pack(one: Instruction, values: Sequence[Lanes]) -> Lanes:
    """Returns the lanes of all values, one after the other."""
    count = max(len(value.numbers) for value in values)
    shapes = [(count, value.numbers.shape[1]) for value in values]
    numbers = [value.spread(shape) for value, shape in zip(values, shapes, strict=True)]
    packed = Lanes(np.concatenate(numbers, axis=1).astype(find_carrier(one.dtype), copy=False))
    if all(value.undefined is None for value in values):
        return packed
    masks = [value.spread_undefined(shape) for value, shape in zip(values, shapes, strict=True)]
    return packed.mark(np.concatenate(masks, axis=1))


def find_true(gates: Sequence[Lanes]) -> Mask:
    """Returns where a gate holds, everywhere where there is none."""
    if not gates:
        return np.ones((1, 1), np.bool_)
    return gates[0].numbers.astype(np.bool_)


def choose_undefined(condition: Lanes, one: Lanes, other: Lanes) -> Mask | None:
    """Returns what is undefined of a choice: what it is chosen by, and what is chosen."""
    masks: list[Mask] = []
    if one.undefined is not None:
        masks.append(one.undefined & condition.numbers)
    if other.undefined is not None:
        masks.append(other.undefined & ~condition.numbers)
    if condition.undefined is not None:
        masks.append(condition.undefined)
    if not masks:
        return None
    found = masks[0]
    for mask in masks[1:]:
        found = found | mask
    return found
