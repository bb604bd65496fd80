"""Finds what makes numbers go wrong although tinygrad computes what the program asks for: the first op that makes NaN
or infinity of finite numbers, or that loses the digits of its operands, and memory that is read and never written. The
proof: without it, outputs are right, or others. Runs in the process that compares."""

import contextlib
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np

from vmapdbg.check.result import NumberEdit, NumberEditKind, NumberFault, NumberFaultKind
from vmapdbg.child.compare.reference_values import DOUBLE, ComparedGraph, ReadContents
from vmapdbg.child.evidence.filling import find_unwritten
from vmapdbg.reference.arithmetic import FUNCTIONS, InDouble, roundings_of, settle
from vmapdbg.reference.evaluate import Evaluator
from vmapdbg.reference.graph import OpGraph, OpNode, Unknown
from vmapdbg.reference.plan import Plan, Product, Windows
from vmapdbg.reference.value import Mask, RangedArray, align
from vmapdbg.values.numbers import Array, Numbers, decode, make_plain
from vmapdbg.values.tolerance import EPSILON, ITEMSIZE, NARROW, SMALLEST, is_float

MOST_SECONDS = 20
_MOST_PRODUCTS = 1 << 26
_COMPUTING = (FUNCTIONS.keys() - {"where"}) | {"cast", "reduce"}
_SUMS = frozenset({"add", "sub", "mulacc", "reduce"})
_LEAST_DIGITS = 0.01
_ROUNDINGS = 12  # digits are lost if the error is a hundredth of the largest element, and more than so many roundings
_MOST_SHARED = 8  # of how many tensors the mean is subtracted, those next to the node first
_SAME = 1e-3  # a relative difference that is rounding, of a value in double precision that has lost digits
_ZERO = 1e-12  # a sum is zero, but for the rounding of double precision, if it is so much smaller than its terms


class Clock:
    """Raises Unknown once the search has taken too long."""

    def __init__(self, seconds: float = MOST_SECONDS) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        if time.monotonic() > self._end:
            raise Unknown(f"it takes more than {self.seconds} s to find out")


@dataclass(frozen=True)
class Suspect:
    """A node whose value is faulty where `is_faulty`. The first such element has `operands`; the value `should` be."""

    value: RangedArray
    is_faulty: Mask
    operands: tuple[float | int | str, ...]
    should: RangedArray | None = None

    def describe(self, graph: OpGraph, slot: int, outputs: int, kind: NumberFaultKind, error: float = 1) -> NumberFault:
        """Returns the fault. `error` is the largest error of an output, divided by the output's largest element."""
        node, place = graph.nodes[slot], _find_first(self.is_faulty)
        line, method = graph.origins.get(slot, (None, None))
        return NumberFault(
            kind=kind,
            outputs=outputs,
            op=f"reduce {node.arg[0]}" if node.op == "reduce" else node.op,
            dtype=node.dtype,
            line=line,
            method=method,
            index=place,
            got=make_plain(self.value.numbers[place]),
            expected=None if self.should is None else make_plain(self.should.numbers[place]),
            operands=self.operands,
            terms=roundings_of(graph, node) if node.op == "reduce" else 0,
            faulty=int(self.is_faulty.sum()),
            total=self.is_faulty.size,
            digits=count_digits(error),
        )


def count_digits(error: float) -> float:
    """Returns how many digits are right, of the error as a share of the largest element."""
    return max(0.0, -math.log10(max(error, EPSILON["double"])))


def _find_first(is_faulty: Mask) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(int(np.argmax(is_faulty)), is_faulty.shape)))


