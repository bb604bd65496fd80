"""The folder with what the oracle is to compute again: a file for each schedule, and the contents of buffers."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.memory import read_buffer

ROOM = 1 << 30
"""The most bytes of buffers that are kept of one run."""


class BlobsFull(Exception):
    """There is no room for more contents."""


class EvidenceFolder:
    """Evidence below `path`, which is there. Contents are kept once, named by their hash; they take up `ROOM` bytes at
    most."""

    def __init__(self, path: Path):
        self.path, self.room = path, ROOM
        (path / "blobs").mkdir(exist_ok=True)

    def keep_data(self, data: bytes) -> str:
        """Keeps these bytes and returns their name. Raises BlobsFull."""
        name = hashlib.blake2b(data, digest_size=16).hexdigest()
        file = self.path / "blobs" / name
        if not file.exists():
            if len(data) > self.room:
                raise BlobsFull
            self.room -= len(data)
            file.write_bytes(data)
        return name

    def keep_buffer(self, buffer: Any) -> str:
        """Keeps the contents of a buffer of tinygrad, as they are now, and returns their name. Raises BlobsFull."""
        return self.keep_data(read_buffer(buffer))

    def keep_all(self, buffer: Any) -> tuple[str, ...]:
        """Keeps the contents of a buffer on each of its devices, and returns their names. Raises BlobsFull."""
        return tuple(map(self.keep_buffer, getattr(buffer, "bufs", [buffer])))

    def read_data(self, name: str) -> bytes:
        return (self.path / "blobs" / name).read_bytes()

    def write(self, evidence: Evidence) -> None:
        """Writes the file of a schedule, or of a replay of it."""
        replay = "" if evidence.replay is None else f".replay-{evidence.replay:06}"
        file = self.path / f"schedule-{evidence.schedule:06}{replay}.pickle"
        file.write_bytes(pickle.dumps(evidence))

    def find_files(self) -> list[Path]:
        """Returns the file of each schedule in order, those of its replays after it."""
        return sorted(self.path.glob("schedule-*.pickle"))


def schedule_of(file: Path) -> int:
    """Returns the number of the schedule that a file of `EvidenceFolder.write` is about."""
    return int(file.name.removeprefix("schedule-")[:6])
