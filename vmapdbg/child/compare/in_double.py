"""Computes the floats of a packed graph in double precision, to tell rounding from a wrong value."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp, Ops

from vmapdbg.child.evidence.graphs import PackedGraph, PackedNode
from vmapdbg.child.memory import name_dtype
from vmapdbg.values.numbers import Array, decode
from vmapdbg.values.tolerance import EPSILON, is_float

ROUNDED = {op.name for op in GroupOp.ALU - {Ops.WHERE, Ops.MAX, Ops.NEG, Ops.TRUNC}} | {"REDUCE_AXIS", "REDUCE"}


class Widening:
    """Turns each float dtype into double.

    With a `seed` each element of an input, and the result of each float op, is moved by as much as its own dtype
    rounds, up or down by chance: what comes out moves by what the computation makes of its roundings.
    """

    def __init__(self, seed: int | None):
        self.seed = seed

    def find_fixed(self, graph: PackedGraph) -> set[int]:
        """Returns the nodes that keep their dtype: those whose bits a BITCAST looks at, as for random numbers."""
        fixed: set[int] = set()
        for slot in reversed(range(len(graph.nodes))):
            node = graph.nodes[slot]
            kinds = [node.dtype, *(graph.nodes[s].dtype for s in node.src)]
            if slot in fixed or (node.op == "BITCAST" and any(map(dtypes.is_float, kinds))):
                fixed |= {slot, *node.src}
        return fixed

    def widen(self, dtype: Any) -> Any:
        return dtypes.double if dtypes.is_float(dtype) else dtype

    def find_step(self, node: PackedNode, slot: int) -> float | None:
        """Returns the factor for the result of a node, None where nothing is rounded there."""
        if self.seed is None or node.op not in ROUNDED or not dtypes.is_float(node.dtype):
            return None
        step = EPSILON[name_dtype(node.dtype)] / 2
        # 1 - eps/2 is the number below 1, 1 + eps the one above
        return 1 + random.Random(self.seed * 1_000_003 + slot).choice((-step, 2 * step))

    def convert(self, given: Array, slot: int) -> Array:
        """Returns the contents of an input in double precision."""
        if not is_float(given.dtype):
            return given
        numbers = decode(given).astype(np.float64)
        if self.seed is not None:
            step = EPSILON[given.dtype] / 2
            chance = np.random.default_rng((self.seed, slot))
            numbers += numbers * chance.choice((-step, step), numbers.size)
        return Array(numbers.tobytes(), "double", given.shape)
