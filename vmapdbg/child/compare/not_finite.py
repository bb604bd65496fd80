"""Finds where NaN and infinity come from: the first node in the order of the graph that makes one of finite numbers,
and without which outputs have fewer of them. Runs in the process that compares."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np

from vmapdbg.check.result import NotFinite
from vmapdbg.reference.arithmetic import FUNCTIONS, settle
from vmapdbg.reference.evaluate import Evaluator
from vmapdbg.reference.graph import OpGraph, OpNode, Unknown
from vmapdbg.reference.plan import Product, Windows
from vmapdbg.reference.value import Mask, RangedArray, align
from vmapdbg.values.numbers import Numbers, make_plain
from vmapdbg.values.tolerance import is_float

ReadContents = Callable[[str], bytes]
MOST_SECONDS = 20
_MOST_PRODUCTS = 1 << 26
_COMPUTING = (FUNCTIONS.keys() - {"where"}) | {"cast", "reduce"}


@dataclass(frozen=True)
class Made:
    """A value with NaN or infinity where `is_made`, of `operands` (at the first such element) that have none."""

    value: RangedArray
    is_made: Mask
    operands: tuple[float | int | str, ...]


class Watcher(Evaluator):
    """Computes a graph, and notes the nodes that make NaN or infinity of finite numbers, or NaN of infinities. In the
    `mended` nodes it puts finite numbers in their place."""

    def __init__(self, graph: OpGraph, read: ReadContents, mended: Collection[int] = ()):
        super().__init__(graph, read)
        self.mended = mended
        self.made: dict[int, Made] = {}
        self.has_bad_input = False

    def _compute(self, slot: int) -> RangedArray:
        value, node = super()._compute(slot), self.graph.nodes[slot]
        if not is_float(node.dtype) or np.isfinite(value.numbers).all():
            return value
        self.has_bad_input |= node.op == "buffer"
        is_made = self._find_made(slot, node, value) if node.op in _COMPUTING else np.zeros((), np.bool_)
        if not is_made.any():
            return value
        if slot in self.mended:
            return RangedArray(np.where(is_made, 1, value.numbers), value.ranges, value.undefined)
        self.made[slot] = Made(value, is_made, self._read_operands(slot, node, value, is_made))
        return value

    def _try_shortcut(self, slot: int, shortcut: Product | Windows) -> RangedArray | None:
        """Computes a product that is not finite node by node, if it is not too large."""
        value, node = super()._try_shortcut(slot, shortcut), self.graph.nodes[slot]
        if value is None or not is_float(node.dtype) or np.isfinite(settle(value.numbers, node.dtype)).all():
            return value
        is_small = math.prod(self.graph.nodes[shortcut.skipped[0]].shape) <= _MOST_PRODUCTS
        return None if is_small else value

    def _find_made(self, slot: int, node: OpNode, value: RangedArray) -> Mask:
        """Returns which elements of a value are NaN or infinity although what they are computed from is not."""
        sources = [self._value(source) for source in self._plan.list_sources(slot)]
        is_bad, is_nan = (_find_read(node, sources, find) for find in (_is_bad, np.isnan))
        (one, bad, nan), _ = align([value, is_bad, is_nan])
        found = (_is_bad(one.numbers) & ~bad.numbers) | (np.isnan(one.numbers) & ~nan.numbers)
        return found.reshape(value.numbers.shape)

    def _read_operands(
        self, slot: int, node: OpNode, value: RangedArray, is_made: Mask
    ) -> tuple[float | int | str, ...]:
        if node.op == "reduce":
            return ()
        (_, *operands), _ = align([value, *map(self._value, self._plan.list_sources(slot))])
        place = _find_first(is_made)
        return tuple(make_plain(np.broadcast_to(one.numbers, is_made.shape)[place]) for one in operands)


def _find_first(is_made: Mask) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(int(np.argmax(is_made)), is_made.shape)))


def _is_bad(numbers: Numbers) -> Mask:
    return ~np.isfinite(numbers)


def _find_read(node: OpNode, sources: Sequence[RangedArray], find: Callable[[Numbers], Mask]) -> RangedArray:
    """Returns for which elements of a value `find` holds in what they are computed from."""
    found = [RangedArray(find(one.numbers), one.ranges) for one in sources if one.numbers.dtype.kind == "f"]
    if node.op != "reduce":
        spread, ranges = align(found or [RangedArray(np.zeros((), np.bool_))])
        return RangedArray(reduce(or_, (one.numbers for one in spread)), ranges)
    if len(found) == 1:
        _, axes, keep, names = node.arg
        return found[0].reduce("max", axes, keep, [name for name in names if name in found[0].ranges])
    # a sum of products: which operand an element reads is not followed
    return RangedArray(np.array(any(one.numbers.any() for one in found)))


def find_not_finite(graph: OpGraph, read: ReadContents, roots: Sequence[int]) -> NotFinite | None:
    """Returns what makes the first NaN or infinity of some nodes; None if these are constants. Raises Unknown."""
    end, watcher = time.monotonic() + MOST_SECONDS, Watcher(graph, read)
    before = list(map(_count_bad, watcher.evaluate(roots)))

    def count_better(mended: Collection[int]) -> int:
        """Returns how many of the nodes have less NaN and infinity if some nodes make none."""
        if time.monotonic() > end:
            raise Unknown(f"it takes more than {MOST_SECONDS} s to find out")
        after = map(_count_bad, Watcher(graph, read, mended).evaluate(roots))
        return sum(count < was for was, count in zip(before, after, strict=True))

    makers = sorted(watcher.made)
    for count in range(1, len(makers) + 1):
        if better := count_better(makers[:count]):
            # each of several nodes may be enough to spoil an output: the first that is needed
            tried = makers[:count]
            needed = (one for one in tried[:-1] if not count_better([other for other in tried if other != one]))
            first = next(needed, tried[-1])
            return _describe(graph, first, watcher.made[first], better)
    if makers and any(before):
        raise Unknown("no node explains it")
    return NotFinite(sum(map(bool, before))) if watcher.has_bad_input and any(before) else None


def _count_bad(value: RangedArray | Unknown) -> int:
    return 0 if isinstance(value, Unknown) else int(_is_bad(value.numbers).sum())


def _describe(graph: OpGraph, slot: int, made: Made, outputs: int) -> NotFinite:
    node, index = graph.nodes[slot], _find_first(made.is_made)
    line, method = graph.origins.get(slot, (None, None))
    op, terms = node.op, 0
    if op == "reduce":
        op = f"{op} {node.arg[0]}"
        terms = math.prod(graph.nodes[node.src[0]].shape) // math.prod(node.shape)
    got, count = make_plain(made.value.numbers[index]), int(made.is_made.sum())
    return NotFinite(outputs, op, node.dtype, line, method, index, got, made.operands, terms, count, made.is_made.size)
