"""One run of the pass with what the model calls its nodes, ranges and lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, renderer

from vmapdbg.child.record.recorder import PassRecord


class PassView:
    """The record of a run of the pass. `ids` has the id of each node, `lines` the user's line of a node."""

    def __init__(self, record: PassRecord):
        self.record = record
        self.ids = record.find_ids()
        self.lines = self._find_lines()
        self._names: dict[UOp, str] = {}

    def render(self, u: UOp) -> str:
        """tinygrad's `render()`, remembering the parts: thousands of nodes share few index expressions."""
        if u not in self._names:
            for part in u.toposort(gate=lambda x: x not in self._names):
                self._names[part] = str(renderer.rewrite(part, ctx=self._names))
        return self._names[u]

    def render_all(self, ranges: Iterable[UOp]) -> tuple[str, ...]:
        return tuple(self.render(r) for r in ranges)

    def is_output(self, node: UOp) -> bool:
        return any(s.base is node for s in self.record.tsink.src)

    def _find_lines(self) -> dict[UOp, str]:
        """A node that tinygrad put in itself has the line of the first of its consumers."""
        lines: dict[UOp, str] = {}
        for u in reversed(self.ids):
            found = self._own_line(u)
            if found is None:
                consumers = self.record.consumers.get(u, {})
                found = next((lines[c] for c in consumers if c in lines), None)
            if found is not None:
                lines[u] = found
        return lines

    def _own_line(self, u: UOp) -> str | None:
        tags = [t for t in u.tag or () if isinstance(t, int) and t < len(self.record.notes)]
        notes = (note for t in tags for note in self.record.notes[t] or ())
        return next((note.caller for note in notes if note.caller), None)


def size_of(s: Any) -> int | str:
    """Returns the size of an axis: a number, or a symbolic size as tinygrad renders it."""
    if isinstance(s, UOp):
        return s.arg if s.op is Ops.CONST else s.render()
    return int(s)
