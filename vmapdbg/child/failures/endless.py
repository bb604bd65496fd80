"""Decides whether a rewrite of a graph never ends, from the variables of tinygrad's loop that rewrites.

The loop takes an entry (node, stage, result so far) off a stack, and puts it back if it must wait for another node. If
every entry waits, and some wait in a circle, the rewrite never ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

UOp = Any
Entry = tuple[UOp, int, UOp]

LOOP = "unified_rewrite"
"""The function of tinygrad with the loop."""
MOST_REWRITES = 20_000
"""If rules rewrite one node more often, the rewrite never ends."""


@dataclass(frozen=True)
class Endless:
    """Why a rewrite never ends. `context` is tinygrad's RewriteContext, `waiting` has the entries that wait, and
    `growing` is the node that rules rewrite again and again, None if there is none."""

    context: Any
    waiting: tuple[Entry, ...] = ()
    growing: UOp = None

    def is_same(self, other: Endless | None) -> bool:
        """Returns whether the same entries of the same rewrite wait as before."""
        return other is not None and other.context is self.context and set(other.waiting) == set(self.waiting)


class EndlessRewrite(BaseException):
    """Ends a rewrite that would never end. It is no Exception, so that the snippet does not catch it. It is raised in a
    thread from outside, by its class: so a subclass has what was `found`."""

    found: Endless

    def __str__(self) -> str:
        return "tinygrad rewrites a graph without end"


def find_loop(frame: FrameType | None) -> FrameType | None:
    """Returns the innermost frame of tinygrad's loop that a frame is called from."""
    while frame is not None and frame.f_code.co_name != LOOP:
        frame = frame.f_back
    return frame


def find_endless(frame: FrameType) -> Endless | None:
    """Returns why the loop of a frame never ends, None if it may end. The loop may be running in another thread: if
    entries wait, the same entries must wait at a second look."""
    values = frame.f_locals
    context, stack = values.get("self"), values.get("stack")
    if context is None or stack is None:
        return None
    seen = values.get("seen")
    if seen is not None and len(seen) > MOST_REWRITES:
        return Endless(context, growing=values.get("n"))
    done: Mapping[UOp, UOp] = context.replace
    entries: list[Entry] = [*stack]
    if {"n", "stage", "new_n"} <= values.keys():
        # the loop took this entry off the stack
        entries.append((values["n"], values["stage"], values["new_n"]))
    if not all(find_missing(entry, done) is not None for entry in entries) or not find_circles(entries, done):
        return None
    return Endless(context, tuple(dict.fromkeys(entries)))


def find_missing(entry: Entry, done: Mapping[UOp, UOp]) -> UOp | None:
    """Returns the node that an entry waits for, None if it waits for none."""
    node, stage, made = entry
    if node in done or stage == 0:
        return None
    wanted = made.src if stage == 1 else (made,)
    return next((one for one in wanted if one not in done), None)


def find_circles(entries: Sequence[Entry], done: Mapping[UOp, UOp]) -> list[list[Entry]]:
    """Returns circles of entries: each entry waits for the next, and the last for the first."""
    waiting = {entry[0]: entry for entry in entries}
    circles: list[list[Entry]] = []
    visited: set[UOp] = set()
    for entry in entries:
        path: dict[UOp, None] = {}
        node: UOp | None = entry[0]
        while node in waiting and node not in path and node not in visited:
            path[node] = None
            node = find_missing(waiting[node], done)
        visited.update(path)
        if node in path:
            nodes = list(path)
            circles.append([waiting[one] for one in nodes[nodes.index(node) :]])
    return circles
