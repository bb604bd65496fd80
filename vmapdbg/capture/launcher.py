"""Starts the child and brings its Capture back. The parent's side: it imports no tinygrad."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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

    `timeout` is in seconds, None waits for ever. With `quiet_stdout` what the snippet prints goes to stderr, because
    stdout carries data.
    """

    snippet: str
    arguments: tuple[str, ...]
    target: str
    patches: frozenset[str]
    timeout: float | None
    quiet_stdout: bool


def run_job(job: Job, meanwhile: Callable[[], object] | None = None) -> Capture:
    """Runs the snippet in a child and returns what it captured, errors of the snippet included.

    While the child runs, the parent calls `meanwhile`.

    Raises ChildDied when there is no Capture. Ctrl-C ends the child, and what it started, too.
    """
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
        output = Path(folder) / "capture.json"
        process = start_child(job, output)
        try:
            if meanwhile is not None:
                meanwhile()
            status = process.wait(job.timeout)
        except subprocess.TimeoutExpired:
            raise ChildDied(
                f"{job.snippet} did not end within {job.timeout:g} seconds and was stopped (--timeout)"
            ) from None
        finally:
            # the group is there as long as one process of it is: workers of the snippet end with it
            stop_group(process)
        if not output.exists():
            raise ChildDied(f"{job.snippet} {explain_status(status)} before it could report")
        return load_capture(output)


def start_child(job: Job, output: Path) -> subprocess.Popen[bytes]:
    patches = format_patches(job.patches)
    request = {
        "snippet": job.snippet,
        "arguments": list(job.arguments),
        "target": job.target,
        "patches": patches,
        "output": str(output),
    }
    sys.stdout.flush()
    return subprocess.Popen(
        [sys.executable, "-m", "vmapdbg.capture.child", json.dumps(request)],
        env=child_environment(patches, dict(os.environ)),
        stdout=sys.stderr.fileno() if job.quiet_stdout else None,
        # a group of its own, so that all that the snippet starts can be stopped with it
        start_new_session=True,
    )


def stop_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def explain_status(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended the process with status {status}"
