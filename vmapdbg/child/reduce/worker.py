"""A process that runs graphs of tinygrad, one after the other (`trial`): what goes to it and comes back."""

from __future__ import annotations

import contextlib
import pickle
import select
import struct
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, Any

from vmapdbg.install.job import Job
from vmapdbg.install.patches import format_patches
from vmapdbg.model.capture import Output

RUNS, HANGS = "it runs", "it hangs"


@dataclass(frozen=True)
class GraphTrial:
    """The outcome of one graph: how it ended (`it runs`, or an error), the keys of its kernels, its outputs as in a
    capture (None: no buffer), and the codes of its findings. `raised_at` says where tinygrad raised an error, see
    `place_of`. `sizes` are the elements of the outputs' buffers: fewer than the output has if it repeats elements."""

    end: str
    keys: tuple[str, ...]
    values: tuple[Output | None, ...]
    codes: tuple[str, ...] = ()
    raised_at: tuple[str | None, ...] = ()
    sizes: tuple[int, ...] = ()


class Worker:
    """A process that runs graphs with the patches and the target of a job, or lints their kernels."""

    def __init__(self, job: Job, lints: bool = False):
        assert job.patches is not None
        self.command = [sys.executable, "-m", "vmapdbg.child.reduce.trial", format_patches(job.patches), job.target]
        if lints:
            self.command.append("lint")
        self.process: Any = None

    def send(self, graph: bytes, contents: dict[str, bytes], switches: dict[str, int | str]) -> None:
        """Starts a trial of a pickled PackedGraph."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        with contextlib.suppress(BrokenPipeError):
            write_frame(self.process.stdin, pickle.dumps((graph, contents, switches)))

    def receive(self, seconds: float) -> GraphTrial:
        """Returns the outcome of the graph that was sent. It hangs if that takes longer than `seconds`."""
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            self.close()
            return GraphTrial(HANGS, (), ())
        answer = read_frame(self.process.stdout)
        if answer is None:
            self.close()
            return GraphTrial("it died", (), ())
        return pickle.loads(answer)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def read_frame(stream: IO[bytes]) -> bytes | None:
    head = stream.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<q", head)
    return stream.read(length)


def write_frame(stream: IO[bytes], data: bytes) -> None:
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()
