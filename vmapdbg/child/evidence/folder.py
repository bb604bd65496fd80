"""The folder with the evidence of a run, which another process compares while the snippet goes on.

    asked.pickle            the graph of the last schedule that began; its values can be computed while it runs
    schedule-NUMBER.pickle  all of a schedule that ran, or of a replay of it
    written                 the names of these files, a line each time a file is written
    blobs/                  contents of buffers; a blob is written before a file names it

Each pickled file appears as a whole.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vmapdbg.child.evidence.graphs import Evidence
from vmapdbg.child.memory import read_buffer
from vmapdbg.reference.graph import OpGraph

ROOM = 1 << 30
"""The most bytes of buffers that one run keeps."""
ASKED = "asked.pickle"


class BlobsFull(Exception):
    """There is no room for more contents."""


class EvidenceFolder:
    """Evidence in the existing folder `path`. Contents are kept once, named by their hash, `ROOM` bytes at most."""

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
        """Keeps what a buffer of tinygrad holds now, and returns the name of the contents. Raises BlobsFull."""
        return self.keep_data(read_buffer(buffer))

    def keep_all(self, buffer: Any) -> tuple[str, ...]:
        """Keeps the contents of a buffer on each of its devices, and returns their names. Raises BlobsFull."""
        return tuple(map(self.keep_buffer, list_parts(buffer)))

    def read_data(self, name: str) -> bytes:
        return (self.path / "blobs" / name).read_bytes()

    def begin_replay(self) -> None:
        """A replay by TinyJit begins."""

    def write(self, evidence: Evidence) -> None:
        """Writes the file of a schedule, or of a replay of it."""
        replay = "" if evidence.replay is None else f".replay-{evidence.replay:06}"
        self._put(f"schedule-{evidence.schedule:06}{replay}.pickle", evidence)

    def write_asked(self, graph: OpGraph) -> None:
        """Writes the graph of a schedule that begins."""
        self._put(ASKED, graph)

    def _put(self, name: str, content: Evidence | OpGraph) -> None:
        making = self.path / f".{name}.{os.getpid()}"
        making.write_bytes(pickle.dumps(content))
        os.replace(making, self.path / name)
        with (self.path / "written").open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")

    def find_files(self) -> list[Path]:
        """Returns the file of each schedule in order, then the files of its replays."""
        return sorted(self.path.glob("schedule-*.pickle"))

    def read_written(self, start: int) -> tuple[list[str], int]:
        """Returns the names of the files that were written since `start`, and the next `start`; the first is 0."""
        file = self.path / "written"
        if not file.exists():
            return [], start
        with file.open("rb") as opened:
            opened.seek(start)
            text = opened.read()
        whole = text[: text.rfind(b"\n") + 1]
        return whole.decode().split(), start + len(whole)


def list_parts(buffer: Any) -> Sequence[Any]:
    """Returns the buffers of a buffer, one for each device."""
    return getattr(buffer, "bufs", [buffer])
