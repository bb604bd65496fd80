"""The oracle that evaluates the tensor graph by numpy: no scheduler, code generator or compiler of tinygrad takes part,
so that it sees what stock tinygrad does wrong, too. A vmap scope is an axis more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vmapdbg.child.compare.oracle import InDoublePrecision, Oracle, Question, Read, Refused, Values
from vmapdbg.reference.evaluate import Evaluator
from vmapdbg.reference.graph import Graph, Unknown
from vmapdbg.reference.kinds import load
from vmapdbg.reference.rounding import InDouble, count_roundings
from vmapdbg.reference.value import Value
from vmapdbg.values.itemsize import ITEMSIZE
from vmapdbg.values.numbers import Array, encode
from vmapdbg.values.tolerance import is_float

DESCRIPTION = "the numpy reference"


class NumpyOracle(Oracle):
    def open(self, question: Question) -> Values | None:
        evidence = question.evidence
        graph = evidence.reference_passed
        if question.which == "asked":
            graph = evidence.reference
            if evidence.reference_refused is not None:
                raise Refused(evidence.reference_refused)
        if graph is None:
            return None
        return NumpyValues(graph, question.read, question.precision, question.given)


class NumpyValues:
    """The values of one graph, by numpy."""

    def __init__(self, graph: Graph, read: Read, precision: InDoublePrecision | None, given: Mapping[int, Array]):
        self.graph, self.roots, self.precision, self._read = graph, graph.roots, precision, read
        self._evaluations = 0
        rounding = None if precision is None else InDouble(graph, precision.seed)
        known = {slot: Value(load(array)) for slot, array in given.items()}
        self._evaluator = Evaluator(graph, read, rounding, known)
        self._open = graph.find_open()
        self._roundings: list[int] | None = None

    @property
    def evaluations(self) -> int:
        return self._evaluations

    def find_values(self, slots: Sequence[int]) -> list[Value | Unknown]:
        """Returns the values of nodes as the evaluator has them: with an axis for each step."""
        self._evaluations += 1
        return self._evaluator.evaluate(slots)

    def replace(self, known: Mapping[int, Value]) -> NumpyValues:
        """Returns values of the same graph with others for some nodes."""
        others = self.with_graph(self.graph)
        others._evaluator.known.update(known)
        return others

    def with_graph(self, graph: Graph) -> NumpyValues:
        """Returns the values of another graph, with the same inputs."""
        return NumpyValues(graph, self._read, self.precision, {})

    def find_shape(self, slot: int) -> tuple[int, ...]:
        return self.graph.nodes[slot].shape

    def find_ambient(self, slot: int) -> tuple[int, ...]:
        return tuple(sorted(self._open[slot], reverse=True))

    def find_sizes(self, slot: int) -> tuple[int, ...]:
        return tuple(self.graph.ranges[name] for name in self.find_ambient(slot))

    def find_between(self, slot: int, others: Sequence[int]) -> list[int]:
        ends = set(others)
        return [s for s in self.graph.reach([slot], ends) if s in ends]

    def count_evaluations(self, slot: int) -> int:
        return 1

    def count_batch(self, slot: int) -> int:
        """All steps of a scope are computed at once."""
        return 1

    def count_roundings(self, slot: int) -> int:
        if self._roundings is None:
            self._roundings = count_roundings(self.graph)
        return self._roundings[slot]

    def evaluate(self, slots: Sequence[int]) -> list[Array | str]:
        self._evaluations += 1
        found = self._evaluator.evaluate(slots)
        return [self._make_array(slot, value) for slot, value in zip(slots, found, strict=True)]

    def begin(self, slots: Sequence[int]) -> Iterator[None]:
        """Returns what computes the values of nodes step by step, for an `evaluate` of the same nodes."""
        return self._evaluator.begin(slots)

    @property
    def has_gaps(self) -> bool:
        """Whether something of what was computed could not be had."""
        return self._evaluator.has_gaps

    def take_room(self, room: int) -> None:
        """Sets how many bytes the values of the graph may take up at a time."""
        self._evaluator.room = room

    def evaluate_batch(self, slot: int) -> Array | str:
        return self.evaluate([slot])[0]

    def find_undefined(self, slot: int) -> NDArray[np.bool_] | None:
        value = self._evaluator.known.get(slot)
        if value is None or isinstance(value, Unknown) or value.undefined is None:
            return None
        return self._arrange(slot, Value(value.undefined, value.ranges)).ravel().astype(np.bool_, copy=False)

    def find_leaving(self, slot: int) -> None:
        """Steps are not computed one by one."""
        return None

    def find_leaving_axis(self, slot: int) -> tuple[int, int]:
        raise NotImplementedError

    def evaluate_step(self, slot: int, step: int) -> Array | str:
        raise NotImplementedError

    def _make_array(self, slot: int, value: Value | Unknown) -> Array | str:
        if isinstance(value, Unknown):
            return str(value)
        node = self.graph.nodes[slot]
        if len(value.own_shape) > len(node.shape):
            # a UOp by hand, which this release takes for another one
            return f"the reference makes a value of shape {value.own_shape} of it, where tinygrad says {node.shape}"
        dtype = node.dtype
        if self.precision is not None and is_float(dtype):
            dtype = "double"
        try:
            # a value may be a view, with an element in many places, which an array is not
            self._evaluator.check_bytes(math.prod((*self.find_sizes(slot), *node.shape)) * ITEMSIZE[dtype])
        except Unknown as refusal:
            return str(refusal)
        return encode(self._arrange(slot, value), dtype)

    def _arrange(self, slot: int, value: Value) -> NDArray[np.generic]:
        """Returns numbers with an axis for each RANGE that is open in the node, outermost first, then its own."""
        names = self.find_ambient(slot)
        own = value.own_shape
        sizes = dict(zip(value.ranges, value.numbers.shape, strict=False))
        # ascending, as a value has them
        shape = [sizes.get(name, 1) for name in sorted(names)]
        spread = value.numbers.reshape((*shape, *own))
        turned = spread.transpose((*reversed(range(len(names))), *range(len(names), spread.ndim)))
        return np.broadcast_to(turned, (*self.find_sizes(slot), *self.graph.nodes[slot].shape))


ORACLE = NumpyOracle()
