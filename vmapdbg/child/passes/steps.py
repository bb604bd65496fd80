"""Finds the first step of a pass that changes a value: one rewrite, or a node whose ranges are wrong. Other rounding is
no difference. Runs in the child."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vmapdbg.check.result import Difference, RewriteKind, WrongRewrite
from vmapdbg.child.evidence.loop_packer import LoopPacker
from vmapdbg.child.evidence.packer import UNEXPECTED, CannotPack
from vmapdbg.child.failures.diagnose import KnownNodes
from vmapdbg.child.failures.endless import find_rule, name_uop
from vmapdbg.child.passes.watch import PassRun
from vmapdbg.model.ops import RESHAPING, STAGE_OPS
from vmapdbg.reference.arithmetic import InDouble, count_roundings
from vmapdbg.reference.graph import OpGraph, Unknown
from vmapdbg.reference.kernels import LoopEvaluator
from vmapdbg.reference.value import RangedArray, align
from vmapdbg.values.numbers import find_close, find_index, find_largest, make_plain
from vmapdbg.values.tolerance import is_float, make_tolerance

UOp = Any
_VALUELESS = frozenset(
    {"SINK", "STORE", "END", "GROUP", "KERNEL", "CALL", "LINEAR", "BARRIER", "DEVICE", "UNIQUE", "LUNIQUE", "FUNCTION"}
)
MOST_SECONDS = 60  # how long the steps of a pass are evaluated
_MOST_REWRITES = 1000  # how many rewrites of one node are looked at
_NAMED = frozenset({"BUFFER", "PARAM", "DEFINE_GLOBAL"})
_HIDDEN = frozenset({"DEVICE", "UNIQUE", "LUNIQUE"})
_FINE = "float"  # the dtype whose tolerance applies to values that are computed in double precision
Found = tuple[RewriteKind, UOp, UOp, Difference]
"""A change from a UOp to another that should keep the value, and how it differs."""


class ValueComparer:
    """Compares values of one graph. `read` returns the contents of an input by their name."""

    def __init__(self, graph: OpGraph, read: Callable[[str], bytes]):
        self.graph, self.read = graph, read
        self._roundings: list[int] = []
        # the step ranges of the last difference, and the ranges that only its second value has
        self.found_ranges: tuple[Sequence[int], Sequence[int]] = ((), ())

    def compare(self, expected: int, got: int, with_more_ranges: bool = False) -> Difference | None:
        """Returns how the second value differs from the first, None if they agree. Values with different axes are
        compared in the order of their elements. The second value may depend on more ranges only `with_more_ranges`:
        then it must be right at each of their steps. Raises Unknown."""
        if expected == got:
            return None
        left, right = LoopEvaluator(self.graph, self.read).evaluate_all((expected, got))
        dtype = self.graph.nodes[expected].dtype
        if dtype != self.graph.nodes[got].dtype:
            raise Unknown(f"it has another dtype: {self.graph.nodes[got].dtype} instead of {dtype}")
        extra = set(right.ranges) - set(left.ranges)
        if extra and not with_more_ranges:
            raise Unknown("it depends on other ranges")
        left, right = _match_axes(left, right)
        if len(self._roundings) <= max(expected, got):
            self._roundings = count_roundings(self.graph)
        roundings = max(self._roundings[expected], self._roundings[got])
        found = find_difference(left, right, dtype, roundings)
        if found is not None and is_float(dtype):
            precise = LoopEvaluator(self.graph, self.read, InDouble(self.graph)).evaluate_all((expected, got))
            found = find_difference(*_match_axes(*precise), _FINE, roundings) and found
        if found is not None:
            self.found_ranges = left.ranges, sorted(extra)
        return found


def _match_axes(left: RangedArray, right: RangedArray) -> tuple[RangedArray, RangedArray]:
    if left.own_shape == right.own_shape:
        spread, _ = align([left, right])
        return spread[0], spread[1]
    if left.ranges or right.ranges:
        raise Unknown("it has other axes")
    if left.numbers.size != right.numbers.size:
        raise Unknown(f"it has another size: {right.numbers.size} elements instead of {left.numbers.size}")
    return left, right.move(np.reshape, left.numbers.shape)


def find_difference(expected: RangedArray, got: RangedArray, dtype: str, terms: int) -> Difference | None:
    """Returns how two values, broadcast, differ where both are defined, or None. Raises Unknown if nothing is."""
    shape = np.broadcast_shapes(expected.numbers.shape, got.numbers.shape)
    left, right = (np.broadcast_to(value.numbers, shape) for value in (expected, got))
    undefined = np.broadcast_to(expected.mask, shape) | np.broadcast_to(got.mask, shape)
    if undefined.all() and undefined.size:
        raise Unknown("all of it is undefined")
    tolerance = make_tolerance(dtype, terms, find_largest(left))
    is_wrong = ~find_close(right, left, tolerance) & ~undefined
    if not is_wrong.any():
        return None
    first = find_index(int(np.flatnonzero(is_wrong)[0]), shape)
    return Difference(first, make_plain(right[first]), make_plain(left[first]), int(is_wrong.sum()), is_wrong.size)


class StepFinder:
    """Looks at the steps of one pass by which `output`, a UOp of the graph before it, gets another value."""

    def __init__(self, run: PassRun, output: UOp, packer: LoopPacker, comparer: ValueComparer):
        self.run, self.output, self.packer, self.comparer = run, output, packer, comparer
        self.made: dict[UOp, UOp] = run.context.replace
        self.rewritten = dict(run.rewrites)
        self.tried = self.skipped = 0
        self._end = time.monotonic() + MOST_SECONDS
        self._known: dict[tuple[UOp, UOp], Difference | None] = {}

    @property
    def is_over(self) -> bool:
        """Whether no more steps are evaluated."""
        return time.monotonic() > self._end

    def find(self, nodes: KnownNodes) -> WrongRewrite | None:
        """Returns the first step that changes a value, None if none is known. `nodes` has the nodes of the Capture."""
        found = self._find_first()
        if found is None:
            return None
        kind, old, new, difference = found
        node = next((known for known in map(nodes.find, (old, new)) if known is not None), None)
        rule = find_rule_of(self.run, old, new) if kind == "rule" else None
        ranges, extra = map(self._render_ranges, self.comparer.found_ranges)
        sides, counts = (describe_uop(old), describe_uop(new)), (self.tried, self.skipped)
        return WrongRewrite(kind, *sides, rule, difference, ranges, node, None, *counts, extra)

    def _render_ranges(self, names: Sequence[int]) -> tuple[str, ...]:
        found = map(self.packer.find_range, names)
        return tuple(r.render(simplify=False) for r in found if r is not None)

    # *** rewrites

    def _find_below(self, u: UOp, with_itself: bool) -> Found | None:
        """Returns the first step that changes the value of a UOp or of an ancestor."""
        for k in u.toposort():
            if (k is u and not with_itself) or k not in self.made or k.op.name in _VALUELESS:
                continue
            difference = self._differ(k, self.made[k])
            if difference is not None:
                return self._explain(k) or ("node", k, self.made[k], difference)
        return None

    def _explain(self, k: UOp) -> Found | None:
        """Returns the first rewrite that changes the value of a UOp whose sources keep theirs."""
        for _ in range(_MOST_REWRITES):
            found = self._explain_stores(k)
            if found is not None:
                return found
            made = self.rewritten.get(k)
            if made is None:
                made = k.replace(src=tuple(self.made.get(s, s) for s in k.src))
                if made is k:
                    return None
                k = made
                continue
            difference = self._differ(k, made)
            if difference is not None:
                return "rule", k, made, difference
            found = self._find_below(made, with_itself=False)
            if found is not None:
                return found
            k = made
        return None

    def _explain_stores(self, after: UOp) -> Found | None:
        """Returns the rewrite of a STORE that changes what memory holds after it."""
        if after.op.name != "AFTER":
            return None
        for place, ended in enumerate(after.src):
            for old in (ended, *ended.src[:1]):
                new = self.rewritten.get(old)
                if new is None or old.op.name not in {"STORE", "END"}:
                    continue
                changed = new if old is ended else ended.replace(src=(new, *ended.src[1:]))
                other = after.replace(src=(*after.src[:place], changed, *after.src[place + 1 :]))
                difference = self._differ(after, other)
                if difference is not None:
                    return "rule", old, new, difference
        return None

    def _differ(self, old: UOp, new: UOp) -> Difference | None:
        """Returns how two UOps that should have the same value differ; None if they agree, or if that is unknown."""
        if old is new or new.op.name in _VALUELESS:
            return None
        if (old, new) not in self._known:
            self._known[old, new] = self._try(lambda: (self.packer.pack(old), self.packer.pack(new)))
        return self._known[old, new]

    def _try(self, pack: Callable[[], tuple[int, int]], with_more_ranges: bool = False) -> Difference | None:
        if self.is_over:
            return None
        self.tried += 1
        try:
            return self.comparer.compare(*pack(), with_more_ranges)
        except (CannotPack, Unknown, *UNEXPECTED):
            self.skipped += 1
            return None

    # *** ranges

    def _find_first(self) -> Found | None:
        """Returns the first step that changes a value. If nodes get ranges: the first with a wrong value or buffer."""
        range_map: dict[UOp, Any] | None = getattr(self.run.context.ctx, "range_map", None)
        if range_map is None or self.run.context.bpm is None:
            return self._find_below(self.output, with_itself=True)
        buffers: dict[UOp, list[UOp]] = {}
        for u in self.run.after.toposort():
            if u.op.name in STAGE_OPS:
                buffers.setdefault(u.src[0], []).append(u)
        for x in self.output.toposort():
            if x not in range_map or x not in self.made or x.op.name in _VALUELESS:
                continue
            made, ranges = self.made[x], range_map[x]
            for got in (made, *buffers.get(made, ())):
                pack = functools.partial(self._pack_ranged, x, got, ranges)
                difference = self._try(pack, with_more_ranges=True)
                if difference is not None:
                    return "ranges", x, got, difference
        return None

    def _pack_ranged(self, x: UOp, got: UOp, ranges: Any) -> tuple[int, int]:
        """Packs a node at the `ranges` of tinygrad's range map, and its replacement; a buffer is read at the ranges
        that it is closed over. The overlay binds the ranges of a scope to the indices at which the scope is read."""
        bound: dict[UOp, UOp] = dict(getattr(ranges, "ambient", {}))
        if x.op.name == "VMAPIN":
            bound |= {r: index for r, index in zip(x.src[1:], ranges[0], strict=True) if r.op.name == "RANGE"}
        right = self.packer.add_indexed(self.packer.pack(x), tuple(ranges[1]))
        changed = {r: index for r, index in bound.items() if r in x.ranges and r is not index}
        if changed:
            right = self.packer.add_indexed(self.packer.add_closed(right, tuple(changed)), tuple(changed.values()))
        found = self.packer.pack(got)
        if got.op.name in STAGE_OPS and got.src[0] is self.made[x]:
            found = self.packer.add_indexed(found, got.src[1:])
        return right, found


def find_rule_of(run: PassRun, old: UOp, new: UOp) -> str | None:
    """Returns the `file:line` of the first rule of a pass that replaces one UOp by another, None if unknown. A result
    with the same op is enough: a rule that counts makes a new UOp each time."""

    def fits(made: UOp | None) -> bool:
        return made is not None and made is not old and made.op is new.op

    return find_rule(run.context, (run.context.pm, run.context.bpm), old, fits)


def describe_uop(u: UOp, depth: int = 4) -> str:
    """Returns an expression of a UOp with the ops down to `depth` levels below it."""
    op = u.op.name
    if op in {"RANGE", "CONST"}:
        return name_uop(u).removeprefix("RANGE ").removeprefix("CONST ")
    if op in _NAMED or not u.src:
        if op == "VCONST":
            return str(u.arg)
        slot = getattr(u.arg, "slot", u.arg)
        if op in {"PARAM", "DEFINE_GLOBAL"} and isinstance(slot, int):
            return f"{op} {slot}"
        return op
    if not depth:
        return f"{op}(..)"
    sources = [describe_uop(s, depth - 1) for s in u.src if s.op.name not in _HIDDEN]
    if op in RESHAPING:
        sources = [sources[0], str(u.marg)]
    return f"{op}({', '.join(sources)})"
