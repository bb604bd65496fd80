"""Smaller graphs made from one: fewer outputs, nodes replaced by inputs, constants or their sources, smaller sizes.

Whether a smaller graph still shows the fault is decided by the reducer. Runs with the overlay, or any tinygrad: ops are
known by their names, because releases have others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from tinygrad.device import Device
from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.memory import make_buffer, name_dtype
from vmapdbg.values.numbers import encode
from vmapdbg.values.tolerance import ITEMSIZE

Roots = list[UOp]


def fewer_outputs(roots: Roots) -> Iterable[Roots]:
    """Yields each output alone; then all outputs without one half, without one quarter, ... without one."""
    count = len(roots)
    if count > 1:
        yield from ([root] for root in roots)
    length = count // 2
    while length and count > 2:
        for first in range(0, count, length):
            yield roots[:first] + roots[first + length :]
        length //= 2


def earlier_outputs(roots: Roots) -> Iterable[Roots]:
    """Replaces an output by one of its ancestors, the earliest first. An ancestor inside scopes is collected over
    them. If there are many, a few that are far apart come first."""
    for index, root in enumerate(roots):
        earlier = [u for u in root.toposort() if u is not root and is_value(u) and u.op not in _LEAVES]
        if len(earlier) > _MANY:
            coarse = dict.fromkeys(earlier[:: len(earlier) // _FIRST])
            earlier = list(coarse | dict.fromkeys(earlier))
        for u in earlier:
            collected: Any = u
            if ranges := open_ranges(u):
                if not has_sizes(u):
                    continue
                collected = collected.vmapout((*ranges, *[0] * len(u.shape)))
            if collected is not root:
                yield [*roots[:index], collected, *roots[index + 1 :]]


def smaller_sizes(roots: Roots) -> Iterable[Roots]:
    """Replaces each size of an axis by 2, or by 3, everywhere. Inputs get new contents."""
    sizes = {s for u in UOp.sink(*roots).toposort() if is_value(u) for s in u.shape if isinstance(s, int) and s > 2}
    for size in sorted(sizes, reverse=True):
        for smaller in (2, 3):
            if smaller < size and (made := _resize(roots, size, smaller)) is not None:
                yield made


_LEAVES = {Ops.BUFFER, Ops.CONST, Ops.COPY}
_NO_VALUES = frozenset({"DEVICE", "UNIQUE", "LUNIQUE", "SINK", "RANGE", "DEFINE_VAR", "BIND"})
# of sizes and indices, of numbers that are part of another node (0.14), and of no value
_NO_DTYPES = frozenset({"index", "weakint", "weakfloat", "void"})
_MANY = 100
_FIRST = 16


def measure(roots: Roots) -> tuple[int, int]:
    """Returns the size of a graph: its nodes, then the elements of all nodes."""
    values = [u for u in UOp.sink(*roots).toposort() if is_value(u)]
    return len(values), sum(math.prod(s for s in u.shape if isinstance(s, int)) for u in values)


def is_value(u: UOp) -> bool:
    """Whether a node is a value of Tensors: not an index, a device, or a node without a device."""
    if u.op.name in _NO_VALUES or name_dtype(u.dtype).partition(".")[0] in _NO_DTYPES:
        return False
    # from 0.13 on, constants and what is made of them alone have no device
    return u._shape is not None and getattr(u, "_device", "") is not None


def device_of(u: UOp) -> Any:
    """Returns the device of a value, the default device for a value that has none."""
    found = getattr(u, "_device", None) or u.device
    return Device.DEFAULT if found is None else found


def open_ranges(u: UOp) -> list[UOp]:
    return sorted(u.ranges, key=lambda r: -r.arg[0])


def has_sizes(u: UOp) -> bool:
    """Whether no size of a node's shape is symbolic."""
    return all(isinstance(s, int) for s in u.shape)


def count_up(size: int, dtype: Any) -> bytes:
    """Returns the bytes of 1, 2, 3, ...; of 1, 0, 1, 0 for bools."""
    numbers = np.arange(size)
    return encode((numbers + 1) % 2 if dtype == dtypes.bool else numbers % 100 + 1, name_dtype(dtype)).data


