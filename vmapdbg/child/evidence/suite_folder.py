"""The folder through which the processes of a program pass what they realize to a process that compares it.

    making/NAME/   the evidence of one schedule, while it is written
    ready/NAME/    complete evidence: evidence.pickle, test.txt, blobs/; the judge removes it
    own/PID/       the contents of buffers that the current call of a process has kept so far
    outside        a byte for each schedule that was not made by `Tensor.realize`
    over           exists when the program has ended

The folder has a limited size: a process that writes faster than it is compared waits.
"""

from __future__ import annotations

import os
import pickle
import shutil
import time
import uuid
from dataclasses import replace
from pathlib import Path

from vmapdbg.child.evidence.folder import ROOM, EvidenceFolder
from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.model.crash import Crash
from vmapdbg.reference.graph import OpGraph

MOST_WAITING = 1 << 29
"""The most bytes of evidence in the folder."""
_POLL = 0.02
_LONGEST_WAIT = 120
"""Seconds that a process waits for the judge; after that it takes the judge for dead."""


class SuiteFolder(EvidenceFolder):
    """The evidence of this process. `begin` before each call that keeps something, then `write`."""

    def __init__(self, root: Path):
        self.root = root
        self.test = ""
        self._number = 0
        # id of evidence that was written -> the evidence, and how many reasons it had then
        self._said: dict[int, tuple[Evidence, int]] = {}
        self._begin_process()
        os.register_at_fork(after_in_child=self._begin_process)

    def _begin_process(self) -> None:
        self.token = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        own = self.root / "own" / self.token
        own.mkdir()
        super().__init__(own)

    def begin(self, test: str) -> None:
        """Begins a call of a test: drops what earlier calls have kept."""
        self.test = test
        for blob in (self.path / "blobs").iterdir():
            blob.unlink()
        self.room = ROOM

    def note_endless(self, line: str | None, test: str, error: str, crash: Crash) -> None:
        """Reports that tinygrad was stopped outside of any call of `Tensor.realize`."""
        evidence = Evidence(-1, line, failed=error, crash=crash, is_endless=True)
        before, self.test = self.test, test
        self._hand_on(evidence, with_blobs=False)
        self.test = before

    def note_outside(self) -> None:
        """Counts a schedule that is not compared."""
        with (self.root / "outside").open("ab") as file:
            file.write(b"x")

    def write(self, evidence: Evidence) -> None:
        """Passes on the evidence of a schedule. When it is written again, only new reasons of `unchecked` are passed
        on."""
        known = self._said.get(id(evidence))
        self._said[id(evidence)] = (evidence, len(evidence.unchecked))
        if known is not None:
            added = evidence.unchecked[known[1] :]
            self._hand_on(Evidence(-1, evidence.line, unchecked=added), with_blobs=False)
            return
        # only the reducer needs the graph for tinygrad, which takes long to be packed
        self._hand_on(replace(evidence, reducer_graph=None), with_blobs="asked" in evidence.graphs)

    def write_asked(self, graph: OpGraph) -> None:
        """Does nothing: the judge compares schedules of several processes, and only when they have run."""

    def forget(self) -> None:
        """Forgets what was written: it will not be written again."""
        self._said.clear()

    def _hand_on(self, evidence: Evidence, with_blobs: bool) -> None:
        self._number += 1
        making = self.root / "making" / f"{self.token}-{self._number}"
        blobs = making / "blobs"
        blobs.mkdir(parents=True)
        size = 0
        for blob in (self.path / "blobs").iterdir() if with_blobs else ():
            os.link(blob, blobs / blob.name)
            size += blob.stat().st_size
        data = pickle.dumps(evidence)
        (making / "evidence.pickle").write_bytes(data)
        (making / "test.txt").write_text(self.test, encoding="utf-8", errors="surrogatepass")
        # sorted by time, not by process
        name = f"{time.time_ns():020}-{size + len(data)}-{self.token}-{self._number}"
        if self._wait_for_room():
            making.rename(self.root / "ready" / name)
        else:
            shutil.rmtree(making)

    def _wait_for_room(self) -> bool:
        """Waits until there is room for more. Returns False if the judge seems dead."""
        last, since = -1, time.monotonic()
        while True:
            sizes = [int(name.split("-")[1]) for name in os.listdir(self.root / "ready")]
            if sum(sizes) <= MOST_WAITING:
                return True
            if len(sizes) != last:
                last, since = len(sizes), time.monotonic()
            if time.monotonic() - since > _LONGEST_WAIT:
                return False
            time.sleep(_POLL)
