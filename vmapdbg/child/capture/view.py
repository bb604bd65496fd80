"""One run of the rangeify pass, as the model needs it: its nodes, ranges, lines and launches. Nothing here depends on a
release of tinygrad."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from vmapdbg.child.listen.classify import asked_of
from vmapdbg.child.listen.records import Launch, PassRecord
from vmapdbg.child.memory import name_dtype
from vmapdbg.child.program.reach import find_outside

UOp = Any
Ranges = tuple[UOp, ...]

# the first source of these is a value, the others say how large it is, or where
_SHAPED = frozenset({"RESHAPE", "EXPAND", "PAD", "SHRINK", "COPY"})
# all sources of these say how large, or where
_PLACES = frozenset({"BUFFER", "PARAM", "BUFFER_VIEW", "CONST"})
# no values of the program: where things are, and the schedule's own root
_NOT_NODES = frozenset({"DEVICE", "UNIQUE", "LUNIQUE", "SINK", "RANGE"})


class View:
    """One run of the rangeify pass, with what the model calls its nodes, ranges and lines.

    `graph` are its UOps, sources first. `ids` has the id of each node, `lines` the user's line of a node, `methods` the
    method of Tensor that is called there, `range_map` (ranges in, ranges out, ...) of a node, `ambient` the ambient
    ranges of a node. `scope_ranges` are the ranges of vmap scopes. `held` has the node whose value a BUFFER holds,
    `launches` are in the order of the schedule. If it `is_brief`, a Capture has only the names and the buffers of
    kernels, and nothing that only `lint` asks for.
    """

    def __init__(self, passed: PassRecord, is_brief: bool = False) -> None:
        self.passed, self.is_brief = passed, is_brief
        self._names: dict[UOp, str] = {}
        self._find_outside = functools.cache(find_outside)
        self.graph = passed.toposort
        self.ids = {u: number for number, u in enumerate(find_nodes(passed))}
        self.lines = {u: origin.line for u, origin in passed.origins.items()}
        self.methods = {u: origin.method for u, origin in passed.origins.items() if origin.method is not None}
        self.range_map = passed.range_map
        self.ambient = passed.ambient
        self.scope_ranges = passed.scope_ranges
        self.held = passed.held
        self.launches = self._count_launches()

    def find_indices(self, node: UOp) -> Ranges:
        """Returns what a node that has ranges indexes its first source with: with implicit broadcasting, not all of its
        ranges."""
        return asked_of(self.passed, node, node.src[0]) or ()

    def find_outside(self, index: UOp, size: int) -> tuple[int, int] | None:
        """Returns the bounds of an index that leaves its axis; None for any other, and if `lint` does not ask."""
        if self.is_brief:
            return None
        # thousands of nodes share few index expressions
        return self._find_outside(index, size)

    def render(self, u: UOp) -> str:
        """tinygrad's `render()`, remembering the parts: thousands of nodes share few index expressions."""
        if u not in self._names:
            renderer = _find_renderer()
            for part in u.toposort(gate=lambda x: x not in self._names):
                self._names[part] = str(renderer.rewrite(part, ctx=self._names))
        return self._names[u]

    def render_all(self, ranges: Iterable[UOp]) -> tuple[str, ...]:
        return tuple(self.render(r) for r in ranges)

    def _count_launches(self) -> list[Launch]:
        """Joins launches of one kernel that differ only in the value of a variable, as the steps of an OUTER range."""
        found: dict[Any, list[int]] = {}
        for index, kernel in enumerate(self.passed.kernels):
            key = (kernel.ast, kernel.buffers)
            if not kernel.variables:
                key = (*key, index)
            found.setdefault(key, []).append(index)
        return [self._join_launches(indices) for indices in found.values()]

    def _join_launches(self, indices: list[int]) -> Launch:
        first = self.passed.kernels[indices[0]]
        node = first.node if first.node in self.ids else None
        in_a_row = indices[-1] - indices[0] + 1 == len(indices)
        varied = frozenset(first.variables if len(indices) > 1 and in_a_row else ())
        return replace(first, node=node, count=len(indices), varied=varied)


def find_nodes(passed: PassRecord) -> list[UOp]:
    """Returns the UOps of the graph that compute something, in its order: not the UOps that only give a size.

    From 0.13 on a shape consists of constants of a weak int, which may be numbers of the program as well.
    """
    values = {passed.tsink}
    for u in reversed(passed.toposort):
        if u in values:
            values.update(find_values(u))
            if u.op.name == "STORE":
                # the place that it writes to is a node, too
                values.add(u.src[0])
    return [u for u in passed.toposort if _is_node(u, is_value=u in values)]


def _is_node(u: UOp, is_value: bool) -> bool:
    scalar = name_dtype(u.dtype).partition(".")[0]
    if u.op.name in _NOT_NODES or scalar == "index":
        return False
    return is_value or scalar != "weakint"


@functools.cache
def _find_renderer() -> Any:
    """tinygrad's rules by which an expression is rendered. They moved after 0.12."""
    for name in ("tinygrad.uop.render", "tinygrad.uop.ops"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "renderer"):
            return module.renderer
    raise AttributeError("this tinygrad has no rules to render an expression with")


def size_of(s: Any) -> int | str:
    """Returns the size of an axis: a number, or a symbolic size as tinygrad renders it."""
    if not hasattr(s, "op"):
        return int(s)
    if s.op.name == "CONST":
        return s.arg
    return s.render()


def sizes_of(sizes: Iterable[Any] | None) -> tuple[int | str, ...] | None:
    """The same of each axis; None where there are no axes to speak of."""
    if sizes is None:
        return None
    return tuple(map(size_of, sizes))


def largest_of(s: Any) -> int:
    """Returns the size of an axis, of a symbolic one its largest."""
    return int(s.vmax) if hasattr(s, "op") else int(s)


def find_values(u: UOp) -> tuple[UOp, ...]:
    """Returns the sources that a UOp computes with: not its sizes, and not the place that a STORE writes to."""
    # an enum finds its name anew each time
    op = u.op.name
    if op in _PLACES:
        return ()
    if op == "STORE":
        return u.src[1:2]
    if op in _SHAPED:
        return u.src[:1]
    return u.src
