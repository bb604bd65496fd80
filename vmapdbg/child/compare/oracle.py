"""What an oracle is: it computes a graph of the evidence anew, so that what a run got can be compared with it.

Each is one file, `by_NAME.py`, with a DESCRIPTION and an ORACLE, an `Oracle`; `vmapdbg.check.oracles` finds it.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.oracles import name_module
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.values.numbers import Array

Which = Literal["asked", "passed"]
"""The graph as the snippet asked for it, or as the pass of the scheduler saw it."""

Read = Callable[[str], bytes]
"""Returns the contents of an input by their name."""


SEEDS = (1, 2, 3)
"""Runs with inputs and results moved by their rounding, when a float is wrong."""


class Refused(Exception):
    """An oracle cannot compute a graph; the message says why, as a sentence."""


@dataclass(frozen=True)
class InDoublePrecision:
    """Floats are computed in double precision; with a `seed` each rounding moves a number by chance."""

    seed: int | None = None


@dataclass(frozen=True)
class Question:
    """Which graph of the evidence is to be computed, and how. `read` has the contents of its inputs. With a `precision`
    floats are computed in that one, not in their own. `given` has the values of nodes, by position, that are taken
    instead of computed, the same at every step."""

    evidence: Evidence
    which: Which
    read: Read
    precision: InDoublePrecision | None
    given: Mapping[int, Array]


class Values(Protocol):
    """The values of one graph, as one oracle computes them. Nodes are known by their positions in the graph."""

    @property
    def roots(self) -> Sequence[int]: ...

    @property
    def evaluations(self) -> int:
        """How often anything was computed."""
        ...

    def find_shape(self, slot: int) -> tuple[int, ...] | None: ...

    def find_ambient(self, slot: int) -> tuple[int, ...]:
        """Returns the ids of the RANGEs that are open in a node, outermost first."""
        ...

    def find_sizes(self, slot: int) -> tuple[int, ...]:
        """Returns the sizes of the RANGEs that are open in a node."""
        ...

    def find_between(self, slot: int, others: Sequence[int]) -> list[int]:
        """Returns those of other nodes that a node is made from, where no other one of them stands between."""
        ...

    def count_evaluations(self, slot: int) -> int:
        """Returns at most how many graphs must be computed for the value of a node."""
        ...

    def count_batch(self, slot: int) -> int:
        """Returns the same for all steps of its open RANGEs."""
        ...

    def count_roundings(self, slot: int) -> int:
        """Returns how many roundings there are on the longest way from an input to a node."""
        ...

    def evaluate(self, slots: Sequence[int]) -> list[Array | str]:
        """Returns the values of nodes, or why one cannot be had."""
        ...

    def evaluate_batch(self, slot: int) -> Array | str:
        """Returns the value of a node for every step of its open RANGEs: their sizes are the first axes."""
        ...

    def find_undefined(self, slot: int) -> NDArray[np.bool_] | None:
        """Returns which elements of a value that was computed nobody defines; None where there are none."""
        ...

    def find_leaving(self, slot: int) -> int | None:
        """Returns the VMAPOUT whose elements, in its order, are those of a node; None where its steps are not computed
        one by one."""
        ...

    def find_leaving_axis(self, slot: int) -> tuple[int, int]:
        """Returns which axis of a VMAPOUT its first RANGE is, and its size."""
        ...

    def evaluate_step(self, slot: int, step: int) -> Array | str:
        """Returns one slice of a VMAPOUT: that of one step of its first RANGE."""
        ...


class Oracle(ABC):
    """One way to compute graphs of the evidence."""

    @abstractmethod
    def open(self, question: Question) -> Values | None:
        """Returns the values of a graph, None where the evidence has none for it. Raises Refused."""


def find_oracle(name: str) -> Oracle:
    """Returns the oracle of a name of `vmapdbg.check.oracles.ORACLES`."""
    return importlib.import_module(name_module(name)).ORACLE
