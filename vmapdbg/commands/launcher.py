"""Starts the child and brings its Capture back. The parent's side: it imports no tinygrad."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vmapdbg.model import Capture
from vmapdbg.overlay import child_environment
from vmapdbg.patches import format_patches
from vmapdbg.store import load_capture

# the targets that tinygrad 0.12.0 has a renderer for; capture/programs.py has them
TARGETS = ("c", "metal", "cuda", "opencl", "hip", "wgsl", "llvm")


class ChildDied(Exception):
    """The child hung, was killed, or ended without a Capture; the message is one line for the user."""


@dataclass(frozen=True)
class Job:
    """One run of a snippet.

    `patches` is None for stock tinygrad, without the overlay. `timeout` is in seconds, None waits for ever. With
    `values` the tensors that the snippet realizes are read into the Capture.
    """

    snippet: str
    arguments: tuple[str, ...]
    target: str
    patches: frozenset[str] | None
    timeout: float | None
    values: bool = False


@dataclass(frozen=True)
class Streams:
    """Where the child's stdout and stderr go; None is the tool's own."""

    stdout: IO[bytes] | int | None = None
    stderr: IO[bytes] | int | None = None


@dataclass(frozen=True)
class Side:
    """What came of one of two runs: the Capture, or how the child died, and what the snippet printed."""

    capture: Capture | None
    died: str | None
    stdout: bytes
    stderr: bytes


def run_job(
    job: Job,
    streams: Streams = Streams(),
    meanwhile: Callable[[], object] | None = None,
    evidence: Path | None = None,
    told: Callable[[str], object] | None = None,
) -> Capture:
    """Runs the snippet in a child and returns what it captured, errors of the snippet included.

    While the child runs, the parent calls `meanwhile`. `evidence` is the folder for what `check` compares. `told` gets
    a line about how far the child is, from when the snippet is done. Raises ChildDied when there is no Capture. Ctrl-C
    ends the child, and what it started, too.
    """
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
        output, progress = Path(folder) / "capture.json", Path(folder) / "progress"
        patches = None if job.patches is None else format_patches(job.patches)
        request = {
            "snippet": job.snippet,
            "arguments": list(job.arguments),
            "target": job.target,
            "patches": patches,
            "output": str(output),
            "values": job.values,
            "evidence": None if evidence is None else str(evidence),
            "progress": None if told is None else str(progress),
        }
        process = start_child("vmapdbg.child.run_snippet", request, patches, streams)
        if told is None:
            wait_for(process, job.snippet, job.timeout, meanwhile, output)
        else:
            watch_child(process, job.snippet, output, progress, job.timeout, told, meanwhile)
        # rich is imported with it: only when there is something to show
        from vmapdbg.render.sentences import fill_sentences

        return fill_sentences(load_capture(output))


def wait_for(
    process: subprocess.Popen[bytes],
    name: str,
    timeout: float | None,
    meanwhile: Callable[[], object] | None,
    output: Path,
    told_timeout: float | None = None,
) -> None:
    """Waits for a child that writes `output`. Raises ChildDied when it did not, with `name` in the message, and
    `told_timeout` where some of the time is over already."""
    try:
        if meanwhile is not None:
            meanwhile()
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        seconds = told_timeout or timeout
        raise ChildDied(f"{name} did not end within {seconds:g} seconds and was stopped (--timeout)") from None
    finally:
        # the group is there as long as one process of it is: workers of the snippet end with it
        stop_group(process)
    if not output.exists():
        raise ChildDied(f"{name} {explain_status(status)} before it could report")


def run_oracle(evidence: Path, limit: int, paranoid: bool, timeout: float | None, told: Callable[[str], object]) -> str:
    """Has stock tinygrad, in a process without the overlay, compute what a snippet should have got.

    Returns the JSON text of the CheckReport. `limit` is the most graphs that are run for one output. `told` gets a line
    about how far it is, several times a second. Raises ChildDied.
    """
    request: dict[str, object] = {
        "folder": str(evidence),
        "output": str(evidence / "report.json"),
        "progress": str(evidence / "progress"),
        "limit": limit,
        "paranoid": paranoid,
    }
    return ask_child("vmapdbg.child.oracle.checker", "the comparison with stock tinygrad", request, timeout, told)


def run_reducer(
    evidence: Path,
    sides: tuple[frozenset[str], frozenset[str]],
    kind: str,
    target: str,
    comment: str,
    seconds: float,
    hang: float,
    told: Callable[[str], object],
) -> str:
    """Has a child look for a small graph that comes out differently with two sets of patches.

    Returns the JSON text of what it found; `comment` stands on top of the snippet. It tries for `seconds`, and takes a
    graph that runs longer than `hang` seconds to hang. Raises ChildDied.
    """
    one, other = map(format_patches, sides)
    request: dict[str, object] = {
        "folder": str(evidence),
        "output": str(evidence / "reduced.json"),
        "progress": str(evidence / "reducing"),
        "one": one,
        "other": other,
        "kind": kind,
        "target": target,
        "seconds": seconds,
        "hang": hang,
        "comment": comment,
    }
    return ask_child("vmapdbg.child.reduce.reducer", "the reduction", request, None, told)


def ask_child(
    module: str, name: str, request: dict[str, object], timeout: float | None, told: Callable[[str], object]
) -> str:
    """Runs a child until it has written the file `request["output"]`, and returns what is in it. Raises ChildDied."""
    process = start_child(module, request, None, Streams(stdout=sys.stderr.fileno()))
    output, progress = Path(str(request["output"])), Path(str(request["progress"]))
    watch_child(process, name, output, progress, timeout, told)
    return output.read_text(encoding="utf-8")


def watch_child(
    process: subprocess.Popen[bytes],
    name: str,
    output: Path,
    progress: Path,
    timeout: float | None,
    told: Callable[[str], object],
    meanwhile: Callable[[], object] | None = None,
) -> None:
    """Waits for a child, and tells what it writes to `progress`. Raises ChildDied."""

    def watch() -> None:
        end = None if timeout is None else time.monotonic() + timeout
        if meanwhile is not None:
            meanwhile()
        while process.poll() is None and (end is None or time.monotonic() < end):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if progress.exists():
                    told(progress.read_text(encoding="utf-8"))
                process.wait(0.2)

    wait_for(process, name, None if timeout is None else 0.01, watch, output, timeout)


def run_pair(
    before: Job, after: Job, meanwhile: Callable[[], object], told: Callable[[str], object] | None = None
) -> tuple[Side, Side]:
    """Runs two jobs at the same time, and calls `meanwhile`. What their snippets print is kept, not shown. `told` gets
    a line about how far the second is."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        sides = [pool.submit(run_side, before), pool.submit(run_side, after, told)]
        try:
            meanwhile()
            return sides[0].result(), sides[1].result()
        except KeyboardInterrupt:
            stop_all()
            raise


