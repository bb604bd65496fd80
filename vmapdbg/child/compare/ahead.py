"""What a schedule should get, computed while the snippet still makes it, compiles it and runs it. Runs in the oracle.

The graph and its inputs are known before: see `vmapdbg.child.evidence.folder`. The values are those that the
comparison asks for later, in the same order, so that it makes no difference whether they were computed ahead: first in
the precision of the graph, then as for an output that is wrong (`vmapdbg.child.compare.comparer`). What is not done
when the comparison asks for it is gone on with there.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Iterator

from vmapdbg.child.compare.by_numpy import NumpyValues
from vmapdbg.child.compare.oracle import SEEDS, InDoublePrecision
from vmapdbg.child.evidence.folder import ASKED, EvidenceFolder
from vmapdbg.child.evidence.graphs import Asked, Evidence
from vmapdbg.reference.evaluate import ROOM
from vmapdbg.values.tolerance import is_float

ROOM_BESIDE = 1 << 30
"""The most bytes that the values of a graph take up beside the snippet, which has its own. Where that is too little
nothing is computed ahead."""
_ROOM_WIDE = 1 << 28
"""The most bytes of outputs in double precision that are kept ahead."""


class Ahead:
    """The values of the schedule that the snippet is at, if any."""

    def __init__(self, folder: EvidenceFolder):
        self.folder = folder
        self._asked: Asked | None = None
        # those that nobody has taken yet
        self._values: dict[InDoublePrecision | None, NumpyValues] = {}
        self._rest: Iterator[None] = iter(())

    def begin(self) -> None:
        """The snippet is at another schedule now."""
        asked: Asked = pickle.loads((self.folder.path / ASKED).read_bytes())
        self._forget()
        self._asked, self._rest = asked, self._compute(asked)

    def end(self, evidence: Evidence) -> None:
        """A schedule has been compared: nobody needs its values any more."""
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
            # the comparison meets it, too, if it needs the value, and says it
            self._forget()
        return False

    def take(self, evidence: Evidence, precision: InDoublePrecision | None) -> NumpyValues | None:
        """Returns the values of the graph of the reference, None where they were not computed ahead."""
        graph, asked = evidence.reference, self._asked
        if graph is None or asked is None or evidence.asked != asked.name:
            return None
        # what was found out while it ran may have been added
        if len(graph.nodes) != len(asked.graph.nodes):
            return None
        values = self._values.pop(precision, None)
        if values is None or values.has_gaps:
            return None
        values.take_room(ROOM)
        return values

    def _compute(self, asked: Asked) -> Iterator[None]:
        roots = asked.graph.roots
        values = self._open(asked, None)
        # not `yield from`, which would end what is to be gone on with
        for slots in (roots, asked.held):
            for _ in values.begin(slots):
                yield
        nodes = [asked.graph.nodes[root] for root in roots]
        if not any(is_float(node.dtype) for node in nodes):
            return
        size = sum(math.prod(node.shape) for node in nodes) * 8
        precisions = [InDoublePrecision(seed) for seed in (None, *SEEDS)]
        if size * len(precisions) > _ROOM_WIDE:
            return
        for precision in precisions:
            for _ in self._open(asked, precision).begin(roots):
                yield

    def _open(self, asked: Asked, precision: InDoublePrecision | None) -> NumpyValues:
        values = NumpyValues(asked.graph, self.folder.read_data, precision, {})
        values.take_room(ROOM_BESIDE)
        self._values[precision] = values
        return values
