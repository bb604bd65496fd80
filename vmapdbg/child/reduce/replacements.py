"""What may stand in the place of a node, so that a graph has fewer of them: a constant, an input, something that the
node is made from.

Whether a smaller graph still shows what is looked for is not known here. Runs with the overlay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.memory import make_buffer
from vmapdbg.child.reduce.shrink import Roots, count_up, is_value, open_ranges

_LEAVES = {Ops.BUFFER, Ops.CONST, Ops.COPY}
_MOST_SOURCES = 6
"""How many of the values that a node is made from are tried in its place."""


class Replacements:
    """Finds replacements. One that was made for a node is the same when the node is asked about again."""

    def __init__(self) -> None:
        self._inputs: dict[UOp, UOp | None] = {}

    def list_all(self, roots: Roots) -> Iterator[tuple[UOp, UOp]]:
        """Yields nodes with what may stand in their place, first those whose absence takes the most with it."""
        gains = count_gains(roots)
        nodes = [u for u in gains if u not in roots and is_value(u) and u.op not in _LEAVES]
        for u in sorted(nodes, key=lambda u: -gains[u]):
            for made in self.list_for(u):
                yield u, made

    def list_for(self, u: UOp) -> Iterator[UOp]:
        """Yields what may stand in the place of one node, of its shape and dtype."""
        if u not in self._inputs:
            self._inputs[u] = None if is_input(u) else make_input(u)
        made = self._inputs[u]
        if made is not None:
            yield made
        if not is_constant(u) and all(isinstance(s, int) for s in u.shape):
            yield u.const_like(1)
        yield from list_sources(u)


def replace_node(roots: Roots, u: UOp, made: UOp) -> Roots:
    """Returns the roots of the graph with a node replaced."""
    return list(UOp.sink(*roots).substitute({u: made}).src)


def count_gains(roots: Roots) -> dict[UOp, int]:
    """Returns for each node how many go where it goes: those that are used for nothing else, and itself."""
    sink = UOp.sink(*roots)
    order = list(reversed(list(sink.toposort())))
    readers: dict[UOp, list[UOp]] = {u: [] for u in order}
    for u in order:
        for s in dict.fromkeys(u.src):
            readers[s].append(u)
    # the last node that is on each way from the sink to a node
    last: dict[UOp, UOp] = {sink: sink}
    depths = {sink: 0}
    for u in order[1:]:
        first, *others = readers[u]
        common = first
        for other in others:
            common = _find_common(common, other, last, depths)
        last[u], depths[u] = common, depths[common] + 1
    gains = dict.fromkeys(order, 1)
    for u in reversed(order[1:]):
        gains[last[u]] += gains[u]
    del gains[sink]
    return gains


def _find_common(one: UOp, other: UOp, last: dict[UOp, UOp], depths: dict[UOp, int]) -> UOp:
    while one is not other:
        if depths[one] < depths[other]:
            other = last[other]
        else:
            one = last[one]
    return one


def list_sources(u: UOp) -> list[UOp]:
    """Returns values that a node is made from which can stand in its place, those made of the fewest nodes first."""
    found: dict[UOp, None] = {}
    ranges = open_ranges(u)
    for s in u.toposort():
        if s is u or not is_value(s) or s._device != u._device or open_ranges(s) != ranges:
            continue
        fitted = fit(s, u)
        if fitted is not None:
            found[fitted] = None
    direct = [s for s in u.src if s in found]
    return list(dict.fromkeys((*direct, *list(found)[:_MOST_SOURCES])))


def fit(s: UOp, u: UOp) -> UOp | None:
    """Returns a value in the shape and dtype of another one, by at most two ops; None where it takes more."""
    if s._shape != u._shape:
        if u.op not in GroupOp.Movement or s.dtype != u.dtype or s in u.src:
            return None
        return reshape_to(s, u.shape)
    if s.dtype == u.dtype:
        return s
    if s in u.src or s.op is Ops.CONST:
        return None
    return s.cast(u.dtype)


def reshape_to(s: UOp, shape: tuple[Any, ...]) -> UOp | None:
    """Returns a value in another shape: all of it, or a part, or repeated. None where that takes more ops."""
    old = s.shape
    if not all(isinstance(size, int) for size in (*old, *shape)):
        return None
    if math.prod(old) == math.prod(shape):
        return s.reshape(shape)
    if len(old) != len(shape):
        return None
    if all(have >= want for have, want in zip(old, shape, strict=True)):
        return s.shrink(tuple((0, want) for want in shape))
    if all(have in (1, want) for have, want in zip(old, shape, strict=True)):
        return s.expand(shape)
    return None


# *** inputs and constants


def is_input(u: UOp) -> bool:
    """A BUFFER in some shape, and perhaps the slice of a scope of it."""
    while u.op is Ops.RESHAPE or u.op.name == "VMAPIN":
        u = u.src[0]
    return u.op is Ops.BUFFER


def is_constant(u: UOp) -> bool:
    """A number in some shape."""
    while u.op in {Ops.RESHAPE, Ops.EXPAND}:
        u = u.src[0]
    return u.op is Ops.CONST


def make_input(u: UOp) -> UOp | None:
    """Returns a new input of the shape and dtype of a node, with an axis more for each scope that it is in."""
    ranges = open_ranges(u)
    if not all(isinstance(s, int) for s in u.shape) or not isinstance(u.device, str):
        return None
    shape = (*(int(r.vmax) + 1 for r in ranges), *map(int, u.shape))
    data = count_up(math.prod(shape), u.dtype)
    if data is None:
        return None
    made = make_buffer(u.device, math.prod(shape), u.dtype, data).reshape(shape)
    if ranges:
        made = made.vmapin((*ranges, *[0] * len(u.shape)))
    return made
