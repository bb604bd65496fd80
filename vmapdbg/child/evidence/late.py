"""Kernels and linear programs are only looked at where something is wrong, and to pack them takes as long as all else
of a schedule. So they are kept as they are until the oracle, which works beside the snippet, says how its values
compare; what it has not come to is packed when the snippet is done. Runs in the child.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from vmapdbg.child.evidence.folder import EvidenceFolder, name_file, schedule_of
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.evidence.launches import LaunchKeeper
from vmapdbg.child.evidence.passed import pack_runs

_MOST_WAITING = 8
"""So many schedules are kept at most: they have their graphs."""
_PATIENCE = 0.5
"""Seconds that the oracle gets to come to the last schedules."""
_LOOK = 0.005


@dataclass(frozen=True)
class _Waiting:
    """What a schedule is packed from. It holds no buffers, whose memory would not be used again."""

    evidence: Evidence
    launches: LaunchKeeper


class LateKernels:
    """The schedules whose kernels are not packed yet, by the name of their file."""

    def __init__(self, folder: EvidenceFolder):
        self.folder = folder
        self._waiting: dict[str, _Waiting] = {}

    def add(self, evidence: Evidence, launches: LaunchKeeper) -> None:
        """Evidence was written, without its kernels."""
        self.look()
        self._waiting[name_file(evidence)] = _Waiting(evidence, launches)
        if len(self._waiting) > _MOST_WAITING:
            self._pack(next(iter(self._waiting)))

    def end(self) -> None:
        """The snippet is done. Waits for an oracle that is there, since all wait for it then; no longer than a moment:
        packing goes on beside it as well."""
        end = time.monotonic() + _PATIENCE
        while self._waiting and self.folder.is_watched and time.monotonic() < end:
            self.look()
            time.sleep(_LOOK)
        self.pack_all()

    def pack_all(self) -> None:
        """Packs what may be asked for, and writes it."""
        self.look()
        for name in list(self._waiting):
            self._pack(name)

    def look(self) -> None:
        """Lets go of what came out right, and packs what did not."""
        judged = self.folder.read_judged()
        for name in [name for name in self._waiting if name in judged]:
            if judged[name] == "right":
                del self._waiting[name]
            else:
                self._pack(name)

    def find_settled(self) -> frozenset[int]:
        """Returns the numbers of the schedules that came out right, with all that is compared of their replays."""
        judged = self.folder.read_judged()
        numbers: dict[int, bool] = {}
        for file in self.folder.find_files():
            number = schedule_of(file)
            numbers[number] = numbers.get(number, True) and judged.get(file.name) == "right"
        return frozenset(number for number, is_right in numbers.items() if is_right)

    def _pack(self, name: str) -> None:
        waiting = self._waiting.pop(name)
        pack_runs(waiting.evidence, waiting.launches)
        self.folder.write_packed(waiting.evidence)
