"""The values that a statement of a random program may read, and what one is drawn as.

Shapes are numpy's: an op is tried on an array of zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.fuzz.draw import Draw
from tests.fuzz.hunt.plan import Kind

LARGEST = 600
"""The most elements of a value."""
FLOATS, INTEGERS = ("float", "half", "double"), ("int", "uchar", "char", "uint", "long")
NUMPY = {"float": "float32", "half": "float16", "double": "float64", "bool": "bool"}
NUMPY |= {"int": "int32", "uchar": "uint8", "char": "int8", "uint": "uint32", "long": "int64"}


@dataclass(frozen=True)
class Drawn:
    """A statement without the name that it makes; `kind` is None if it changes its first argument."""

    text: str
    args: tuple[str, ...]
    kind: Kind | None = None


class NothingFits(Exception):
    """No value that is there fits a statement."""


class Pool:
    """The values that a statement may read: name -> kind, the newest last; `owned` have memory of their own."""

    def __init__(self, draw: Draw):
        self.draw = draw
        self.kinds: dict[str, Kind] = {}
        self.owned: list[str] = []

    def pick(self, fits: Callable[[Kind], bool] = lambda kind: True) -> str:
        """Returns a value that fits, rather a new one. Raises NothingFits."""
        names = [name for name, kind in self.kinds.items() if fits(kind)]
        if not names:
            raise NothingFits
        return self.draw.choice(names[-3:] if self.draw.chance(60) else names)

    def pick_float(self, least: int = 0) -> str:
        return self.pick(lambda kind: kind.dtype in FLOATS and len(kind.shape) >= least)

    def pick_number(self, least: int = 0) -> str:
        return self.pick(lambda kind: kind.dtype != "bool" and len(kind.shape) >= least)


Maker = Callable[[Draw, Pool], Drawn | None]
"""Draws a statement for the values that are there; None, or NothingFits, if there is none."""
Change = Callable[["np.ndarray[tuple[int, ...], np.dtype[np.bool_]]"], object]


def find_shape(kind: Kind, change: Change) -> tuple[int, ...] | None:
    """The shape that a numpy function gives for a value of a kind; None if it fails, or the result is too large."""
    try:
        shape = np.shape(change(np.zeros(kind.shape, np.bool_)))  # type: ignore[arg-type]
    except (ValueError, IndexError):
        return None
    size = int(np.prod(shape))
    return tuple(map(int, shape)) if 0 < size <= LARGEST and len(shape) <= 5 else None


def make(pool: Pool, name: str, text: str, change: Change, dtype: str | None = None) -> Drawn | None:
    kind = pool.kinds[name]
    shape = find_shape(kind, change)
    return None if shape is None else Drawn(text, (name,), Kind(shape, dtype or kind.dtype))


def axis(d: Draw, pool: Pool, name: str) -> int:
    return d.integer(0, len(pool.kinds[name].shape) - 1)
