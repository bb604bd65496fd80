"""The folder that takes what the oracle is to compute again: a file for each schedule, and the contents of buffers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from vmapdbg.child.evidence.graphs import Blobs, Evidence

ROOM = 1 << 30
"""The most bytes of buffers that are kept of one run."""


class EvidenceFolder:
    """Writes evidence below `path`, which is there."""

    def __init__(self, path: Path):
        self.path = path
        (path / "blobs").mkdir()
        self._blobs = Blobs(path / "blobs", ROOM)

    def keep_data(self, data: bytes) -> str:
        """Keeps these bytes and returns their name. Raises BlobsFull."""
        return self._blobs.keep(data)

    def keep_buffer(self, buffer: Any) -> str:
        """Keeps the contents of a buffer of tinygrad, as they are now, and returns their name. Raises BlobsFull."""
        return self.keep_data(read_buffer(buffer))

    def write(self, evidence: Evidence) -> None:
        """Writes the file of a schedule, or of a replay of it."""
        replay = "" if evidence.replay is None else f".replay-{evidence.replay:06}"
        file = self.path / f"schedule-{evidence.schedule:06}{replay}.pickle"
        file.write_bytes(pickle.dumps(evidence))


def read_buffer(buffer: Any) -> bytes:
    """Returns the contents of a buffer of tinygrad.

    One that was never written (Tensor.empty) has what its memory has: who computes again reads the same.
    """
    return bytes(buffer.ensure_allocated().as_buffer())
