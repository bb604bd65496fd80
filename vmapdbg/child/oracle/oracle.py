"""What an oracle is: it computes nodes of a packed graph anew, so that what a run got can be compared with it.

Each is one file, `by_NAME.py`, with a DESCRIPTION and an ORACLE, a class of `Oracle`; `vmapdbg.check.oracles` finds it.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from vmapdbg.check.oracles import name_module
from vmapdbg.child.evidence.graphs import PackedGraph
from vmapdbg.child.oracle.in_double import Widening
from vmapdbg.values.numbers import Array

Env = Mapping[int, int]
"""Slot of a RANGE -> the number that stands for it."""


class Oracle(ABC):
    """Computes one packed graph. `read` returns the contents of an input by their name. With `widening` floats are
    computed in double precision.

    It is not asked about vmap scopes: those are unrolled step by step by `Unroller`, which puts slices in their places.
    """

    def __init__(self, graph: PackedGraph, read: Callable[[str], bytes], widening: Widening | None):
        self.graph, self.read, self.widening = graph, read, widening
        # how often it computed anything
        self.evaluations = 0

    @classmethod
    @abstractmethod
    def refuse(cls, graph: PackedGraph) -> str | None:
        """Returns why it cannot compute a graph, as a sentence; None where it can."""

    @abstractmethod
    def compute(self, slots: Sequence[int], env: Env, known: Mapping[int, Array]) -> list[Array]:
        """Returns the values of nodes at the steps that `env` gives to RANGEs.

        `known` has the values of the nodes at which the way down from them ends: a VMAPIN, a VMAPOUT, or one that is
        given. May raise anything where a value cannot be computed after all.
        """


def find_oracle(name: str) -> type[Oracle]:
    """Returns the oracle of a name of `vmapdbg.check.oracles.ORACLES`."""
    return importlib.import_module(name_module(name)).ORACLE
