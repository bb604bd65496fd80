"""Compares tinygrad's gradients with finite differences in double precision, in the process that compares. If one is
wrong, the nodes between its tensor and the loss are tried: the rule of the last wrong node's reader makes it wrong."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vmapdbg.check.result import GradientCheck, WrongGradient
from vmapdbg.child.compare.number_faults import Clock
from vmapdbg.child.compare.reference_values import DOUBLE, ReadContents, ReferenceValues
from vmapdbg.child.evidence.evidence import GradientCall
from vmapdbg.model.account import Left
from vmapdbg.reference.graph import Unknown
from vmapdbg.reference.value import RangedArray, align
from vmapdbg.values.numbers import Numbers
from vmapdbg.values.tolerance import is_float

_MOST_SECONDS = 60
_STEPS = (1e-4, 1e-6)
_MOST_ERROR = 1e-2
"""A derivative is known if two step sizes, and both sides, give the same, but for so large a share of its terms."""
_TOLERANCE = 1e-6
"""A gradient is wrong if it differs by more than this share of its terms, and more than the step sizes do."""
_NOISE = 1e-14  # by what share of it the loss changes because of rounding in double precision


class Slope(NamedTuple):
    """The derivative of the loss along a direction: by tinygrad's gradient, and by finite differences. `is_right` is
    None if the latter is not known: the loss jumps or bends there, or hardly changes."""

    got: float
    expected: float
    is_right: bool | None


class GradientChecker:
    """Checks one call. The targets are moved a little first: a loss often bends where it is (`relu` of zero). What is
    detached stays as it is there. `first` are the targets that are computed from no other target. Raises Unknown if a
    value cannot be computed."""

    def __init__(self, call: GradientCall, read: ReadContents):
        self.call, self.graph, self.read = call, call.graph, read
        self.random = np.random.default_rng(0)
        values = ReferenceValues(self.graph, read, DOUBLE)
        below = {slot: set(self.graph.reach([slot])) for slot in call.targets}
        targets = set(call.targets)
        self.first = [slot for slot in call.targets if not targets & below[slot] - {slot}]
        moved = [self._move(value) for value in values.evaluate_all(self.first)]
        self.point = dict(zip(self.first, moved, strict=True))
        detached = self.open(self.point).evaluate_all(call.detached)
        self.point = dict(zip(call.detached, detached, strict=True)) | self.point
        self.values = self.open(self.point)
        loss, self.upstream = self.values.evaluate_all([call.loss, call.upstream])
        self.loss = _multiply(loss, self.upstream)

    def open(self, known: Mapping[int, RangedArray]) -> ReferenceValues:
        """Returns the values of the graph in double precision with other values of some nodes."""
        return ReferenceValues(self.graph, self.read, DOUBLE, known)

    def _move(self, value: RangedArray) -> RangedArray:
        numbers = np.asarray(value.numbers, np.float64)
        size = float(np.sqrt(np.square(numbers).mean())) if numbers.size else 0.0
        relative, absolute = self.random.uniform(-1e-3, 1e-3, (2, *numbers.shape))
        return RangedArray(numbers * (1 + relative) + absolute * (size or 1), value.ranges)

    def compute_loss(self, moved: Mapping[int, RangedArray]) -> float:
        """Returns the loss with other values of some nodes."""
        (loss,) = self.open({**self.point, **moved}).evaluate_all([self.call.loss])
        return _multiply(loss, self.upstream)

    def compare(self, slots: Sequence[int]) -> Slope:
        """Compares the gradients of nodes along two random directions; returns the first that is wrong or unknown."""
        first = self._compare_once(slots)
        return self._compare_once(slots) if first.is_right else first

    def _compare_once(self, slots: Sequence[int]) -> Slope:
        # in one go: the gradients share most of their graph
        made = [self.call.gradients[slot] for slot in slots if slot in self.call.gradients]
        values = dict(zip(slots, self.values.evaluate_all([*slots, *made]), strict=False))
        directions = {slot: self._choose_direction(value) for slot, value in values.items()}
        terms = {slot: self._multiply_gradient(slot, one, np.abs) for slot, one in directions.items()}
        least = min(filter(None, terms.values()), default=0.0)
        for slot, share in terms.items():
            if share:  # each node has the same share of the slope
                directions[slot] = RangedArray(directions[slot].numbers * (least / share), directions[slot].ranges)
        got = sum(self._multiply_gradient(slot, one) for slot, one in directions.items())
        size = least * sum(map(bool, terms.values()))
        found = Slope(got, math.nan, None)
        for step in _STEPS:
            slopes: list[float] = []
            bend = math.inf
            for width in (step, step / 2):
                above, below = (
                    self.compute_loss({slot: _add(value, directions[slot], by) for slot, value in values.items()})
                    for by in (width, -width)
                )
                slopes.append((above - below) / (2 * width))
                bend = min(bend, abs(above - 2 * self.loss + below) / width)
            wide, narrow = slopes
            expected, error = (4 * narrow - wide) / 3, abs(wide - narrow)
            size = max(size, abs(expected))
            noise = _NOISE * abs(self.loss) / step if size else 0.0
            if np.isfinite([got, expected]).all() and max(error, bend, noise) <= _MOST_ERROR * size:
                found = Slope(got, expected, abs(got - expected) <= 10 * error + _TOLERANCE * size)
            if found.is_right:
                break
        return found

    def _choose_direction(self, value: RangedArray) -> RangedArray:
        """Returns a direction relative to the numbers: they keep their signs, and zeros, where a loss often bends."""
        shape = value.numbers.shape
        signs, sizes = self.random.choice([-1.0, 1.0], shape), self.random.uniform(0.5, 1, shape)
        return RangedArray(signs * sizes * np.abs(value.numbers), value.ranges)

    def _multiply_gradient(
        self, slot: int, direction: RangedArray, of: Callable[[Numbers], Numbers] = np.positive
    ) -> float:
        """Returns the slope along a direction by tinygrad's gradient; the sum of the sizes of its terms with `abs`."""
        if slot not in self.call.gradients:
            return 0.0
        (gradient,) = self.values.evaluate_all([self.call.gradients[slot]])
        one, other = (RangedArray(of(value.numbers), value.ranges) for value in (gradient, direction))
        return _multiply(one, other)

    # *** whose rule

    def find_guilty(self, slot: int, clock: Clock) -> list[int]:
        """Returns the readers of the last wrong node on the way from a wrong node to the loss: the rule of one of them
        makes it wrong. Raises Unknown."""
        readers = self._find_readers()
        known: dict[int, bool] = {slot: False, self.call.loss: True}

        def is_right(one: int) -> bool:
            clock.check()
            if one not in known:
                known[one] = self.compare([one]).is_right is not False
            return known[one]

        while True:
            path = _find_path(slot, self.call.loss, readers)
            first, last = 0, len(path) - 1
            while last - first > 1:
                middle = (first + last) // 2
                if is_right(path[middle]):
                    last = middle
                else:
                    first = middle
            slot = path[first]
            wrong = [one for one in readers.get(slot, ()) if not is_right(one)]
            if not wrong:
                return sorted(readers.get(slot, ()))
            slot = wrong[0]

    def _find_readers(self) -> dict[int, list[int]]:
        """Maps each node to the nodes with a gradient that use its value, directly or through nodes without one."""
        readers: dict[int, list[int]] = {}
        between = {slot for slot in self.call.gradients if is_float(self.graph.nodes[slot].dtype)}
        for slot in sorted(between):
            ends = between.union(self.call.detached) - {slot}
            for source in between.intersection(self.graph.reach([slot], ends)) - {slot}:
                readers.setdefault(source, []).append(slot)
        return readers


