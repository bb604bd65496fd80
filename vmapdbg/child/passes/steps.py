"""Finds the first step of a pass that changes a value: one rewrite, or a node whose ranges are wrong. Runs in the
child."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from vmapdbg.check.result import Difference, RewriteKind, WrongRewrite
from vmapdbg.child.evidence.loop_packer import LoopPacker
from vmapdbg.child.evidence.packer import UNEXPECTED, CannotPack
from vmapdbg.child.failures.diagnose import KnownNodes
from vmapdbg.child.failures.endless import name_uop, shorten_place
from vmapdbg.child.passes.compare import Judge
from vmapdbg.child.passes.watch import PassRun
from vmapdbg.model.ops import RESHAPING, STAGE_OPS
from vmapdbg.reference.graph import Unknown

UOp = Any
_VALUELESS = frozenset(
    {"SINK", "STORE", "END", "GROUP", "KERNEL", "CALL", "LINEAR", "BARRIER", "DEVICE", "UNIQUE", "LUNIQUE", "FUNCTION"}
)


MOST_SECONDS = 60
"""How long the steps of a pass are evaluated."""
_MOST_REWRITES = 1000
"""How many rewrites of one node are looked at."""
Progress = Callable[[str], object]


Found = tuple[RewriteKind, UOp, UOp, Difference]
"""A change from a UOp to another that should keep the value, and how it differs."""


class StepFinder:
    """Looks at the steps of one pass by which `output`, a UOp of the graph before it, gets another value."""

    def __init__(self, run: PassRun, output: UOp, packer: LoopPacker, judge: Judge, progress: Progress):
        self.run, self.output, self.packer, self.judge, self.progress = run, output, packer, judge, progress
        self.made: dict[UOp, UOp] = run.context.replace
        self.rewritten = dict(run.rewrites)
        self.tried = self.skipped = 0
        self._end = time.monotonic() + MOST_SECONDS
        self._known: dict[tuple[UOp, UOp], Difference | None] = {}
        # the step ranges of the last difference, and the ranges that only its second side has
        self._found_ranges: tuple[Sequence[int], Sequence[int]] = ((), ())

    @property
    def is_over(self) -> bool:
        """Whether no more steps are evaluated."""
        return time.monotonic() > self._end

    def find(self, nodes: KnownNodes) -> WrongRewrite | None:
        """Returns the first step that changes a value, None if no step that can be evaluated does. `nodes` has the
        nodes of the Capture."""
        found = self._find_first()
        if found is None:
            return None
        kind, old, new, difference = found
        known = (nodes.find(u) for u in (old, new))
        ranges, extra = map(self._render_ranges, self._found_ranges)
        return WrongRewrite(
            kind=kind,
            before=describe_uop(old),
            after=describe_uop(new),
            rule=find_rule(self.run, old, new) if kind == "rule" else None,
            difference=difference,
            ranges=ranges,
            extra=extra,
            node=next((node for node in known if node is not None), None),
            line=None,
            tried=self.tried,
            skipped=self.skipped,
        )

    def _render_ranges(self, names: Sequence[int]) -> tuple[str, ...]:
        """Returns tinygrad's names of step ranges."""
        found = (self.packer.find_range(name) for name in names)
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
        """Returns the rewrite that changes the value of a UOp whose sources keep theirs. It goes through the rewrites
        in tinygrad's order."""
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
        self.progress(f"{self.run.name}: step {self.tried:,}")
        try:
            found = self.judge.compare(*pack(), with_more_ranges)
        except (CannotPack, Unknown, *UNEXPECTED):
            self.skipped += 1
            return None
        if found is not None:
            self._found_ranges = self.judge.last_ranges, self.judge.last_extra
        return found

    # *** ranges

    def _find_first(self) -> Found | None:
        """Returns the first step that changes a value. If the pass gives ranges to the nodes of the tensor graph, that
        is the first node whose value at its ranges, or whose buffer, is not as before."""
        range_map = find_range_map(self.run)
        if range_map is None:
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
        """Packs a node at its ranges, and its replacement; a buffer is read at the ranges that it is closed over."""
        right = self._pack_at_ranges(x, ranges)
        found = self.packer.pack(got)
        if got.op.name in STAGE_OPS and got.src[0] is self.made[x]:
            found = self.packer.add_indexed(found, got.src[1:])
        return right, found

    def _pack_at_ranges(self, x: UOp, ranges: Any) -> int:
        """Packs a node at the `ranges` of tinygrad's range map. The overlay binds the ranges of a scope to
        the indices at which the scope is read."""
        bound: dict[UOp, UOp] = dict(getattr(ranges, "ambient", {}))
        if x.op.name == "VMAPIN":
            bound |= {r: index for r, index in zip(x.src[1:], ranges[0], strict=True) if r.op.name == "RANGE"}
        slot = self.packer.add_indexed(self.packer.pack(x), tuple(ranges[1]))
        changed = {r: index for r, index in bound.items() if r in x.ranges and r is not index}
        if not changed:
            return slot
        return self.packer.add_indexed(self.packer.add_closed(slot, tuple(changed)), tuple(changed.values()))


def find_range_map(run: PassRun) -> dict[UOp, Any] | None:
    """Returns the ranges that a pass gives to each node of the tensor graph; None for a pass that gives no ranges."""
    context = run.context
    if context.bpm is None:
        return None
    return getattr(context.ctx, "range_map", None)


def find_rule(run: PassRun, old: UOp, new: UOp) -> str | None:
    """Returns the `file:line` of the first rule of a pass that replaces one UOp by another, None if unknown. A result
    with the same op is enough: a rule that counts makes a new UOp each time."""
    context = run.context
    for matcher in (context.pm, context.bpm):
        for rule in matcher.pdict.get(old.op, ()) if matcher is not None else ():
            # a rule may need a state that is gone
            with contextlib.suppress(Exception):
                made = rule[1](old, context.ctx)
                if made is not None and made is not old and (made is new or made.op is new.op):
                    return shorten_place(*rule[0].location)
    return None


_MOST = 100
"""How long an expression is at most."""
_DEEPEST = 6
_NAMED = frozenset({"BUFFER", "PARAM", "DEFINE_GLOBAL"})
_HIDDEN = frozenset({"DEVICE", "UNIQUE", "LUNIQUE"})


def describe_uop(u: UOp) -> str:
    """Returns an expression of a UOp, as deep as the room allows."""
    texts = (_render(u, depth) for depth in reversed(range(1, _DEEPEST + 1)))
    return next((text for text in texts if len(text) <= _MOST), _render(u, 1)[:_MOST])


def _render(u: UOp, depth: int) -> str:
    op = u.op.name
    if op in {"RANGE", "CONST"}:
        return name_uop(u).removeprefix("RANGE ").removeprefix("CONST ")
    if op in _NAMED or not u.src:
        return _name_leaf(u)
    if not depth:
        return f"{op}(..)"
    sources = [_render(s, depth - 1) for s in u.src if s.op.name not in _HIDDEN]
    if op in RESHAPING:
        sources = [sources[0], str(u.marg)]
    return f"{op}({', '.join(sources)})"


def _name_leaf(u: UOp) -> str:
    op = u.op.name
    if op == "VCONST":
        return str(u.arg)
    slot = getattr(u.arg, "slot", u.arg)
    if op in {"PARAM", "DEFINE_GLOBAL"} and isinstance(slot, int):
        return f"{op} {slot}"
    return op
