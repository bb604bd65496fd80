"""One run of the overlay's pass."""

from __future__ import annotations

from collections.abc import Iterable

from tinygrad.helpers import Metadata
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

from vmapdbg.child.capture.reasons import explain_outcome, explain_realized
from vmapdbg.child.capture.view import Launch, MadeBuffer, View
from vmapdbg.child.listen.overlay_recorder import Launched, PassRecord
from vmapdbg.model.capture import Realized, Unsplit


class PassView(View):
    """The record of a run of the overlay's pass."""

    def __init__(self, record: PassRecord, is_brief: bool = False):
        super().__init__(is_brief)
        self.record = record
        self.graph = record.toposort
        self.ids = record.find_ids()
        notes = self._find_notes()
        self.lines = {u: note.caller for u, note in notes.items()}
        self.methods = {u: note.name for u, note in notes.items()}
        self.range_map = record.context.range_map
        self.ambient = record.context.vmap_map
        self.scope_ranges = record.scope_ranges
        self.held = record.buffers
        # one that is told of before the ranges of a scope get other ids is another UOp by now, with the same tag
        self._unsplit_by_tag = {u.tag: whole for u, whole in record.unsplit.items() if u.tag}
        self.launches = [
            Launch(one.ast, one.buffers, one.count, one.variables, self._find_written(one), one.is_compute)
            for one in record.kernels
        ]

    def explain_realized(self, node: UOp) -> Realized | None:
        return explain_realized(self, node)

    def explain_unsplit(self, node: UOp) -> Unsplit | None:
        if node.op is not Ops.REDUCE_AXIS:
            return None
        whole = self.record.unsplit.get(node) or self._unsplit_by_tag.get(node.tag)
        if whole is None:
            return None
        return Unsplit("gather", whole.axes, whole.rest, whole.source, whole.between, whole.result)

    def find_buffers(self) -> Iterable[MadeBuffer]:
        for node, made in self.record.bufferizes.items():
            if node in self.ids:
                decided = explain_outcome(self, node, made)
                yield MadeBuffer(node, made.buffer, made.ambient, made.stored, made.readers, made.left_open, decided)

    def _find_written(self, launched: Launched) -> UOp | None:
        return next((self.held[b] for b in launched.buffers[:1] if b in self.held), None)

    def is_output(self, node: UOp) -> bool:
        return any(s.base is node for s in self.record.tsink.src)

    def _find_notes(self) -> dict[UOp, Metadata]:
        """Returns for each node tinygrad's note of the user's call. One that tinygrad put in itself has that of the
        first of its consumers."""
        notes: dict[UOp, Metadata] = {}
        for u in reversed(self.ids):
            found = self._own_note(u)
            if found is None:
                consumers = self.record.consumers.get(u, {})
                found = next((notes[c] for c in consumers if c in notes), None)
            if found is not None:
                notes[u] = found
        return notes

    def _own_note(self, u: UOp) -> Metadata | None:
        tags = [t for t in u.tag or () if isinstance(t, int) and t < len(self.record.notes)]
        notes = (note for t in tags for note in self.record.notes[t] or ())
        return next((note for note in notes if note.caller), None)
