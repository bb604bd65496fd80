"""A rewrite of a graph that never ends: how it is told, from what the loop of tinygrad that rewrites has in its hands.

That loop takes an entry (node, stage, what was made of it) off a stack, and puts it back where it has to wait for
another node. Where every entry waits, and some in a circle, nothing will ever be done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

UOp = Any
Entry = tuple[UOp, int, UOp]

LOOP = "unified_rewrite"
"""The function of tinygrad's with the loop."""
MOST_REWRITES = 20_000
"""How often rules may rewrite one node before that is taken to have no end."""


@dataclass(frozen=True)
class Endless:
    """What keeps a rewrite from ending. `context` is tinygrad's RewriteContext, `waiting` the entries that wait, and
    `growing` the node that rules go on to rewrite, None where none is."""

    context: Any
    waiting: tuple[Entry, ...] = ()
    growing: UOp = None

    def is_same(self, other: Endless | None) -> bool:
        """Tells whether the same entries of the same rewrite wait as before."""
        return other is not None and other.context is self.context and set(other.waiting) == set(self.waiting)


class EndlessRewrite(BaseException):
    """Ends a rewrite that would never end. It is no Exception: the snippet is not to catch what never happens in
    tinygrad. A class made from it has what was `found`, since it is raised in a thread from outside, by its class."""

    found: Endless

    def __str__(self) -> str:
        return "tinygrad rewrites a graph without end"


def find_loop(frame: FrameType | None) -> FrameType | None:
    """Returns the innermost frame of tinygrad's loop that a frame is called from."""
    while frame is not None and frame.f_code.co_name != LOOP:
        frame = frame.f_back
    return frame


def find_endless(frame: FrameType) -> Endless | None:
    """Returns why the loop of a frame never ends, None where it may end. The loop may be running in another thread, and
    have an entry in its hands just then: where entries wait, it must be the same when it is looked at again."""
    values = frame.f_locals
    context, stack = values.get("self"), values.get("stack")
    if context is None or stack is None:
        return None
    seen = values.get("seen")
    if seen is not None and len(seen) > MOST_REWRITES:
        return Endless(context, growing=values.get("n"))
    done: Mapping[UOp, UOp] = context.replace
    # a copy is made in one go; it may lack the entry that the loop has in its hands
    entries: list[Entry] = [*stack, *find_current(values)]
    if not all(find_missing(entry, done) is not None for entry in entries) or not find_circles(entries, done):
        return None
    return Endless(context, tuple(dict.fromkeys(entries)))


def find_current(values: Mapping[str, Any]) -> list[Entry]:
    """Returns the entry that the loop took off the stack."""
    if not {"n", "stage", "new_n"} <= values.keys():
        return []
    return [(values["n"], values["stage"], values["new_n"])]


def find_missing(entry: Entry, done: Mapping[UOp, UOp]) -> UOp | None:
    """Returns the node that an entry waits for, None where it can be taken on."""
    node, stage, made = entry
    if node in done or stage == 0:
        return None
    wanted = made.src if stage == 1 else (made,)
    return next((one for one in wanted if one not in done), None)


def find_circles(entries: Sequence[Entry], done: Mapping[UOp, UOp]) -> list[list[Entry]]:
    """Returns the entries that wait for each other: in each circle each one for the next, and the last for the
    first."""
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
