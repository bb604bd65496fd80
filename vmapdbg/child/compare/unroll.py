"""Computes a packed graph with an oracle, one element of each vmap scope after the other. Runs without the overlay.

The RANGE of a scope is replaced by 0, 1, ... n-1. A VMAPIN is the slice of its source at that number, a VMAPOUT the
slices put in their places. Both are done here, on bytes; what is between them is an ordinary graph, which the oracle
computes. Each step of a scope is the same graph with other inputs, so that stock tinygrad compiles only the first."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vmapdbg.child.compare.in_double import Widening
from vmapdbg.child.compare.oracle import Oracle, Question, Read, Refused, Values
from vmapdbg.child.compare.scopes import Scopes
from vmapdbg.child.evidence.graphs import PackedGraph
from vmapdbg.values.numbers import Array
from vmapdbg.values.slices import join_slices, take_slice

Env = Mapping[int, int]
"""Slot of a RANGE -> the number that stands for it."""


class GraphRunner(ABC):
    """Computes one packed graph. `read` returns the contents of an input by their name. With `widening` floats are
    computed in double precision.

    It is not asked about vmap scopes: those are unrolled step by step by `Unroller`, which puts slices in their places.
    """

    def __init__(self, graph: PackedGraph, read: Read, widening: Widening | None):
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


class UnrolledOracle(Oracle):
    """An oracle that runs graphs with a runner, each vmap scope unrolled."""

    def __init__(self, runner: type[GraphRunner]):
        self.runner = runner

    def open(self, question: Question) -> Values | None:
        evidence, precision = question.evidence, question.precision
        if evidence.refused is not None:
            raise Refused(evidence.refused)
        sealed = evidence.graph if question.which == "asked" else evidence.passed
        if sealed is None:
            return None
        graph = sealed.get()
        if question.which == "asked" and (refusal := self.runner.refuse(graph)) is not None:
            raise Refused(refusal)
        widening = None if precision is None else Widening(precision.seed)
        return Unroller(graph, question.read, self.runner, widening, question.given)


class Unroller:
    """One packed graph and the runner that computes it. `given` has values of nodes, by slot, that are taken instead of
    computed, the same at every step.
    """

    def __init__(
        self,
        graph: PackedGraph,
        read: Read,
        runner: type[GraphRunner],
        widening: Widening | None,
        given: Mapping[int, Array],
    ):
        self.graph, self.given = graph, given
        self.scopes = Scopes(graph, given)
        self.runner = runner(graph, read, widening)
        self.roots = graph.roots
        self._known: dict[tuple[Any, ...], Array] = {}

    @property
    def evaluations(self) -> int:
        return self.runner.evaluations

    # *** what is known without computing

    def find_shape(self, slot: int) -> tuple[int, ...] | None:
        return self.scopes.node(slot).shape

    def find_ambient(self, slot: int) -> tuple[int, ...]:
        return tuple(self.scopes.node(r).arg[0] for r in self.scopes.ambient(slot))

    def find_sizes(self, slot: int) -> tuple[int, ...]:
        return tuple(self.scopes.size(r) for r in self.scopes.ambient(slot))

    def find_between(self, slot: int, others: Sequence[int]) -> list[int]:
        ends = set(others)
        return [s for s in self.graph.reach(slot, ends) if s in ends]

    def count_evaluations(self, slot: int) -> int:
        return self.scopes.count_evaluations(slot)

    def count_batch(self, slot: int) -> int:
        return self.count_evaluations(slot) * math.prod(self.find_sizes(slot))

    def count_roundings(self, slot: int) -> int:
        return self.scopes.count_roundings(slot)

    def find_undefined(self, slot: int) -> None:
        return None

    def find_leaving(self, slot: int) -> int | None:
        return self.scopes.find_leaving(slot)

    def find_leaving_axis(self, slot: int) -> tuple[int, int]:
        first = self.scopes.named_ranges(slot)[0]
        return self.scopes.node(slot).src[1:].index(first), self.scopes.size(first)

    # *** values

    def evaluate(self, slots: Sequence[int]) -> list[Array | str]:
        return list(self._evaluate(slots, {}))

    def _evaluate(self, slots: Iterable[int], env: Env) -> list[Array]:
        """Returns the values of nodes, computed together, at the steps that `env` gives."""
        wanted = list(slots)
        known = {end: self._value(end, env) for slot in wanted for end in self.scopes.find_ends(slot)}
        return self.runner.compute(wanted, env, known)

    def evaluate_batch(self, slot: int) -> Array:
        """Returns the value of a node inside scopes for every step of them: their sizes are the first axes."""
        ambient = self.scopes.ambient(slot)
        return self._collect(slot, ambient, {}, tuple(range(len(ambient))))

    def evaluate_step(self, slot: int, step: int) -> Array:
        """Returns one slice of a VMAPOUT: that of one step of its first RANGE, all steps of the others."""
        node = self.scopes.node(slot)
        first, *others = self.scopes.named_ranges(slot)
        axes = [axis for axis, v in enumerate(node.src[1:]) if v in others]
        gone = node.src[1:].index(first)
        return self._collect(node.src[0], tuple(others), {first: step}, tuple(a - (a > gone) for a in axes))

    def _value(self, slot: int, env: Env) -> Array:
        """Returns the value of a node at the steps of `env`, computed once for those that it depends on."""
        if slot in self.given:
            return self.given[slot]
        key = (slot, *((r, env[r]) for r in sorted(self.scopes.open[slot])))
        if key not in self._known:
            self._known[key] = self._compute(slot, env)
        return self._known[key]

    def _compute(self, slot: int, env: Env) -> Array:
        op = self.scopes.node(slot).op
        if op == "VMAPIN":
            return self._slice(slot, env)
        if op == "VMAPOUT":
            return self._stack(slot, env)
        return self._evaluate([slot], env)[0]

    def _slice(self, slot: int, env: Env) -> Array:
        node = self.scopes.node(slot)
        source = self._value(node.src[0], env)
        fixed = {axis: env[v] for axis, v in enumerate(node.src[1:]) if self.scopes.node(v).op == "RANGE"}
        return take_slice(source, fixed)

    def _stack(self, slot: int, env: Env) -> Array:
        node = self.scopes.node(slot)
        axes = tuple(axis for axis, v in enumerate(node.src[1:]) if self.scopes.node(v).op == "RANGE")
        return self._collect(node.src[0], self.scopes.named_ranges(slot), env, axes)

    def _collect(self, slot: int, ranges: tuple[int, ...], env: Env, axes: tuple[int, ...]) -> Array:
        """The values of a node at all steps of `ranges`, which become the `axes` of the result."""
        sizes = [self.scopes.size(r) for r in ranges]
        every = itertools.product(*map(range, sizes))
        slices = [self._value(slot, {**env, **dict(zip(ranges, steps, strict=True))}) for steps in every]
        return join_slices(slices, axes, sizes)