class SuspectFinder(Evaluator):
    """An evaluator that notes suspects, by their nodes."""

    def __init__(self, graph: OpGraph, read: ReadContents):
        super().__init__(graph, read)
        self.suspects: dict[int, Suspect] = {}

    def suspect(self, slot: int, value: RangedArray, is_faulty: Mask, should: RangedArray | None = None) -> None:
        """Notes a node. The sources of a sum have no single element for each of its elements."""
        operands: list[RangedArray] = []
        if self.graph.nodes[slot].op != "reduce":
            (_, *operands), _ = align([value, *map(self._value, self._plan.list_sources(slot))])
        place = _find_first(is_faulty)
        read = tuple(make_plain(np.broadcast_to(one.numbers, is_faulty.shape)[place]) for one in operands)
        self.suspects[slot] = Suspect(value, is_faulty, read, should)


# *** NaN and infinity


class OriginFinder(SuspectFinder):
    """Notes the nodes that make NaN or infinity of finite numbers, or NaN of infinities. In the `mended` nodes it puts
    finite numbers in their place."""

    def __init__(self, graph: OpGraph, read: ReadContents, mended: Collection[int] = ()):
        super().__init__(graph, read)
        self.mended = mended
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
        self.suspect(slot, value, is_made)
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


def find_not_finite(graph: OpGraph, read: ReadContents, roots: Sequence[int]) -> NumberFault | None:
    """Returns what makes the first NaN or infinity of some nodes; None if these are constants. Raises Unknown."""
    clock, finder = Clock(), OriginFinder(graph, read)
    before = list(map(_count_bad, finder.evaluate(roots)))

    def count_better(mended: Collection[int]) -> int:
        """Returns how many of the nodes have less NaN and infinity if some nodes make none."""
        clock.check()
        after = map(_count_bad, OriginFinder(graph, read, mended).evaluate(roots))
        return sum(count < was for was, count in zip(before, after, strict=True))

    makers = sorted(finder.suspects)
    for count in range(1, len(makers) + 1):
        if better := count_better(makers[:count]):
            # each of several nodes may be enough to spoil an output: the first that is needed
            tried = makers[:count]
            needed = (one for one in tried[:-1] if not count_better([other for other in tried if other != one]))
            first = next(needed, tried[-1])
            return finder.suspects[first].describe(graph, first, better, "not-finite")
    if makers and any(before):
        raise Unknown("no node explains it")
    return NumberFault("not-finite", sum(map(bool, before))) if finder.has_bad_input and any(before) else None


def _count_bad(value: RangedArray | Unknown) -> int:
    return 0 if isinstance(value, Unknown) else int(_is_bad(value.numbers).sum())


# *** lost digits


def measure_error(graph: ComparedGraph, slot: int, got: Array) -> float | None:
    """Returns the largest error of a node's value, divided by the largest element; None if no digits are lost."""
    if not is_float(got.dtype) or got.dtype == "double" or not graph.values.roundings[slot]:
        return None
    coarsest = max((graph.graph.nodes[one].dtype for one in graph.graph.reach([slot])), key=lambda d: EPSILON.get(d, 0))
    if coarsest.startswith("fp8"):
        return None  # fp8 has few digits to lose
    exact = graph.compute_precisely(DOUBLE, slot)
    if isinstance(exact, str) or exact.shape != got.shape:
        return None
    error = _compare(decode(got), decode(exact), got.dtype)
    return error if error > _find_limit(coarsest) else None


def _find_limit(dtype: str) -> float:
    return max(_LEAST_DIGITS, _ROUNDINGS * EPSILON[dtype])


