"""Smaller graphs made from one: fewer outputs, less above and below, inputs in place of subgraphs, smaller sizes.

Whether a smaller graph still shows what is looked for is not known here. Runs with the overlay.
"""

from __future__ import annotations

import array
import math
from collections.abc import Callable, Iterable
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.memory import make_buffer, read_buffer

Roots = list[UOp]
Step = Callable[[Roots], Iterable[Roots]]


def fewer_outputs(roots: Roots) -> Iterable[Roots]:
    """Each output alone; then all but a half of them, but a quarter, ... but one."""
    count = len(roots)
    if count > 1:
        yield from ([root] for root in roots)
    length = count // 2
    while length and count > 2:
        for first in range(0, count, length):
            yield roots[:first] + roots[first + length :]
        length //= 2


def earlier_outputs(roots: Roots) -> Iterable[Roots]:
    """What an output is made from in its place, the earliest first; a value inside scopes is collected over them. Of
    many such some far apart come first."""
    for index, root in enumerate(roots):
        earlier = [u for u in root.toposort() if u is not root and is_value(u) and u.op not in _LEAVES]
        for u in spread(earlier):
            collected = _collect(u)
            if collected is not None and collected is not root:
                yield [*roots[:index], collected, *roots[index + 1 :]]


def spread(items: list[UOp]) -> list[UOp]:
    """Returns some items in order, and then the others in order, where they are many."""
    if len(items) <= _MANY:
        return items
    coarse = items[:: len(items) // _FIRST]
    return [*coarse, *(u for u in items if u not in set(coarse))]


def smaller_sizes(roots: Roots) -> Iterable[Roots]:
    """Each size of an axis made 2, or 3, wherever it stands. Inputs get new contents."""
    sizes = {s for u in UOp.sink(*roots).toposort() if is_value(u) for s in u.shape if isinstance(s, int) and s > 2}
    for size in sorted(sizes, reverse=True):
        for smaller in (2, 3):
            if smaller < size and (made := _resize(roots, size, smaller)) is not None:
                yield made


def plainer_numbers(roots: Roots) -> Iterable[Roots]:
    """Contents 1, 2, 3 ... for an input, 2 for a constant."""
    sink = UOp.sink(*roots)
    for u in sink.toposort():
        if u.op is Ops.BUFFER and isinstance(u.device, str):
            plain = count_up(u.arg, u.dtype)
            if plain is not None and plain != read_buffer(u.buffer):
                yield list(sink.substitute({u: make_buffer(u.device, u.arg, u.dtype, plain)}).src)
        elif u.op is Ops.CONST and dtypes.is_float(u.dtype) and u.arg not in (0.0, 1.0, -1.0, 2.0):
            yield list(sink.substitute({u: u.replace(arg=2.0)}).src)


STEPS: tuple[Step, ...] = (fewer_outputs, earlier_outputs)
"""Each makes a graph of fewer nodes, as do the replacements of `replacements`."""
LAST_STEPS: tuple[Step, ...] = (smaller_sizes, plainer_numbers)
_LEAVES = {Ops.BUFFER, Ops.CONST, Ops.COPY}
_MANY = 100
_FIRST = 16


def count_nodes(roots: Roots) -> int:
    return sum(is_value(u) for u in UOp.sink(*roots).toposort())


def measure(roots: Roots) -> tuple[int, int]:
    """Returns what a reduction makes smaller: the nodes, then the elements of all of them."""
    values = [u for u in UOp.sink(*roots).toposort() if is_value(u)]
    return len(values), sum(math.prod(s for s in u.shape if isinstance(s, int)) for u in values)


def is_value(u: UOp) -> bool:
    no_value = {Ops.DEVICE, Ops.UNIQUE, Ops.SINK, Ops.RANGE, Ops.DEFINE_VAR, Ops.BIND}
    return u.op not in no_value and u.dtype.scalar() != dtypes.index and u._shape is not None and u._device is not None


def open_ranges(u: UOp) -> list[UOp]:
    return sorted(u.ranges, key=lambda r: -r.arg[0])


def _collect(u: UOp) -> UOp | None:
    """The value with the RANGEs that are open in it as its first axes."""
    ranges = open_ranges(u)
    if not ranges:
        return u
    if not all(isinstance(s, int) for s in u.shape):
        return None
    enters: Any = u
    return enters.vmapout((*ranges, *[0] * len(u.shape)))


def count_up(size: int, dtype: Any) -> bytes | None:
    """The bytes of 1, 2, 3, ...; of 1, 0, 1, 0 for bools. None for a dtype that Python has no numbers of."""
    if dtype == dtypes.bool:
        return bytes((i + 1) % 2 for i in range(size))
    # array has no half
    if dtype.fmt is None or dtype.fmt == "e":
        return None
    return array.array(dtype.fmt, [i % 100 + 1 for i in range(size)]).tobytes()


def _resize(roots: Roots, size: int, smaller: int) -> Roots | None:
    """Rebuilds the graph with another size; None where the sizes do not fit each other any more."""
    built: dict[UOp, UOp] = {}
    try:
        for u in UOp.sink(*roots).toposort():
            built[u] = _resize_node(u, [built[s] for s in u.src], size, smaller)
            if is_value(u):
                assert built[u].shape is not None
    except Exception:  # every op has its own way to say that shapes do not fit
        return None
    return [built[root] for root in roots]


def _resize_node(u: UOp, sources: list[UOp], size: int, smaller: int) -> UOp:
    def scale(n: Any) -> Any:
        return n // size * smaller if isinstance(n, int) and n and n % size == 0 else n

    if u.op is Ops.BUFFER:
        count = int(scale(u.arg))
        if count == u.arg:
            return u
        data = count_up(count, u.dtype)
        assert data is not None
        return make_buffer(str(u.device), count, u.dtype, data)
    if u.op is Ops.RANGE:
        return UOp.range(scale(u.src[0].arg), *u.arg)
    if u.op in {Ops.RESHAPE, Ops.EXPAND}:
        return sources[0]._mop(u.op, tuple(map(scale, u.marg)))
    if u.op is Ops.SHRINK:
        ends = zip(u.marg, u.src[0].shape, sources[0].shape, strict=True)
        return sources[0]._mop(u.op, tuple(_shrink_pair(pair, old, new) for pair, old, new in ends))
    if u.op in GroupOp.Movement:
        return sources[0]._mop(u.op, u.marg)
    return u.replace(src=tuple(sources))


def _shrink_pair(pair: Any, old: Any, new: Any) -> Any:
    """What a slice of an axis becomes when the axis does: it keeps its distance from the nearer end."""
    begin, end = pair
    if begin == 0 and end == old:
        return 0, new
    if old - end < begin:
        return begin - old + new, end - old + new
    return begin, min(end, new)
