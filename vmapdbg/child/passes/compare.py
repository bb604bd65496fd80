"""Compares values of a graph; different rounding is no difference. Runs in the child."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vmapdbg.check.result import Difference
from vmapdbg.reference.arithmetic import InDouble, count_roundings
from vmapdbg.reference.graph import OpGraph, Unknown
from vmapdbg.reference.kernels import LoopEvaluator
from vmapdbg.reference.value import RangedArray, align
from vmapdbg.values.numbers import find_close, find_index, find_largest, make_plain
from vmapdbg.values.tolerance import is_float, make_tolerance

_FINE = "float"
"""The dtype whose tolerance applies to values that are computed in double precision."""


class Judge:
    """Compares values of one graph. `read` returns the contents of an input by their name."""

    def __init__(self, graph: OpGraph, read: Callable[[str], bytes]):
        self.graph, self.read = graph, read
        self._roundings: list[int] = []
        # the step ranges of the last comparison, and the ranges that only its second value has
        self.last_ranges: tuple[int, ...] = ()
        self.last_extra: tuple[int, ...] = ()

    def compare(self, expected: int, got: int, with_more_ranges: bool = False) -> Difference | None:
        """Returns how the second value differs from the first, None if they agree.

        Values with different axes are compared in the order of their elements. The second value may depend on more
        ranges only `with_more_ranges`: then it must be right at each of their steps. Raises Unknown."""
        if expected == got:
            return None
        found = self._differ(expected, got, with_more_ranges)
        if found is None or not is_float(self.graph.nodes[expected].dtype):
            return found
        return self._differ(expected, got, with_more_ranges, in_double=True) and found

    def _evaluate(self, slots: Sequence[int], in_double: bool) -> list[RangedArray]:
        """Returns values. Raises Unknown."""
        rounding = InDouble(self.graph) if in_double else None
        return LoopEvaluator(self.graph, self.read, rounding).evaluate_all(slots)

    def _count_roundings(self, slot: int) -> int:
        if len(self._roundings) <= slot:
            self._roundings = count_roundings(self.graph)
        return self._roundings[slot]

    def _differ(self, expected: int, got: int, with_more_ranges: bool, in_double: bool = False) -> Difference | None:
        left, right = self._evaluate((expected, got), in_double)
        dtype = self.graph.nodes[expected].dtype
        if dtype != self.graph.nodes[got].dtype:
            raise Unknown(f"it has another dtype: {self.graph.nodes[got].dtype} instead of {dtype}")
        if set(right.ranges) - set(left.ranges) and not with_more_ranges:
            raise Unknown("it depends on other ranges")
        self.last_extra = tuple(sorted(set(right.ranges) - set(left.ranges)))
        left, right = _match_axes(left, right)
        self.last_ranges = left.ranges
        roundings = max(self._count_roundings(expected), self._count_roundings(got))
        if in_double:
            dtype = _FINE
        return find_difference(left, right, dtype, roundings)


def _match_axes(left: RangedArray, right: RangedArray) -> tuple[RangedArray, RangedArray]:
    if left.own_shape == right.own_shape:
        spread, _ = align([left, right])
        return spread[0], spread[1]
    if left.ranges or right.ranges:
        raise Unknown("it has other axes")
    if left.numbers.size != right.numbers.size:
        raise Unknown(f"it has another size: {right.numbers.size} elements instead of {left.numbers.size}")
    shape = left.numbers.shape
    return left, right.move(lambda a: a.reshape(shape))


def find_difference(expected: RangedArray, got: RangedArray, dtype: str, terms: int) -> Difference | None:
    """Returns how two values differ where both are defined; they are broadcast against each other. Raises Unknown if
    all of it is undefined."""
    shape = np.broadcast_shapes(expected.numbers.shape, got.numbers.shape)
    left, right = (np.broadcast_to(value.numbers, shape) for value in (expected, got))
    undefined = np.broadcast_to(expected.mask, shape) | np.broadcast_to(got.mask, shape)
    if undefined.all() and undefined.size:
        raise Unknown("all of it is undefined")
    tolerance = make_tolerance(dtype, terms, find_largest(left))
    is_wrong = ~find_close(right, left, tolerance) & ~undefined
    if not is_wrong.any():
        return None
    first = int(np.flatnonzero(is_wrong)[0])
    return Difference(
        index=find_index(first, shape),
        got=make_plain(right.reshape(-1)[first]),
        expected=make_plain(left.reshape(-1)[first]),
        wrong=int(is_wrong.sum()),
        total=is_wrong.size,
    )
