"""Explains an endless rewrite: its name, the nodes that it does not finish, and the rules that cause it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from vmapdbg.child.failures.endless import Endless, Entry, find_circles
from vmapdbg.model.crash import RewriteStep
from vmapdbg.model.vocabulary import CrashKind

UOp = Any

_ENTRIES = ("graph_rewrite", "graph_rewrite_map")
_MOST_STEPS = 64
"""How many rewrites of one node are checked, to find which rules alternate."""


def find_rewrite(frame: FrameType | None) -> FrameType | None:
    """Returns the frame of the call of `graph_rewrite` that a frame is in."""
    while frame is not None and frame.f_code.co_name not in _ENTRIES:
        frame = frame.f_back
    return frame


def name_uop(u: UOp) -> str:
    """Returns a short description of a UOp: `RANGE r4`, `END of r4`, `CONST 2.0`, `ADD float`."""
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
    # tinygrad renders its sources too, which may be a circle
    return "r" + "_".join(str(part) for part in r.arg if isinstance(part, int))


def shorten_place(file: str, line: int) -> str:
    """Returns `tinygrad/schedule/rangeify.py:236`."""
    parts = file.split(os.sep)
    if "tinygrad" in parts:
        last = len(parts) - 1 - parts[::-1].index("tinygrad")
        file = "/".join(parts[last:])
    return f"{file}:{line}"


def explain_endless(found: Endless) -> tuple[CrashKind, tuple[RewriteStep, ...]]:
    """Returns the kind of an endless rewrite, and its steps."""
    context = found.context
    if not found.waiting:
        return explain_chain(context, list(_follow(context, found.growing)))
    circles = find_circles(found.waiting, context.replace)
    steps = [_turn([_explain_waiting(context, entry) for entry in circle]) for circle in circles]
    # the circle with most rules; the same circle wherever the loop was stopped
    return "waits", tuple(max(steps, key=lambda circle: (sum(map(_is_made, circle)), str(circle)), default=()))


def _is_made(step: RewriteStep) -> bool:
    return step.becomes is not None


def _turn(circle: list[RewriteStep]) -> list[RewriteStep]:
    """Returns a circle that starts with a node that a rule replaced."""
    turns = [circle[index:] + circle[:index] for index in range(len(circle))]
    return min(turns, key=lambda turn: (not _is_made(turn[0]), str(turn)))


def _explain_waiting(context: Any, entry: Entry) -> RewriteStep:
    node, _, made = entry
    if made is node:
        return RewriteStep(name_uop(node), None, None)
    return _explain_step(context, node, made, (context.bpm, context.pm))


def _explain_step(context: Any, node: UOp, made: UOp, matchers: Iterable[Any]) -> RewriteStep:
    """Returns a step with the first rule of the matchers that makes `made` of a node."""
    rules = (_find_rule(matcher, node, context.ctx, made) for matcher in matchers)
    added = tuple(name_uop(source) for source in made.src if source not in node.src)
    return RewriteStep(name_uop(node), name_uop(made), next(filter(None, rules), None), added)


def _find_rule(matcher: Any, before: UOp, context: Any, after: UOp) -> str | None:
    """Returns the `file:line` of the rule of a PatternMatcher that makes `after` of `before`, None if none does."""
    if matcher is None:
        return None
    for rule in matcher.pdict.get(before.op, ()):
        pattern, match = rule[0], rule[1]
        # a rule may need a state that has changed
        with contextlib.suppress(Exception):
            if match(before, context) is after:
                return shorten_place(*pattern.location)
    return None


def _follow(context: Any, node: UOp) -> Iterator[tuple[UOp, UOp]]:
    """Yields the results of bottom-up rules for a node, one after the other."""
    for _ in range(_MOST_STEPS):
        made = context.bpm_cache.get(node)
        if made is None:
            return
        yield node, made
        node = made


def explain_chain(context: Any, made: list[tuple[UOp, UOp]]) -> tuple[CrashKind, tuple[RewriteStep, ...]]:
    """Returns kind and steps for one node that rules rewrite again and again; `made` has each node and its result."""
    first: dict[UOp, int] = {}
    for number, (node, result) in enumerate(made):
        first.setdefault(node, number)
        if result in first:
            steps = made[first[result] : number + 1]
            return "repeats", tuple(_explain_step(context, *pair, (context.pm, context.bpm)) for pair in steps)
    steps = [_explain_step(context, *pair, (context.pm, context.bpm)) for pair in made]
    # up to the step where the rules start again
    rules = [step.rule for step in steps]
    period = next((n for n in range(1, len(rules)) if rules[n:] == rules[:-n]), len(rules))
    return "grows", tuple(steps[:period])


def find_stacked(stack: Iterable[Entry]) -> list[tuple[UOp, UOp]]:
    """Returns nodes with their results from the last entries of a stack that only grows."""
    last = list(stack)[-2 * _MOST_STEPS :]
    return [(node, made) for node, stage, made in last if stage == 2]
