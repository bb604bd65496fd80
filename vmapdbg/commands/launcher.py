"""Starts children and brings back what they made. The parent's side: it imports no tinygrad."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TypeVar

from vmapdbg.commands.early import EarlyCapture
from vmapdbg.commands.progress import Progress
from vmapdbg.install.find import find_tree
from vmapdbg.install.job import CheckRequest, Job, ReduceRequest, Request, Run, ValueRequest, dump_record
from vmapdbg.install.overlay import BOOTSTRAP_DIR, child_environment
from vmapdbg.install.patches import Patches, format_patches
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import EXIT_CHILD, Failure
from vmapdbg.model.store import load_capture

# what does what is asked for
_MODULES = {
    Request: "vmapdbg.child.run_snippet",
    CheckRequest: "vmapdbg.child.compare.beside",
    ReduceRequest: "vmapdbg.child.reduce.reducer",
    ValueRequest: "vmapdbg.child.passes.run",
}
_POLL = 0.2
"""Seconds between two looks at how far a child is."""
_LONGEST_REPORT = 60.0
"""Seconds that the shadow of a child that died may take for its report."""


class ChildDied(Failure):
    """The child hung, was killed, or ended without a result."""

    exit_code = EXIT_CHILD


@dataclass(frozen=True)
class Streams:
    """Where the child's stdout and stderr go; None is the tool's own."""

    stdout: IO[bytes] | int | None = None
    stderr: IO[bytes] | int | None = None


def run_job(
    job: Job,
    streams: Streams = Streams(),
    imports: Sequence[str] = (),
    evidence: str | None = None,
    progress: Progress | None = None,
    shadow: bool = False,
) -> Capture:
    """Runs the snippet in a child and returns what it captured, errors of the snippet included.

    While the child runs, the parent imports the modules `imports`, which it needs afterwards. `evidence` is the folder
    for what `check` compares. `progress` gets a line about how far the child is, from when the snippet is done. Raises
    ChildDied when there is no Capture. With `shadow` a child that dies leaves what it captured before, and the error of
    that Capture, a ChildDied, says how it died. Ctrl-C ends the child, and what it started, too.
    """
    with make_folder() as folder:
        request = add_tree(Request(job=job, folder=folder, evidence=evidence, shadow=shadow))
        process = start_child(request, job.patches, streams)
        early = EarlyCapture(process, request.output)
        early.start()
        died = wait_for(process, request, job.snippet, job.timeout, progress, imports)
        # rich is imported with it: only when there is something to show
        from vmapdbg.page.sentences import fill_sentences

        early.join()
        capture = early.capture or load_capture(request.output)
        if died and capture.error is not None:
            capture = replace(capture, error=replace(capture.error, message=died + capture.error.message))
        return fill_sentences(capture)


def make_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="vmapdbg-")


# *** several runs at the same time


def run_pair(before: Job, after: Job, imports: Sequence[str], progress: Progress | None) -> tuple[Run, Run]:
    """Runs two jobs at the same time, and imports modules meanwhile. What their snippets print is kept, not shown.
    `progress` gets a line about how far the second is."""
    with _run_at_once(2) as pool:
        runs = pool.submit(run_quietly, before), pool.submit(run_quietly, after, progress)
        import_all(imports)
        return runs[0].result(), runs[1].result()


def run_many(
    jobs: Sequence[Job], done: Callable[[], object], most: int | None = None, shadow: bool = False
) -> list[Run]:
    """Runs jobs and calls `done` after each: `most` at the same time, or as many as there are cores. Runs are in their
    order. With `shadow` a child that dies leaves what it captured, as in `run_job`."""
    with _run_at_once(most or os.cpu_count() or 1) as pool:
        runs = [pool.submit(run_quietly, job, shadow=shadow) for job in jobs]
        for _ in as_completed(runs):
            done()
        return [run.result() for run in runs]


@contextlib.contextmanager
def _run_at_once(most: int) -> Generator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=most) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise


def run_quietly(job: Job, progress: Progress | None = None, shadow: bool = False) -> Run:
    """Runs a job and keeps what its snippet prints. `shadow` is that of `run_job`."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        capture, died = None, None
        try:
            capture = run_job(job, Streams(stdout, stderr), progress=progress, shadow=shadow)
        except ChildDied as error:
            died = str(error)
        stdout.seek(0)
        stderr.seek(0)
        return Run(capture, died, stdout.read(), stderr.read())


# *** a process

_running: dict[subprocess.Popen[bytes], int] = {}
"""The children, each with our end of its lifeline."""


