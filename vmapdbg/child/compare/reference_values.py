"""Computes the values of a packed tensor graph by numpy, in the process that compares. No scheduler, code generator or
compiler of tinygrad takes part, so faults of stock tinygrad show up, too. A vmap scope is one more axis."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vmapdbg.check.compare import compare, excuse_rounding
from vmapdbg.check.result import Comparison
from vmapdbg.model.account import Left
from vmapdbg.reference.arithmetic import InDouble, count_roundings
from vmapdbg.reference.evaluate import Evaluator
from vmapdbg.reference.graph import OpGraph, Unknown
from vmapdbg.reference.value import RangedArray
from vmapdbg.values.numbers import Array, Numbers, decode, encode, view_elements
from vmapdbg.values.tolerance import ITEMSIZE, is_float

ReadContents = Callable[[str], bytes]  # returns the contents with this name

DOUBLE = 0  # as the precision of `ReferenceValues`: floats in double precision
MOVED = (1, 2, 3)  # as the precision: the same, and each rounding moves a number at random; the number is the seed

KnownValues = dict[int, RangedArray]  # values of nodes that are computed already, by slot


class ReferenceValues:
    """The values of one graph. Nodes are known by their slots, their positions in the graph. `precision` is None for
    the dtypes of the graph, DOUBLE, or one of MOVED. `known` has values of nodes that are not computed."""

    def __init__(
        self, graph: OpGraph, read: ReadContents, precision: int | None = None, known: Mapping[int, RangedArray] = {}
    ):
        self.graph, self.roots, self.precision, self._read = graph, graph.roots, precision, read
        self.evaluations = 0
        rounding = InDouble(graph, precision or None) if precision is not None else None
        self._evaluator = Evaluator(graph, read, rounding, known)
        self._open = graph.open_ranges()

    def ambient_of(self, slot: int) -> tuple[int, ...]:
        """Returns the ids of the step ranges that are open in a node, outermost first."""
        return tuple(sorted(self._open[slot], reverse=True))

    def sizes_of(self, slot: int) -> tuple[int, ...]:
        """Returns the sizes of the step ranges that are open in a node."""
        return tuple(self.graph.ranges[name] for name in self.ambient_of(slot))

    def whole_shape_of(self, slot: int) -> tuple[int, ...]:
        """Returns the sizes of the open step ranges, then the node's own shape."""
        return self.sizes_of(slot) + self.graph.nodes[slot].shape

    @functools.cached_property
    def roundings(self) -> list[int]:
        """The number of roundings on the longest path from an input to each node."""
        return count_roundings(self.graph)

    def evaluate(self, slots: Sequence[int]) -> list[Array | str]:
        """Returns the values of nodes, or why a value is unknown. The sizes of the open ranges are the first axes."""
        self.evaluations += 1
        found = self._evaluator.evaluate(slots)
        return [self._make_array(slot, value) for slot, value in zip(slots, found, strict=True)]

    def evaluate_all(self, slots: Sequence[int]) -> list[RangedArray]:
        """Returns the values of nodes. Raises Unknown if one of them cannot be computed."""
        self.evaluations += 1
        return self._evaluator.evaluate_all(slots)

    def undefined_elements(self, slot: int) -> NDArray[np.bool_] | None:
        """Returns which elements of a computed value are undefined, None if all are defined."""
        value = self._evaluator.known.get(slot)
        if value is None or isinstance(value, Unknown) or value.undefined is None:
            return None
        return self._arrange(slot, RangedArray(value.undefined, value.ranges)).ravel().astype(np.bool_, copy=False)

    def replace(self, known: Mapping[int, RangedArray] = {}, graph: OpGraph | None = None) -> "ReferenceValues":
        """Returns the values of the same inputs with other values of some nodes, or in another graph."""
        return ReferenceValues(graph or self.graph, self._read, self.precision, known)

    def _make_array(self, slot: int, value: RangedArray | Unknown) -> Array | str:
        if isinstance(value, Unknown):
            return str(value)
        node = self.graph.nodes[slot]
        if len(value.own_shape) > len(node.shape):
            # this release takes a UOp that was made by hand for another UOp
            return f"the reference makes a value of shape {value.own_shape} of it, where tinygrad says {node.shape}"
        dtype = node.dtype
        if self.precision is not None and is_float(dtype):
            dtype = "double"
        try:
            # a value may be a broadcast view: as an array it is larger
            self._evaluator.check_bytes(math.prod(self.whole_shape_of(slot)) * ITEMSIZE[dtype])
        except Unknown as refusal:
            return str(refusal)
        return encode(self._arrange(slot, value), dtype)

    def _arrange(self, slot: int, value: RangedArray) -> NDArray[np.generic]:
        """Returns numbers with an axis for each open range of the node, outermost first, then the node's own axes."""
        names = self.ambient_of(slot)
        # a value has its ranges in ascending order
        spread = value.spread(tuple(reversed(names)), len(value.own_shape)).numbers
        turned = spread.transpose((*reversed(range(len(names))), *range(len(names), spread.ndim)))
        return np.broadcast_to(turned, self.whole_shape_of(slot))


