"""The rows of a linear program that runs by numpy: each is one step of the loops that run at once, of one thread."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.linear_memory import Registers, Whole
from vmapdbg.reference.linear_values import Lanes
from vmapdbg.reference.value import Mask
from vmapdbg.values.numbers import Numbers


@dataclass
class Rows:
    """Rows that run at once. `ids` has a number for each that no others have, `threads` that of the thread that it
    belongs to, `groups` that of its group. `parents` are the rows of `before` that they come from. `active` are those
    inside of all conditions; None: all. `counters` are the loop whose steps they are, or the threads."""

    ids: Whole
    threads: Whole
    groups: Whole
    before: Rows | None = None
    parents: Whole | None = None
    active: Mask | None = None
    counters: tuple[int, ...] = ()
    values: dict[int, Lanes] = field(default_factory=dict)
    registers: dict[int, Registers] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.ids)

    def find(self, position: int) -> Lanes:
        """Returns the value of an instruction. Raises Unknown where it has none yet."""
        if position not in self.values:
            if self.before is None:
                raise Unknown("it uses a value before it is computed")
            assert self.parents is not None
            self.values[position] = self.before.find(position).take(self.parents)
        return self.values[position]

    def fork(self, ids: Whole, parents: Whole, loop: int, steps: Numbers) -> Rows:
        """Returns rows that come from these and are steps of a loop, without registers."""
        active = None if self.active is None else self.active[parents]
        made = Rows(ids, self.threads[parents], self.groups[parents], self, parents, active, (loop,))
        made.values[loop] = Lanes(steps[:, None])
        return made

    @property
    def mask(self) -> Mask:
        """`active`, as a column."""
        if self.active is None:
            return np.ones((1, 1), np.bool_)
        return self.active[:, None]
