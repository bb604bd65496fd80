"""Computes the floats of a packed graph in double precision, to tell rounding from a wrong value."""

from __future__ import annotations

import array
import random
from typing import Any

from tinygrad.dtype import dtypes

from vmapdbg.capture.graphs import PackedNode
from vmapdbg.check.numbers import EPSILON, Array, decode, is_float


class CannotWiden(Exception):
    """The graph looks at the bits of a float: in double precision it would compute something else."""


class Widening:
    """Turns each float dtype into double. With a `seed` each element of an input is moved by as much as its own dtype
    rounds, up or down by chance: what comes out moves by what the computation makes of that."""

    def __init__(self, seed: int | None):
        self.seed = seed

    def widen(self, node: PackedNode, sources: list[Any]) -> Any:
        """Returns the dtype of a node. Raises CannotWiden."""
        if node.op == "BITCAST" and (dtypes.is_float(node.dtype) or dtypes.double in sources):
            raise CannotWiden
        return dtypes.double if dtypes.is_float(node.dtype) else node.dtype

    def convert(self, given: Array, place: int) -> Array:
        """Returns the contents of an input in double precision."""
        if not is_float(given.dtype):
            return given
        numbers = [float(x) for x in decode(given)]
        if self.seed is not None:
            chance = random.Random(self.seed * 1_000_003 + place)
            step = EPSILON[given.dtype] / 2
            numbers = [x + x * chance.choice((-step, step)) for x in numbers]
        return Array(array.array("d", numbers).tobytes(), "double", given.shape)