class ComparedGraph:
    """A graph of a schedule, compared with what the snippet got. `left` gets a reason for each part not compared;
    `known` has values by precision; `opened` are all opened values. The nodes of `together` are computed in one go."""

    def __init__(
        self, graph: OpGraph, read: ReadContents, left: list[Left], known: Mapping[int | None, KnownValues] = {}
    ):
        self.graph, self.read, self.left, self.known = graph, read, left, known
        self.opened: list[ReferenceValues] = []
        self.together: Sequence[int] = ()
        self._precise: dict[int, dict[int, Array | str]] = {}  # precision -> node -> its value
        self.values = self.open()

    def open(self, precision: int | None = None, given: Mapping[int, RangedArray] = {}) -> ReferenceValues:
        """Returns the values of the graph in a precision, or with the `given` values of some nodes."""
        values = ReferenceValues(self.graph, self.read, precision, given or self.known.get(precision, {}))
        self.opened.append(values)
        return values

    def compare(self, slot: int, got: Array, right: Array) -> Comparison:
        """Compares the value of a node. If it is wrong, double precision separates rounding from a fault."""
        undefined = self.values.undefined_elements(slot)
        if undefined is not None:
            size = ITEMSIZE[got.dtype]
            defined = np.where(undefined, view_elements(right.data, size), view_elements(got.data, size))
            got = Array(defined.tobytes(), got.dtype, got.shape)
            self.left.append(Left("elements", int(undefined.sum()), "C or tinygrad leave them undefined"))
        found = compare(got, right, self.values.roundings[slot])
        if found.status != "wrong":
            return found
        numbers: list[Numbers] = []
        for precisions in ((DOUBLE,), MOVED):
            for precision in precisions:
                wide = self.compute_precisely(precision, slot)
                if isinstance(wide, str):
                    return found
                numbers.append(np.resize(decode(wide), decode(right).size))  # repeated if several devices have it
            excused = excuse_rounding(got, right, found, numbers)
            if excused.status != "wrong":
                break
        return excused

    def compute_precisely(self, precision: int, slot: int) -> Array | str:
        """Returns the value of a node in a precision, or why it is unknown. All of `together` is computed with it: each
        of them needs most of the graph."""
        found = self._precise.setdefault(precision, {})
        try:
            if slot in self.together and slot not in found:
                found.update(zip(self.together, self.open(precision).evaluate(self.together), strict=True))
            # another node of `together` may be what cannot be computed
            if isinstance(found.get(slot, ""), str):
                found[slot] = self.open(precision).evaluate([slot])[0]
        except Exception as error:  # not every graph can be computed in double precision
            return f"the reference failed: {type(error).__name__}: {error}"
        return found[slot]
