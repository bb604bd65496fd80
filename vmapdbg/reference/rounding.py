"""How values are rounded: each to its dtype, or computed in double precision to see what rounding did; and how many
roundings there are on the way to a value."""

from __future__ import annotations

import math

import numpy as np

from vmapdbg.reference.arithmetic import ROUNDED, cast, find_carrier, round_floats
from vmapdbg.reference.graph import OpGraph, OpNode
from vmapdbg.reference.value import Mask
from vmapdbg.values.numbers import Numbers
from vmapdbg.values.tolerance import EPSILON, count_terms, is_float, measure_rounding


class Rounding:
    """Each value is rounded to its own dtype."""

    def carry(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        """Returns operands in the numpy dtype that a node is computed in."""
        return numbers.astype(find_carrier(node.dtype), copy=False)

    def start(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        """Returns the contents of an input, or the bits of a bitcast, as a node's value."""
        return numbers

    def cast(self, slot: int, node: OpNode, numbers: Numbers, source: str) -> tuple[Numbers, Mask | None]:
        """Casts numbers of the dtype `source` to a node's dtype, and returns which results are undefined."""
        return cast(numbers, source, node.dtype)

    def finish(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        """Rounds the result of a node's op to the node's value."""
        if is_float(node.dtype):
            return round_floats(numbers, node.dtype)
        return np.asarray(numbers, dtype=find_carrier(node.dtype))


class InDouble(Rounding):
    """Floats are computed in double precision.

    With a `seed` each element of an input, and the result of each float op, is moved up or down at random by the
    rounding of its own dtype. The results then move by what the computation does to its roundings. Values whose bits a
    bitcast reads keep their dtype, as in random numbers; they are moved only if an op rounds them.
    """

    def __init__(self, graph: OpGraph, seed: int | None = None):
        self.graph, self.seed = graph, seed
        self.fixed = find_fixed(graph)

    def carry(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        if self._is_widened(slot, node):
            return numbers.astype(np.float64, copy=False)
        return super().carry(slot, node, numbers)

    def start(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        if not self._is_widened(slot, node):
            return numbers
        wide = numbers.astype(np.float64)
        if self.seed is None or node.op == "const":
            return wide
        step = EPSILON[node.dtype] / 2
        chance = np.random.default_rng((self.seed, slot))
        return wide + wide * chance.choice((-step, step), wide.shape)

    def cast(self, slot: int, node: OpNode, numbers: Numbers, source: str) -> tuple[Numbers, Mask | None]:
        if self._is_widened(slot, node):
            return self.finish(slot, node, numbers.astype(np.float64)), None
        return super().cast(slot, node, numbers, source)

    def finish(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        if not self._is_widened(slot, node):
            return self._move_fixed(slot, node, super().finish(slot, node, numbers))
        wide = np.asarray(numbers, dtype=np.float64)
        if self.seed is None or not is_rounded(node):
            return wide
        # a sum rounds each of its partial sums, in any order
        step = EPSILON[node.dtype] / 2 * max(1.0, math.sqrt(_count_own(self.graph, node)) / 2)
        # 1 - eps/2 is the number below 1, 1 + eps the one above
        return wide * np.where(draw_signs(wide, self.seed * 1_000_003 + slot), 1 + 2 * step, 1 - step)

    def _move_fixed(self, slot: int, node: OpNode, numbers: Numbers) -> Numbers:
        if self.seed is None or not is_rounded(node):
            return numbers
        # its inputs are not moved: a sum is moved by as much as the order of its terms can change it
        step = EPSILON[node.dtype] * math.sqrt(_count_own(self.graph, node))
        signs = draw_signs(numbers, self.seed * 1_000_003 + slot)
        return round_floats(numbers * np.where(signs, 1 + step, 1 - step), node.dtype)

    def _is_widened(self, slot: int, node: OpNode) -> bool:
        return slot not in self.fixed and is_float(node.dtype)


def draw_signs(numbers: Numbers, seed: int) -> Mask:
    """Returns a random sign for each number. Equal numbers get the same sign, so that ties remain ties."""
    bits = np.atleast_1d(numbers).astype(np.float64).view(np.uint64)
    mixed = (bits ^ np.uint64(seed & 0xFFFF_FFFF)) * np.uint64(0x9E37_79B9_7F4A_7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    return ((mixed >> np.uint64(63)) == 1).reshape(np.shape(numbers))


def find_fixed(graph: OpGraph) -> set[int]:
    """Returns the nodes whose bits a bitcast to or from a float reads, with all nodes that they are computed from."""
    fixed: set[int] = set()
    for slot in reversed(range(len(graph.nodes))):
        node = graph.nodes[slot]
        kinds = [node.dtype, *(graph.nodes[source].dtype for source in node.src)]
        if slot in fixed or (node.op == "bitcast" and any(map(is_float, kinds))):
            fixed |= {slot, *node.src}
    return fixed


def is_rounded(node: OpNode) -> bool:
    """Whether the exact result of a node's op is rounded to its dtype."""
    if not is_float(node.dtype):
        return False
    if node.op == "reduce":
        return node.arg[0] != "max"
    return node.op in ROUNDED or node.op == "cast"


def count_roundings(graph: OpGraph) -> list[int]:
    """Returns for each node how many roundings to its dtype are on the longest path from an input: one for an op, n for
    a sum of n numbers. Roundings to other dtypes count by their size."""
    variances: list[float] = []
    for node in graph.nodes:
        before = max((variances[source] for source in node.src), default=0.0)
        variances.append(before + measure_rounding(node.dtype, _count_own(graph, node)))
    return [count_terms(node.dtype, variance) for node, variance in zip(graph.nodes, variances, strict=True)]


def _count_own(graph: OpGraph, node: OpNode) -> int:
    if not is_rounded(node):
        return 0
    if node.op != "reduce":
        return 1
    _, axes, _, names = node.arg
    shape = graph.nodes[node.src[0]].shape
    return math.prod(shape[axis] for axis in axes) * math.prod(graph.ranges[name] for name in names)
