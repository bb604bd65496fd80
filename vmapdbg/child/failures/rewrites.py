"""What an endless rewrite does: its name, the nodes it does not get done with, and the rules that make it so."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

from vmapdbg.child.failures.endless import Endless, Entry, find_circles
from vmapdbg.model.crash import RewriteStep
from vmapdbg.model.vocabulary import CrashKind

UOp = Any

_ENTRIES = ("graph_rewrite", "graph_rewrite_map")
_MOST_STEPS = 64
"""How many rewrites of one node are looked at, to find which rules alternate."""


def find_rewrite(frame: FrameType | None) -> FrameType | None:
    """Returns the frame of the call of `graph_rewrite` that a frame is in."""
    while frame is not None and frame.f_code.co_name not in _ENTRIES:
        frame = frame.f_back
    return frame


def name_rewrite(frame: FrameType | None) -> str:
    """Returns `rewriting a graph (add control flow)`."""
    entry = find_rewrite(frame)
    name = None if entry is None else entry.f_locals.get("name")
    return f"rewriting a graph ({name})" if name else "rewriting a graph"


def name_uop(u: UOp) -> str:
    """Returns what a UOp is, as short as it can be told: `RANGE r4`, `END of r4`, `CONST 2.0`, `ADD float`."""
    op = u.op.name
    if op == "RANGE":
        return f"RANGE {name_range(u)}"
    if op == "END":
        return f"END of {', '.join(name_range(r) for r in u.src[1:] if r.op.name == 'RANGE')}"
    if op == "CONST":
        return f"CONST {u.arg}"
    if op in {"SINK", "STORE", "GROUP"}:
        return op
    return f"{op} {str(u.dtype).removeprefix('dtypes.')}"


def name_range(r: UOp) -> str:
    # of the range alone: to render it means to look at its sources, which may be a circle
    numbers = [str(part) for part in r.arg if isinstance(part, int)]
    return "r" + "_".join(numbers)


def find_rule(matcher: Any, before: UOp, context: Any, after: UOp) -> str | None:
    """Returns the `file:line` of the rule of a PatternMatcher that makes one UOp of another, None where none does."""
    if matcher is None:
        return None
    for rule in matcher.pdict.get(before.op, ()):
        pattern, match = rule[0], rule[1]
        # a rule may need what is no more as it was
        with contextlib.suppress(Exception):
            if match(before, context) is after:
                return shorten_place(*pattern.location)
    return None


def shorten_place(file: str, line: int) -> str:
    """Returns `tinygrad/schedule/rangeify.py:236`."""
    parts = file.split(os.sep)
    if "tinygrad" in parts:
        last = len(parts) - 1 - parts[::-1].index("tinygrad")
        file = "/".join(parts[last:])
    return f"{file}:{line}"


def explain_endless(found: Endless) -> tuple[CrashKind, tuple[RewriteStep, ...]]:
    """Returns what is wrong with an endless rewrite, and its nodes."""
    if found.waiting:
        circles = find_circles(found.waiting, found.context.replace)
        steps = [_turn([_explain_waiting(found.context, entry) for entry in circle]) for circle in circles]
        # that which rules have to do with most; where the loop was stopped makes no difference
        return "waits", tuple(max(steps, key=lambda circle: (sum(map(_is_made, circle)), str(circle)), default=()))
    return explain_chain(found.context, list(_follow(found.context, found.growing)))


def _is_made(step: RewriteStep) -> bool:
    return step.becomes is not None


def _turn(circle: list[RewriteStep]) -> list[RewriteStep]:
    """Returns a circle as it begins with a node that a rule made something of."""
    turns = [circle[index:] + circle[:index] for index in range(len(circle))]
    return min(turns, key=lambda turn: (not _is_made(turn[0]), str(turn)))


def _explain_waiting(context: Any, entry: Entry) -> RewriteStep:
    node, _, made = entry
    if made is node:
        return RewriteStep(name_uop(node), None, None)
    return _explain_step(context.ctx, (context.bpm, context.pm), node, made)


def _explain_step(ctx: Any, matchers: Sequence[Any], node: UOp, made: UOp) -> RewriteStep:
    """Returns what a rule made of a node. The rules of the first matcher are tried first: two of them may make the
    same."""
    rules = (find_rule(matcher, node, ctx, made) for matcher in matchers)
    added = tuple(name_uop(source) for source in made.src if source not in node.src)
    return RewriteStep(name_uop(node), name_uop(made), next(filter(None, rules), None), added)


def _follow(context: Any, node: UOp) -> Iterable[tuple[UOp, UOp]]:
    """Yields what rules that go from the bottom up made of a node, one after the other."""
    for _ in range(_MOST_STEPS):
        made = context.bpm_cache.get(node)
        if made is None:
            return
        yield node, made
        node = made


def explain_chain(context: Any, made: list[tuple[UOp, UOp]]) -> tuple[CrashKind, tuple[RewriteStep, ...]]:
    """Returns the same for one node that is rewritten again and again: `made` has what became of what, in order."""
    first: dict[UOp, int] = {}
    for number, (node, _) in enumerate(made):
        if node in first:
            made = made[first[node] : number]
            return "repeats", tuple(_explain_rewrite(context, *pair) for pair in made)
        first[node] = number
    steps = [_explain_rewrite(context, *pair) for pair in made]
    if made and made[-1][1] in first:
        return "repeats", tuple(steps[first[made[-1][1]] :])
    # as many as there are before the rules come again
    rules = [step.rule for step in steps]
    period = next((n for n in range(1, len(rules)) if rules[n:] == rules[:-n]), len(rules))
    return "grows", tuple(steps[:period])


def _explain_rewrite(context: Any, node: UOp, made: UOp) -> RewriteStep:
    return _explain_step(context.ctx, (context.pm, context.bpm), node, made)


def find_stacked(stack: Iterable[Entry]) -> list[tuple[UOp, UOp]]:
    """Returns what became of what, from the last entries of a stack that only grows: those that wait for what a rule
    made of their node."""
    last = list(stack)[-2 * _MOST_STEPS :]
    return [(node, made) for node, stage, made in last if stage == 2]