def _add(value: RangedArray, direction: RangedArray, times: float) -> RangedArray:
    return RangedArray(value.numbers + times * direction.numbers, value.ranges)


def _multiply(one: RangedArray, other: RangedArray) -> float:
    (left, right), _ = align([one, other])
    return float((np.asarray(left.numbers, np.float64) * right.numbers).sum())


def _find_path(start: int, end: int, readers: Mapping[int, Iterable[int]]) -> list[int]:
    """Returns a shortest way from a node to another one. Raises Unknown if there is none."""
    before: dict[int, int] = {start: start}
    waiting = [start]
    for slot in waiting:
        if slot == end:
            break
        for one in readers.get(slot, ()):
            if one not in before:
                before[one] = slot
                waiting.append(one)
    if end not in before:
        raise Unknown("its gradient does not come from the loss")
    path = [end]
    while path[-1] != start:
        path.append(before[path[-1]])
    return path[::-1]


def check_gradients(call: GradientCall, read: ReadContents) -> GradientCheck:
    """Compares the gradients of a call."""
    if call.refused is not None:
        return GradientCheck(call.line, call.asked, left=(Left("gradients", call.asked, call.refused),))
    clock, left, wrong = Clock(_MOST_SECONDS), list[Left](), list[WrongGradient]()
    compared, right = 0, set[int]()
    try:
        checker = GradientChecker(call, read)
        if checker.compare(checker.first).is_right:
            compared, right = len(checker.first), set(checker.first)
        for number, slot in enumerate(call.targets):
            if slot in right:
                continue
            clock.check()
            slope = checker.compare([slot])
            if slope.is_right is None:
                left.append(Left("gradients", 1, "the loss jumps or bends there, hardly changes, or is not finite"))
                continue
            compared += 1
            if not slope.is_right:
                wrong.append(_describe(checker, number, slot, slope, clock))
    except Unknown as error:
        left.append(Left("gradients", call.asked - compared - len(left), str(error)))
    return GradientCheck(call.line, call.asked, compared, tuple(wrong), tuple(left))


def _describe(checker: GradientChecker, number: int, slot: int, slope: Slope, clock: Clock) -> WrongGradient:
    graph, node = checker.graph, checker.graph.nodes[slot]
    try:
        guilty = checker.find_guilty(slot, clock)
    except Unknown:
        guilty = []
    line, _ = graph.origins.get(slot, (None, None))
    ops = tuple(dict.fromkeys(graph.nodes[one].op for one in guilty))
    op_line, method = graph.origins.get(guilty[0], (None, None)) if guilty else (None, None)
    return WrongGradient(number, node.shape, node.dtype, line, slope.got, slope.expected, ops, op_line, method)
