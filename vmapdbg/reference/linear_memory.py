"""The memory of a linear program that runs by numpy: many steps and threads of it at once, each a row.

That gives what the program gives only where no row reads or writes what another one writes: it is watched while it
runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.value import Mask
from vmapdbg.values.numbers import Numbers

Whole = NDArray[np.int64]

NOBODY, MANY = -1, -2
FRESH, NEVER = -1, -2
"""What is said of an element of a register: the row itself has stored it, or nobody has yet."""


class Disorder(Exception):
    """The result depends on the order of rows. `loop` is the position of the one that has to run step after step; None:
    the innermost one of those that run at once."""

    def __init__(self, loop: int | None = None):
        super().__init__(loop)
        self.loop = loop


class LeavesMemory(Unknown):
    """A program writes outside of its memory."""


class Watch:
    """Who has written and read the elements of a memory. Raises Disorder where two rows use an element that one of them
    writes."""

    def __init__(self, size: int, reads: bool):
        """`reads`: the program reads the memory, too."""
        self.writers = np.full(size, NOBODY, np.int64)
        self.readers = np.full(size if reads else 0, NOBODY, np.int64)
        self.floor = 0

    def forget(self, floor: int) -> None:
        """All that was done by rows below this number is over."""
        self.floor = floor

    def forget_all(self) -> None:
        self.writers[:] = self.readers[:] = NOBODY

    def store(self, places: Whole, rows: Whole) -> None:
        self._refuse(self.writers[places], rows)
        if self.readers.size:
            self._refuse(self.readers[places], rows)
        self.writers[places] = rows
        if (self.writers[places] != rows).any():
            raise Disorder

    def load(self, places: Whole, rows: Whole) -> None:
        self._refuse(self.writers[places], rows)
        known = self.readers[places]
        free = (known >= 0) & (known < self.floor) | (known == NOBODY) | (known == rows)
        self.readers[places] = np.where(free, rows, MANY)
        twice = self.readers[places] != rows
        self.readers[places[twice & free]] = MANY

    def _refuse(self, known: Whole, rows: Whole) -> None:
        own = (known == rows) | (known == NOBODY) | ((known >= 0) & (known < self.floor))
        if not own.all():
            raise Disorder


@dataclass
class Contents:
    """What a memory holds; `undefined` are elements that C leaves undefined. `watch` is None where it is only read."""

    numbers: Numbers
    undefined: Mask
    watch: Watch | None = None


@dataclass
class Registers:
    """One register memory of each row: all arrays have a row for each and a column for each element. `held` is FRESH,
    NEVER, or the position of a loop whose other steps may have stored the element."""

    numbers: Numbers
    undefined: Mask
    held: Whole

    @classmethod
    def make(cls, rows: int, size: int, carrier: np.dtype[np.generic]) -> Registers:
        """Returns registers that nobody has written."""
        shape = (rows, size)
        return cls(np.zeros(shape, carrier), np.ones(shape, np.bool_), np.full(shape, NEVER, np.int64))

    def fork(self, parents: Whole, loop: int | None) -> Registers:
        """Returns the registers of rows that come from others; `loop` is set where its steps store here."""
        held = self.held[parents]
        if loop is not None:
            held[:] = loop
        return Registers(self.numbers[parents], self.undefined[parents], held)

    def join(self, child: Registers, loop: int) -> None:
        """The steps of a loop are over, and have stored: what they leave here would be that of the last one."""
        stored = (child.held != loop).any(axis=0)
        self.held[:, stored] = loop

    def load(self, places: Whole) -> tuple[Numbers, Mask | None]:
        """Returns the elements at these columns, a row for each row. Raises Disorder."""
        outside = (places < 0) | (places >= self.numbers.shape[1])
        found: tuple[Any, ...] = self._find(np.where(outside, 0, places))
        held = self.held[found]
        if (held >= 0).any():
            raise Disorder(int(held.max()))
        undefined = self.undefined[found] | outside
        # what is stored later must not change it
        return self.numbers[found].copy(), undefined if undefined.any() else None

    def store(self, places: Whole, numbers: Numbers, undefined: Mask | None, chosen: Mask | None) -> None:
        """Stores at these columns of the chosen rows (None: of all), a column for each lane. Raises LeavesMemory."""
        shape = (len(self.numbers), places.shape[1])
        outside = (places < 0) | (places >= self.numbers.shape[1])
        if outside.any() and (chosen is None or (outside & chosen).any()):
            raise LeavesMemory("it writes outside of its registers")
        if undefined is None:
            undefined = np.zeros((1, 1), np.bool_)
        found: tuple[Any, ...] = self._find(places)
        if chosen is not None:
            numbers, undefined = np.broadcast_to(numbers, shape)[chosen], np.broadcast_to(undefined, shape)[chosen]
            rows = np.broadcast_to(np.arange(shape[0])[:, None], shape)[chosen]
            found = rows, np.broadcast_to(places, shape)[chosen]
        self.numbers[found], self.undefined[found], self.held[found] = numbers, undefined, FRESH

    def _find(self, places: Whole) -> tuple[Any, ...]:
        """Returns what takes these columns of all rows."""
        first, lanes = int(places[0, 0]), places.shape[1]
        # lanes stand beside each other, unless one was outside
        if len(places) == 1 and (lanes == 1 or (places[0] == np.arange(first, first + lanes)).all()):
            return slice(None), slice(first, first + lanes)
        return np.arange(len(self.numbers))[:, None], places
