"""Computes a packed graph with an oracle, one element of each vmap scope after the other. Runs without the overlay.

The RANGE of a scope is replaced by 0, 1, ... n-1. A VMAPIN is the slice of its source at that number, a VMAPOUT the
slices put in their places. Both are done here, on bytes; what is between them is an ordinary graph, which the oracle
computes. Each step of a scope is the same graph with other inputs, so that stock tinygrad compiles only the first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vmapdbg.child.evidence.graphs import PackedGraph
from vmapdbg.child.oracle.in_double import Widening
from vmapdbg.child.oracle.oracle import Env, Oracle
from vmapdbg.child.oracle.scopes import Scopes
from vmapdbg.values.numbers import Array
from vmapdbg.values.slices import join_slices, take_slice


class Unroller:
    """One packed graph and the oracle that computes it. `given` has values of nodes, by slot, that are taken instead of
    computed, the same at every step.
    """

    def __init__(
        self,
        graph: PackedGraph,
        read: Callable[[str], bytes],
        oracle: type[Oracle],
        widening: Widening | None = None,
        given: Mapping[int, Array] = {},
    ):
        self.graph, self.given = graph, given
        self.scopes = Scopes(graph, given)
        self.oracle = oracle(graph, read, widening)
        self._known: dict[tuple[Any, ...], Array] = {}

    def evaluate(self, slots: Iterable[int], env: Env = {}) -> list[Array]:  # noqa: B006
        """Returns the values of nodes, computed together, at the steps that `env` gives."""
        wanted = list(slots)
        known = {end: self._value(end, env) for slot in wanted for end in self.scopes.find_ends(slot)}
        return self.oracle.compute(wanted, env, known)

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
        return self.evaluate([slot], env)[0]

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
