"""Computes the sizes and shifts of a graph that are UOps, if their variables have a value now. Runs in the child."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vmapdbg.model.ops import ARITHMETIC

UOp = Any


class Unsized(Exception):
    """A size depends on something without a value; the message says on what."""


_WRAPPERS = {"CAST", "VECTORIZE", "NOOP"}


class Sizes:
    """Finds numbers. `variables` has the values of variables that no graph binds, by their names."""

    def __init__(self, variables: Mapping[str, int]):
        self.variables = dict(variables)
        self._known: dict[UOp, int | None] = {}

    def need(self, size: int | UOp) -> int:
        """Returns a size. Raises Unsized."""
        found = self.find(size)
        if found is None:
            raise Unsized("its shape depends on a variable without a value")
        return found

    def find(self, size: int | UOp) -> int | None:
        """Returns a size as a number, None if it is not known."""
        if isinstance(size, int):
            return int(size)
        if size not in self._known:
            self._known[size] = self._compute(size)
        return self._known[size]

    def _compute(self, u: UOp) -> int | None:
        op = u.op.name
        if op == "CONST":
            return int(u.arg) if isinstance(u.arg, int) else None
        if op == "BIND":
            # 0.12 leaves the value out when it looks for a schedule in its cache
            return self.find(u.src[-1])
        if op == "DEFINE_VAR":
            return self.variables.get(u.arg[0])
        if getattr(u, "is_bound_var", False):
            return self.find(u.src[1].src[1])
        if getattr(u, "is_variable", False) or op == "PARAM":
            return self.variables.get(_name_variable(u))
        if op in _WRAPPERS and len(u.src) == 1:
            return self.find(u.src[0])
        compute = ARITHMETIC[op].on_integers if op in ARITHMETIC else None
        parts = [self.find(s) for s in u.src]
        known = [part for part in parts if part is not None]
        if compute is None or len(known) < len(parts):
            return None
        return int(compute(*known))


def _name_variable(u: UOp) -> str:
    """Returns the name of a variable that is a PARAM. In 0.13 its last source has the name."""
    last = u.src[-1].arg if u.src and u.src[-1].op.name == "NOOP" else None
    return getattr(u.arg, "name", None) or last or ""


def find_variables(sink: UOp) -> dict[str, int]:
    """Returns the variables that a graph gives values to, by their names."""
    found: dict[str, int] = {}
    for u in sink.toposort():
        if u.op.name == "BIND" and u.src[-1].op.name == "CONST":
            found[u.src[0].arg[0]] = int(u.src[-1].arg)
        elif getattr(u, "is_bound_var", False):
            found[u.src[0].arg.name] = int(u.src[1].src[1].arg)
    return found


def find_argument_sizes(scheduled: UOp) -> dict[str, int]:
    """Returns the variables of a scheduled CALL. From 0.13 on the graph of the pass names a variable by its place among
    the arguments."""
    if scheduled.op.name != "CALL":
        return {}
    places = {f"p{place}": Sizes({}).find(u) for place, u in enumerate(scheduled.src[1:])}
    return {name: number for name, number in places.items() if number is not None}
