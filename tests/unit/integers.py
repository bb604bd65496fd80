"""What the ops on integers give, by Python's own integers, for tests of the reference."""

from __future__ import annotations

from collections.abc import Callable

SIGNED = {"char": 8, "short": 16, "int": 32, "long": 64}
UNSIGNED = {"uchar": 8, "ushort": 16, "uint": 32, "ulong": 64}


def wrap(number: int, dtype: str) -> int:
    """Returns an integer, wrapped to a dtype."""
    bits = {**SIGNED, **UNSIGNED}[dtype]
    low = number % 2**bits
    return low - 2**bits if dtype in SIGNED and low >= 2 ** (bits - 1) else low


def limits(dtype: str) -> tuple[int, int]:
    """Returns the smallest and the largest integer of a dtype."""
    if dtype in SIGNED:
        return -(2 ** (SIGNED[dtype] - 1)), 2 ** (SIGNED[dtype] - 1) - 1
    return 0, 2 ** UNSIGNED[dtype] - 1


def divide_towards_zero(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


INTEGER_OPS: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "max": max,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "cdiv": divide_towards_zero,
    "cmod": lambda x, y: x - divide_towards_zero(x, y) * y,
    "floordiv": lambda x, y: x // y,
    "floormod": lambda x, y: x % y,
}
"""Op -> what it gives before it is wrapped around."""