def run_many(jobs: Sequence[Job], done: Callable[[], object]) -> list[Side]:
    """Runs jobs, as many at the same time as there are cores, and calls `done` after each. Sides are in their order."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        sides = [pool.submit(run_side, job) for job in jobs]
        try:
            for _ in as_completed(sides):
                done()
            return [side.result() for side in sides]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise


def run_side(job: Job, told: Callable[[str], object] | None = None) -> Side:
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        capture, died = None, None
        try:
            capture = run_job(job, Streams(stdout, stderr), told=told)
        except ChildDied as error:
            died = str(error)
        stdout.seek(0)
        stderr.seek(0)
        return Side(capture, died, stdout.read(), stderr.read())


_running: set[subprocess.Popen[bytes]] = set()


def start_child(
    module: str, request: dict[str, object], patches: str | None, streams: Streams
) -> subprocess.Popen[bytes]:
    """Starts a module of the child's side; `patches` is None for a process without the overlay."""
    sys.stdout.flush()
    process = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(request)],
        env=child_environment(patches, dict(os.environ)),
        stdout=streams.stdout,
        stderr=streams.stderr,
        # a group of its own, so that all that the snippet starts can be stopped with it
        start_new_session=True,
    )
    _running.add(process)
    return process


def stop_group(process: subprocess.Popen[bytes]) -> None:
    kill_group(process)
    process.wait()
    _running.discard(process)


def stop_all() -> None:
    """Stops the children of every thread: only the main one hears of Ctrl-C."""
    for process in list(_running):
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def explain_status(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended the process with status {status}"