def _resize(roots: Roots, size: int, smaller: int) -> Roots | None:
    """Rebuilds the graph with another size; None if its sizes no longer match."""
    built: dict[UOp, UOp] = {}
    try:
        for u in UOp.sink(*roots).toposort():
            built[u] = _resize_node(u, [built[s] for s in u.src], size, smaller)
            if is_value(u):
                assert built[u].shape is not None
    except Exception:  # each op raises another error for shapes that do not match
        return None
    return [built[root] for root in roots]


def _resize_node(u: UOp, sources: list[UOp], size: int, smaller: int) -> UOp:
    def scale(n: Any) -> Any:
        if isinstance(n, tuple):
            return tuple(map(scale, n))
        return n // size * smaller if isinstance(n, int) and n % size == 0 else n

    if u.op is Ops.BUFFER:
        count = int(scale(math.prod(u.shape)))
        if count == math.prod(u.shape):
            return u
        return make_buffer(device_of(u), count, u.dtype, count_up(count, u.dtype))
    if u.op is Ops.RANGE:
        return UOp.range(scale(u.src[0].arg), *u.arg)
    if u.op in GroupOp.Movement:
        # the others have numbers of axes
        has_ints = u.op in {Ops.RESHAPE, Ops.EXPAND, Ops.SHRINK, Ops.PAD}
        return sources[0]._mop(u.op, scale(u.marg) if has_ints else u.marg)
    return u.replace(src=tuple(sources))


# *** nodes replaced

# *** nodes replaced

_MOST_SOURCES = 6
"""How many ancestors of a node are tried in its place."""


class ReplacedNodes:
    """The step that replaces nodes. It tries each replacement once, however often it is repeated."""

    def __init__(self) -> None:
        self.tried: set[tuple[UOp, UOp]] = set()

    def __call__(self, roots: Roots) -> Iterator[Roots]:
        for pair in list_replacements(roots):
            if pair not in self.tried:
                self.tried.add(pair)
                yield replace_node(roots, *pair)


def list_replacements(roots: Roots) -> Iterator[tuple[UOp, UOp]]:
    """Yields nodes with their replacements; nodes near the outputs come first: without them most other nodes go."""
    order = list(dict.fromkeys(roots))
    seen = set(order)
    for u in order:
        sources = [s for s in dict.fromkeys(u.src) if s not in seen]
        seen.update(sources)
        order += sources
        if u not in roots and is_value(u) and u.op not in _LEAVES:
            for made in replacements_of(u):
                yield u, made


@functools.cache
def replacements_of(u: UOp) -> list[UOp]:
    """Returns replacements of a node, with its shape and dtype. A node always has the same ones."""
    source = u
    while source.op in {Ops.RESHAPE, Ops.EXPAND}:
        source = source.src[0]
    constants = [u.const_like(1)] if source.op is not Ops.CONST and has_sizes(u) else []
    return [made for made in (make_input(u), *constants, *list_sources(u)) if made is not None]


def replace_node(roots: Roots, u: UOp, made: UOp) -> Roots:
    """Returns the roots of the graph with a node replaced."""
    return list(UOp.sink(*roots).substitute({u: made}).src)


def list_sources(u: UOp) -> list[UOp]:
    """Returns the ancestors of a node with its shape and dtype, smallest graphs first."""
    ranges = open_ranges(u)
    found = [s for s in u.toposort() if s is not u and is_value(s) and (s._shape, s.dtype) == (u._shape, u.dtype)]
    found = [s for s in found if device_of(s) == device_of(u) and open_ranges(s) == ranges]
    direct = [s for s in u.src if s in found]
    return list(dict.fromkeys((*direct, *found[:_MOST_SOURCES])))


def make_input(u: UOp) -> UOp | None:
    """Returns a new input with the shape and dtype of a node, and one more axis for each scope around the node. None if
    it is not possible, or the node is an input already."""
    source = u
    while source.op is Ops.RESHAPE or source.op.name == "VMAPIN":
        source = source.src[0]
    is_made = has_sizes(u) and isinstance(device_of(u), str) and name_dtype(u.dtype) in ITEMSIZE
    if source.op is Ops.BUFFER or not is_made:
        return None
    ranges = open_ranges(u)
    shape = (*(int(r.vmax) + 1 for r in ranges), *map(int, u.shape))
    size = math.prod(shape)
    made = make_buffer(device_of(u), size, u.dtype, count_up(size, u.dtype)).reshape(shape)
    if ranges:
        made = made.vmapin((*ranges, *[0] * len(u.shape)))
    return made
