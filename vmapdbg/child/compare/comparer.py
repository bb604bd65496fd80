"""Opens the values of the graphs of one schedule, and compares with them. Runs in the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.compare import Rounding, compare, excuse_rounding
from vmapdbg.check.result import Comparison
from vmapdbg.child.compare.ahead import Ahead
from vmapdbg.child.compare.oracle import SEEDS, InDoublePrecision, Question, Values, Which, find_oracle
from vmapdbg.child.evidence.folder import EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.model.wording import format_plural
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import Array, decode
from vmapdbg.values.slices import view_elements
from vmapdbg.values.tolerance import is_float

Again = Callable[[Values], Array | str]
"""Computes a value anew, with other values of the graph."""


class Comparer:
    """Compares with the values of one schedule, those that were computed `ahead` among them. `unchecked` collects what
    could not be, `opened` the values that were asked for."""

    def __init__(self, evidence: Evidence, folder: EvidenceFolder, ahead: Ahead | None = None):
        self.evidence, self.folder, self.ahead = evidence, folder, ahead
        self.unchecked = list(evidence.unchecked)
        self.opened: list[Values] = []
        self._widened: dict[tuple[str, Which, int | None], Values] = {}

    def open(
        self,
        oracle: str,
        which: Which,
        precision: InDoublePrecision | None = None,
        given: Mapping[int, Array] = {},
    ) -> Values | None:
        """Returns the values of a graph, None where the evidence has none for the oracle. Raises Refused."""
        values: Values | None = None
        if self.ahead is not None and (oracle, which, given) == ("numpy", "asked", {}):
            values = self.ahead.take(self.evidence, precision)
        if values is None:
            question = Question(self.evidence, which, self.folder.read_data, precision, given)
            values = find_oracle(oracle).open(question)
        if values is not None:
            self.opened.append(values)
        return values

    def compare(
        self,
        oracle: str,
        which: Which,
        values: Values,
        slot: int,
        got: Array,
        right: Array,
        again: Again,
    ) -> Comparison:
        """Compares the value of a node. One that is wrong is computed `again` in double precision, to tell rounding
        from a fault."""
        undefined = values.find_undefined(slot)
        if undefined is not None:
            got = replace_elements(got, right, undefined)
            count = format_plural(int(undefined.sum()), "element")
            self.unchecked.append(f"{count} that C or tinygrad leave undefined")
        found = compare(got, right, values.count_roundings(slot))
        # numpy's floats are not tinygrad's to the bit: an integer made of them may be another one, too
        if found.status != "wrong" or not (is_float(right.dtype) or oracle == "numpy"):
            return found
        try:
            wide = [again(self.open_widened(oracle, which, seed)) for seed in (None, *SEEDS)]
        except Exception:  # not every device has doubles, not every graph can be widened
            return found
        numbers = [decode(array).astype(np.float64) for array in wide if not isinstance(array, str)]
        if len(numbers) != len(wide):
            return found
        exact, *moved = numbers
        # what is not finite is sorted out by `excuse_rounding`
        with np.errstate(invalid="ignore", over="ignore"):
            spread = np.fmax.reduce([np.abs(other - exact) for other in moved])
        return excuse_rounding(got, right, found, Rounding(exact, spread))

    def open_widened(self, oracle: str, which: Which, seed: int | None) -> Values:
        key = (oracle, which, seed)
        if key not in self._widened:
            values = self.open(oracle, which, InDoublePrecision(seed))
            assert values is not None
            self._widened[key] = values
        return self._widened[key]


def replace_elements(got: Array, right: Array, places: NDArray[np.bool_]) -> Array:
    """Returns an array with the elements of another one at some places of the flat array."""
    size = ITEMSIZE[got.dtype]
    mixed = np.where(places, view_elements(right.data, size), view_elements(got.data, size))
    return Array(mixed.tobytes(), got.dtype, got.shape)
