"""The memory of a linear program that runs by numpy: many steps and threads of it at once, each a row.

That gives what the program gives only where no row reads or writes what another one writes: it is watched while it
runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vmapdbg.reference.value import Mask, Unknown
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
        inside = np.where(outside, 0, places)
        rows = np.arange(len(self.numbers))[:, None]
        held = self.held[rows, inside]
        if (held >= 0).any():
            raise Disorder(int(held.max()))
        undefined = self.undefined[rows, inside] | outside
        return self.numbers[rows, inside], undefined if undefined.any() else None

    def store(self, places: Whole, numbers: Numbers, undefined: Mask, chosen: Mask) -> None:
        """Stores at these columns of the chosen rows."""
        rows = np.broadcast_to(np.arange(len(self.numbers))[:, None], chosen.shape)[chosen]
        columns = np.broadcast_to(places, chosen.shape)[chosen]
        if ((columns < 0) | (columns >= self.numbers.shape[1])).any():
            raise LeavesMemory("it writes outside of its registers")
        self.numbers[rows, columns] = np.broadcast_to(numbers, chosen.shape)[chosen]
        self.undefined[rows, columns] = np.broadcast_to(undefined, chosen.shape)[chosen]
        self.held[rows, columns] = FRESH