def _compare(numbers: Numbers, exact: Numbers, dtype: str) -> float:
    """Returns the largest error, divided by the largest element; 0 if an element is not finite, or if all are so small
    that their dtype has fewer digits for them."""
    wide, right = np.asarray(numbers, np.float64), np.asarray(settle(exact, dtype), np.float64)
    largest = float(np.abs(right).max(initial=0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        error = float(np.abs(wide - right).max(initial=0.0))
    is_whole = SMALLEST[dtype] / EPSILON[dtype] <= largest < math.inf
    return error / largest if is_whole and math.isfinite(error) else 0.0


class DigitFinder(SuspectFinder):
    """Computes a graph in its own dtypes and, node by node beside that, in double precision. `errors`: node -> the
    largest error, divided by the largest element; infinite for integers that differ, because a branch was another.
    `has_zero`: a sum is zero but for rounding, so that it has no digits to lose."""

    def __init__(self, graph: OpGraph, read: ReadContents):
        super().__init__(graph, read)
        self.wide = Evaluator(graph, read, InDouble(graph))
        self.errors: dict[int, float] = {}
        self.has_zero = False

    def _compute_all(self, asked: Sequence[int]) -> None:
        self.wide._plan = Plan(self.graph, asked, ())
        super()._compute_all(asked)

    def _keep(self, slot: int, value: RangedArray | Unknown) -> None:
        super()._keep(slot, value)
        exact = self.wide._try(slot)
        self.wide._keep(slot, exact)
        if isinstance(value, Unknown) or isinstance(exact, Unknown):
            self.errors[slot] = math.inf
            return
        node = self.graph.nodes[slot]
        if not is_float(node.dtype):
            self.errors[slot] = 0 if np.array_equal(value.numbers, exact.numbers) else math.inf
            return
        error = self.errors[slot] = _compare(value.numbers, exact.numbers, node.dtype)
        limit, sources = _find_limit(node.dtype), self._plan.list_sources(slot)
        if error > limit and node.op in _COMPUTING and all(self.errors.get(one, 0) * 8 <= limit for one in sources):
            largest = max((float(np.abs(self.wide._value(one).numbers).max(initial=0)) for one in sources), default=0)
            if node.op in _SUMS and float(np.abs(exact.numbers).max()) <= _ZERO * largest:
                self.has_zero = True
            else:
                is_worst = np.abs(value.numbers - exact.numbers)
                self.suspect(slot, value, is_worst == is_worst.max(), exact)

    def _drop(self, slot: int) -> None:
        super()._drop(slot)
        self.wide._drop(slot)


def find_lost_digits(graph: OpGraph, read: ReadContents, outputs: Mapping[int, float]) -> NumberFault | None:
    """Returns the first node that loses digits, so that the `outputs` (node -> error) lose them; None if they are zero
    but for rounding. Raises Unknown."""
    clock, finder = Clock(), DigitFinder(graph, read)
    roots, worst = list(outputs), max(outputs.values())
    finder.evaluate_all(roots)
    exact = finder.wide.evaluate_all(roots)
    for slot, suspect in sorted(finder.suspects.items()):
        clock.check()
        assert suspect.should is not None
        numbers = settle(suspect.should.numbers, graph.nodes[slot].dtype)
        mended = Evaluator(graph, read, given={slot: RangedArray(numbers, suspect.should.ranges)}).evaluate_all(roots)
        if better := sum(error is not None for error in _compare_all(graph, roots, mended, exact)):
            fault, edits = suspect.describe(graph, slot, better, "lost-digits", worst), list[NumberEdit]()
            with contextlib.suppress(Unknown):  # the op is known, also if to try edits takes too long
                for edit in _try_edits(graph, read, slot, roots, exact, clock):
                    edits.append(edit)
            return replace(fault, edits=tuple(edits))
    # the reference sums in double precision: a device that adds in the dtype of the sum loses more
    sums = [slot for slot in graph.reach(roots) if _adds_narrow(graph.nodes[slot])]
    slot = max(sums, key=lambda one: _find_sum_error(graph, one), default=None)
    if slot is None or _find_sum_error(graph, slot) < worst:
        if finder.has_zero:
            return None
        raise Unknown("no single op explains it")
    node, origin = graph.nodes[slot], graph.origins.get(slot, (None, None))
    terms, digits = roundings_of(graph, node), count_digits(worst)
    edits = (NumberEdit("float", count_digits(terms * EPSILON["float"] / 2)),)  # as many roundings of float: a bound
    known = NumberFault("lost-digits", len(roots), "reduce add", node.dtype, *origin, digits=digits)
    return replace(known, terms=terms, edits=edits)


def _compare_all(
    graph: OpGraph, roots: Sequence[int], found: Sequence[RangedArray], exact: Sequence[RangedArray]
) -> list[float | None]:
    """Returns the error of each root, None if it loses digits."""
    errors: list[float | None] = []
    for root, one, right in zip(roots, found, exact, strict=True):
        dtype = graph.nodes[root].dtype
        error = _compare(one.numbers, right.numbers, dtype)
        errors.append(max(error, EPSILON[dtype] / 2) if error <= _find_limit(dtype) else None)
    return errors


def _try_edits(
    graph: OpGraph, read: ReadContents, slot: int, roots: Sequence[int], exact: Sequence[RangedArray], clock: Clock
) -> Iterator[NumberEdit]:
    """Yields edits of the program that leave outputs their digits: all up to the node in a wider dtype, and a tensor
    whose mean is subtracted before, if that does not change the outputs in double precision. Raises Unknown."""

    def measure(given: Mapping[int, RangedArray]) -> float | None:
        """Returns how many digits are right in all outputs that keep them; None if no output does."""
        clock.check()
        found = Evaluator(graph, read, given=given).evaluate_all(roots)
        errors = [error for error in _compare_all(graph, roots, found, exact) if error is not None]
        return count_digits(max(errors)) if errors else None

    node = graph.nodes[slot]
    kind: NumberEditKind = "float" if node.dtype in NARROW else "double"
    (wide,) = Evaluator(_widen(graph, slot, kind), read).evaluate_all([slot])
    if (digits := measure({slot: RangedArray(settle(wide.numbers, node.dtype), wide.ranges)})) is not None:
        yield NumberEdit(kind, digits)
    if node.op in _SUMS:
        for one in _list_shared(graph, slot):
            for axes in _list_axes(graph, slot, one):
                centred = _subtract_mean(graph, read, one, axes, roots, exact)
                if centred is not None and (digits := measure({one: centred})) is not None:
                    yield NumberEdit("subtract-mean", digits, *graph.origins.get(one, (None, None)), axes)
                    return


def _list_axes(graph: OpGraph, slot: int, tensor: int) -> list[tuple[int, ...]]:
    """Returns the axes of the sums that a node depends on: over these the mean of a tensor may be subtracted."""
    rank = len(graph.nodes[tensor].shape)
    sums = (graph.nodes[one] for one in graph.reach([slot]) if graph.nodes[one].op == "reduce")
    return list(dict.fromkeys(node.arg[1] for node in sums if len(graph.nodes[node.src[0]].shape) == rank))


def _subtract_mean(
    graph: OpGraph,
    read: ReadContents,
    slot: int,
    axes: tuple[int, ...],
    roots: Sequence[int],
    exact: Sequence[RangedArray],
) -> RangedArray | None:
    """Returns a tensor without its mean over some axes; None if that changes the outputs in double precision. Raises
    Unknown."""
    wide = InDouble(graph)
    (value,) = Evaluator(graph, read, wide).evaluate_all([slot])
    places = tuple(axis - len(graph.nodes[slot].shape) for axis in axes)
    centred = replace(value, numbers=value.numbers - value.numbers.mean(places, keepdims=True))
    same = Evaluator(graph, read, wide, {slot: centred}).evaluate_all(roots)
    if not all(np.allclose(a.numbers, b.numbers, rtol=_SAME, atol=0) for a, b in zip(same, exact, strict=True)):
        return None
    return replace(centred, numbers=settle(centred.numbers, graph.nodes[slot].dtype))


def _widen(graph: OpGraph, slot: int, dtype: NumberEditKind) -> OpGraph:
    """Returns a graph in which what a node depends on has another dtype where it has the node's."""
    narrow, reached = graph.nodes[slot].dtype, graph.reach([slot])
    nodes = list(graph.nodes)
    for one in reached:
        if nodes[one].dtype == narrow and nodes[one].op not in {"buffer", "bitcast"}:
            nodes[one] = replace(nodes[one], dtype=dtype)
    return replace(graph, nodes=nodes)


def _list_shared(graph: OpGraph, slot: int) -> list[int]:
    """Returns tensors of floats that a node depends on and that several nodes read: the nearest first."""
    readers = Counter(source for node in graph.nodes for source in {*node.src})
    nodes = graph.nodes
    shared = [
        one for one in graph.reach([slot]) if readers[one] > 1 and nodes[one].shape and is_float(nodes[one].dtype)
    ]
    return sorted(shared, reverse=True)[:_MOST_SHARED]


def _adds_narrow(node: OpNode) -> bool:
    return node.op == "reduce" and node.arg[0] == "add" and node.dtype in NARROW


def _find_sum_error(graph: OpGraph, slot: int) -> float:
    """Returns the largest error of a sum that is rounded after each addition, as a share of it."""
    node = graph.nodes[slot]
    return roundings_of(graph, node) * EPSILON[node.dtype] / 2


# *** memory that nothing has written


class OtherFilling(Evaluator):
    """Computes a graph with zeros in elements of its buffers (`cleared`: node -> mask). `filling`: what they had."""

    def __init__(self, graph: OpGraph, read: ReadContents, cleared: Mapping[int, Mask]):
        super().__init__(graph, read)
        self.cleared = cleared
        self.filling: list[Numbers] = []

    def _make_buffer(self, slot: int, node: OpNode) -> RangedArray:
        value = super()._make_buffer(slot, node)
        if slot not in self.cleared:
            return value
        self.filling.append(np.unique(value.numbers[self.cleared[slot]]))
        return RangedArray(np.where(self.cleared[slot], 0, value.numbers), value.ranges)

    def computes(self, before: RangedArray, after: RangedArray) -> bool:
        """Whether a value changes that is no mere copy of what was cleared."""
        was, now = before.numbers, after.numbers
        is_copy = np.isin(was, np.concatenate(self.filling)) & (now == 0)
        return bool(((was != now) & ~is_copy & ~(np.isnan(was) & np.isnan(now))).any())


def find_unwritten_read(graph: ComparedGraph, slots: Sequence[int]) -> NumberFault | None:
    """Returns the first buffer with memory that nothing has written, if some nodes depend on what is there: they have
    other values with zeros there. A copy of it is no use of it: a cache may be written in parts. Raises Unknown."""
    op_graph, clock = graph.graph, Clock()
    unwritten: dict[int, Mask] = {}
    for slot, names in op_graph.inputs.items():
        node = op_graph.nodes[slot]
        parts = [find_unwritten(graph.read(name), ITEMSIZE[node.dtype]).reshape(node.shape) for name in names]
        if any(part.any() for part in parts):
            unwritten[slot] = np.stack(parts) if len(parts) > 1 else parts[0]
    if not unwritten:
        return None
    found = zip(slots, graph.values.evaluate(slots), strict=True)
    roots = [slot for slot, value in found if not isinstance(value, str)]
    before = graph.values.evaluate_all(roots)

    def count_changed(cleared: Iterable[int]) -> int:
        """Returns how many values change with zeros in these buffers."""
        clock.check()
        others = OtherFilling(op_graph, graph.read, {slot: unwritten[slot] for slot in cleared})
        after = others.evaluate_all(roots)
        return sum(itertools.starmap(others.computes, zip(before, after, strict=True)))

    outputs = count_changed(unwritten)
    if not outputs:
        return None
    slot = next(filter(lambda one: count_changed([one]), unwritten), min(unwritten))
    dtype, mask, origin = op_graph.nodes[slot].dtype, unwritten[slot], op_graph.origins.get(slot, (None, None))
    first, faulty = _find_first(mask), int(mask.sum())
    return NumberFault("unwritten", outputs, "buffer", dtype, *origin, first, faulty=faulty, total=mask.size)
