"""Which record a buffer has that a rule of tinygrad is asked about."""

from __future__ import annotations

from collections.abc import Mapping

from vmapdbg.child.listen.records import ObservedBuffer, UOp


class KnownBuffers:
    """The buffers of one run of the pass, known by the id of their options: those go with a buffer through every
    rewrite, as they are."""

    def __init__(self) -> None:
        self._records: dict[int, ObservedBuffer] = {}
        # held, so that no other options get the id of one of them
        self._options: list[object] = []
        # buffers of a source that a rewrite made just now: it says what it stands for when it is done
        self._unplaced: list[tuple[ObservedBuffer, UOp]] = []

    def __contains__(self, stage: UOp) -> bool:
        return id(stage.arg) in self._records

    def find(self, u: UOp) -> ObservedBuffer | None:
        """Returns the record of a buffer, None for what is none, and for one that is not known."""
        return self._records.get(id(u.arg))

    def know(self, stage: UOp, record: ObservedBuffer) -> None:
        """A buffer has a record; one that is known keeps its own."""
        if stage not in self:
            self._records[id(stage.arg)] = record
            self._options.append(stage.arg)

    def await_node(self, record: ObservedBuffer, source: UOp) -> None:
        """The node of a record is what its source will turn out to stand for."""
        self._unplaced.append((record, source))

    def place(self, origin: Mapping[UOp, UOp]) -> None:
        """A rewrite is done: these are the nodes that UOps stand for."""
        for record, source in self._unplaced:
            record.node = origin.get(source)
        self._unplaced = [(record, source) for record, source in self._unplaced if record.node is None]
