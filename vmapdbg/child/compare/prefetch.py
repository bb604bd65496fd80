"""Computes the values of a schedule while the snippet still schedules, compiles and runs it. Runs in the process that
compares.

The graph and its inputs are known before (`vmapdbg.child.evidence.folder`). The values are those that the comparison
asks for later, in the same order, so the results are the same: first in the dtypes of the graph, then in double
precision, as for a wrong output. The comparison computes the rest.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Iterator

from vmapdbg.child.compare.reference_values import DOUBLE, MOVED, ReferenceValues
from vmapdbg.child.evidence.folder import ASKED, EvidenceFolder
from vmapdbg.child.evidence.graphs import Asked, Evidence
from vmapdbg.reference.evaluate import ROOM
from vmapdbg.values.tolerance import is_float

ROOM_BESIDE = 1 << 30
"""The most bytes for the values of a graph while the snippet runs. A larger graph is computed later."""
_ROOM_WIDE = 1 << 28
"""The most bytes of outputs in double precision that are kept."""


class Prefetch:
    """The values of the schedule that the snippet has started last, if any."""

    def __init__(self, folder: EvidenceFolder):
        self.folder = folder
        self._asked: Asked | None = None
        # precision -> values that are not taken yet
        self._values: dict[int | None, ReferenceValues] = {}
        self._rest: Iterator[None] = iter(())

    def start(self) -> None:
        """Starts with the schedule that the snippet is at now."""
        asked: Asked = pickle.loads((self.folder.path / ASKED).read_bytes())
        self._forget()
        self._asked, self._rest = asked, self._compute(asked)

    def end(self, evidence: Evidence) -> None:
        """Drops the values of a schedule that has been compared."""
        if self._asked is not None and self._asked.name == evidence.asked:
            self._forget()

    def _forget(self) -> None:
        self._asked, self._values, self._rest = None, {}, iter(())

    def work_until(self, end: float) -> bool:
        """Computes until a time of `time.monotonic`. Returns whether there may be more to do."""
        try:
            for _ in self._rest:
                if time.monotonic() > end:
                    return True
        except Exception:
            # if the comparison needs the value, it raises there again and is reported
            self._forget()
        return False

    def take(self, evidence: Evidence, precision: int | None) -> ReferenceValues | None:
        """Returns the values of the graph of a schedule, None if they were not computed here."""
        graph, asked = evidence.graphs.get("asked"), self._asked
        if graph is None or asked is None or evidence.asked != asked.name:
            return None
        # nodes may have been added while it ran
        if len(graph.nodes) != len(asked.graph.nodes):
            return None
        values = self._values.pop(precision, None)
        if values is None or values.has_gaps:
            return None
        values.limit_room(ROOM)
        return values

    def _compute(self, asked: Asked) -> Iterator[None]:
        roots = asked.graph.roots
        values = self._open(asked, None)
        # no `yield from`: it would close the iterator that `evaluate` continues
        for slots in (roots, asked.held):
            for _ in values.compute_in_steps(slots):
                yield
        nodes = [asked.graph.nodes[root] for root in roots]
        if not any(is_float(node.dtype) for node in nodes):
            return
        size = sum(math.prod(node.shape) for node in nodes) * 8
        precisions = (DOUBLE, *MOVED)
        if size * len(precisions) > _ROOM_WIDE:
            return
        for precision in precisions:
            for _ in self._open(asked, precision).compute_in_steps(roots):
                yield

    def _open(self, asked: Asked, precision: int | None) -> ReferenceValues:
        values = ReferenceValues(asked.graph, self.folder.read_data, precision)
        values.limit_room(ROOM_BESIDE)
        self._values[precision] = values
        return values