R = TypeVar("R", bound=Request)


def add_tree(request: R) -> R:
    """Returns the request with the folder of the tinygrad that its job names."""
    if not request.job.tree:
        return request
    tree = find_tree(request.job.tree)
    return replace(request, tinygrad=str(tree.folder), commit=tree.commit)


def start_child(
    request: Request, patches: Patches | None, streams: Streams, **defaults: str
) -> subprocess.Popen[bytes]:
    """Starts the child for a request; `patches` is None for a process without the overlay. `defaults` are variables of
    its environment that it gets where the user has not set them."""
    # the child may write to the same stdout: what was printed before stays before
    sys.stdout.flush()
    spec = None if patches is None else format_patches(patches)
    lifeline, held = os.pipe()
    process = subprocess.Popen(
        [*find_starter(request.job), _MODULES[type(request)], dump_record(replace(request, lifeline=lifeline))],
        env=child_environment(spec, {**defaults, **os.environ}, request.tinygrad),
        stdout=streams.stdout,
        stderr=streams.stderr,
        # a group of its own, so that all that the snippet starts can be stopped with it
        start_new_session=True,
        pass_fds=(lifeline,),
    )
    os.close(lifeline)
    _running[process] = held
    return process


def find_starter(job: Job) -> list[str]:
    """Returns the command that runs a module of ours: another interpreter does not have vmapdbg."""
    if job.python:
        return [job.python, str(BOOTSTRAP_DIR / "child.py")]
    return [sys.executable, "-m"]


def wait_for(
    process: subprocess.Popen[bytes],
    request: Request,
    name: str,
    timeout: float | None,
    progress: Progress | None,
    imports: Sequence[str] = (),
) -> str:
    """Waits for the child of a request, and imports modules meanwhile. `progress` gets the lines that it writes.

    Returns how it died where there is an output all the same, of its shadow or of what it had by then, else nothing.
    Raises ChildDied when there is no output, with `name` in the message.
    """
    end = time.monotonic() + (timeout or math.inf)
    died = early = ""
    try:
        import_all(imports)
        if progress is not None:
            _report_progress(process, request.progress, end, progress)
        status = process.wait(None if timeout is None else max(0.0, end - time.monotonic()))
        if not request.output.exists():
            died, early = f"{name} {explain_status(status)}", " before it could report"
    except subprocess.TimeoutExpired:
        died = f"{name} did not end within {timeout:g} seconds and was stopped (--timeout)"
    finally:
        if died and request.shadow:
            _wait_for_shadow(process, request)
        # the group is there as long as one process of it is: workers of the snippet end with it
        stop_group(process)
    if died and not request.output.exists():
        raise ChildDied(died + early)
    return died


def _wait_for_shadow(process: subprocess.Popen[bytes], request: Request) -> None:
    """Ends a child, and gives its shadow, where it has one, the time that a report takes."""
    process.kill()
    process.wait()
    end = time.monotonic() + _LONGEST_REPORT
    while time.monotonic() < end and not request.output.exists() and _is_there(request.shadow_id):
        time.sleep(_POLL / 4)


def _is_there(file: Path) -> bool:
    """Tells whether there is a process whose id is in a file."""
    try:
        os.kill(int(file.read_text(encoding="utf-8")), 0)
    except (OSError, ValueError):
        return False
    return True


def import_all(modules: Sequence[str]) -> None:
    """Imports modules. Ctrl-C waits for that: where it comes while a dataclass is made, Python ends by the signal,
    whatever exit code is asked for later."""
    with _hold_interrupt():
        for name in modules:
            importlib.import_module(name)


@contextlib.contextmanager
def _hold_interrupt() -> Generator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    known = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, known)
    if held:
        raise KeyboardInterrupt


def _report_progress(process: subprocess.Popen[bytes], file: Path, end: float, progress: Progress) -> None:
    """Hands on what a child writes to a file, until it ends or the time is over."""
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if file.exists():
                progress(file.read_text(encoding="utf-8"))
            process.wait(_POLL)


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a child with all that it has started; one that is ended stays as it is."""
    held = _running.get(process)
    if held is None:
        return
    kill_group(process)
    process.wait()
    del _running[process]
    os.close(held)


def stop_all() -> None:
    """Stops the children of every thread: only the main one hears of Ctrl-C."""
    for process in list(_running):
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    # the group may be gone; where only zombies are left, macOS says that it is not permitted
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def explain_status(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended the process with status {status}"
