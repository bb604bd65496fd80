"""Starts child processes and returns their results. This is the parent's side: it imports no tinygrad."""

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
from typing import IO, Generic, TypeVar

from vmapdbg.commands.shared.console import Progress
from vmapdbg.install.job import CheckRequest, Job, ReduceRequest, Request, Run, ValueRequest, dump_record
from vmapdbg.install.overlay import BOOTSTRAP_DIR, child_environment
from vmapdbg.install.patches import Patches, format_patches
from vmapdbg.install.trees import find_tree
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import EXIT_CHILD, Failure
from vmapdbg.model.store import StoreError, load_capture

# the module that answers each kind of request
_MODULES = {
    Request: "vmapdbg.child.run_snippet",
    CheckRequest: "vmapdbg.child.compare.start",
    ReduceRequest: "vmapdbg.child.reduce.reducer",
    ValueRequest: "vmapdbg.child.passes.run",
}
_POLL = 0.2
"""Seconds between two looks at the progress of a child."""
_OUTPUT_POLL = 0.005
"""Seconds between two looks for the output of a child."""
_LONGEST_REPORT = 60.0
"""Seconds that the shadow of a dead child has for its report."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "VECLIB_MAXIMUM_THREADS": "1"}
"""For a process that uses numpy while a program runs. Its matrices are small; if other processes need the cores,
several threads wait for each other much longer than they multiply."""


R = TypeVar("R", bound=Request)


class ChildDied(Failure):
    """A child hung, was killed, or ended without a result."""

    exit_code = EXIT_CHILD


@dataclass(frozen=True)
class Streams:
    """Where the child's stdout and stderr go; None is the tool's stream."""

    stdout: IO[bytes] | int | None = None
    stderr: IO[bytes] | int | None = None


# *** one run of a snippet


def run_job(
    job: Job,
    streams: Streams = Streams(),
    imports: Sequence[str] = (),
    evidence: str | None = None,
    progress: Progress | None = None,
    shadow: bool = False,
) -> Capture:
    """Runs the snippet in a child and returns its capture. An error of the snippet is part of the capture.

    The parent imports the modules `imports` while the child runs. `evidence` is the folder for what `check` compares.
    `progress` gets lines about the progress after the snippet has ended. Raises ChildDied if there is no capture. With
    `shadow`, a child that dies leaves what it captured before; the error of that capture, a ChildDied, says how it
    died. Ctrl-C ends the child and all processes that it started.
    """
    with started_child(Request(job=job, evidence=evidence, shadow=shadow), job.patches, streams) as child:
        loader = CaptureLoader(child)
        loader.start()
        died = child.wait(job.snippet, job.timeout, progress, imports)
        # imported here because it imports rich
        from vmapdbg.page.sentences import fill_sentences

        loader.join()
        capture = loader.capture or load_capture(child.request.output)
        if died and capture.error is not None:
            capture = replace(capture, error=replace(capture.error, message=died + capture.error.message))
        return fill_sentences(capture)


class CaptureLoader(threading.Thread):
    """Loads the capture as soon as the child has written it: the child then still has to free the snippet's objects.
    `capture` is None if the child ended without a capture, or if it cannot be read."""

    def __init__(self, child: Child[Request]):
        super().__init__(daemon=True)
        self.child = child
        self.capture: Capture | None = None

    def run(self) -> None:
        while not self.child.request.output.exists():
            if self.child.process.poll() is not None:
                return
            time.sleep(_OUTPUT_POLL)
        with contextlib.suppress(StoreError):
            self.capture = load_capture(self.child.request.output)


# *** several runs at the same time


def run_many(
    jobs: Sequence[Job],
    done: Callable[[], object] | None = None,
    most: int | None = None,
    shadow: bool = False,
    imports: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Run]:
    """Runs jobs at the same time and returns their runs, in the same order. Keeps what the snippets print.

    At most `most` run at once; the default is the number of cores. `done` is called after each run. `progress` gets
    lines about the last job. The parent imports `imports` meanwhile. `shadow` is as in `run_job`.
    """
    with ThreadPoolExecutor(max_workers=most or os.cpu_count() or 1) as pool:
        try:
            runs = [pool.submit(run_quietly, job, None, shadow) for job in jobs[:-1]]
            runs += [pool.submit(run_quietly, job, progress, shadow) for job in jobs[-1:]]
            import_all(imports)
            for _ in as_completed(runs):
                if done is not None:
                    done()
            return [run.result() for run in runs]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise


def run_quietly(job: Job, progress: Progress | None = None, shadow: bool = False) -> Run:
    """Runs a job and keeps what its snippet prints. `shadow` is as in `run_job`."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        capture, died = None, None
        try:
            capture = run_job(job, Streams(stdout, stderr), progress=progress, shadow=shadow)
        except ChildDied as error:
            died = str(error)
        stdout.seek(0)
        stderr.seek(0)
        return Run(capture, died, stdout.read(), stderr.read())


# *** a request to a child


def ask_child(
    request: Request,
    patches: Patches | None,
    name: str,
    timeout: float | None,
    progress: Progress | None,
    imports: Sequence[str] = (),
) -> tuple[str, BaseException | None]:
    """Starts a child for a request and returns its answer, as `Child.answer` does. The child's stdout goes to stderr,
    because stdout is for the tool's result. Raises ChildDied."""
    defaults = ONE_THREAD if patches is None else {}
    with started_child(request, patches, Streams(stdout=sys.stderr.fileno()), **defaults) as child:
        return child.answer(name, timeout, progress, imports)


@contextlib.contextmanager
def started_child(request: R, patches: Patches | None, streams: Streams, **defaults: str) -> Generator[Child[R]]:
    """Starts the child for a request, in a folder of its own; the child ends with the block.

    `patches` is None for a process without the overlay. `defaults` are variables of its environment, unless the user
    has set them.
    """
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
        request = add_tree(replace(request, folder=folder))
        process = start_process(request, patches, streams, **defaults)
        try:
            yield Child(process, request)
        finally:
            stop_group(process)


def add_tree(request: R) -> R:
    """Returns the request with the folder of the tinygrad that its job names."""
    if not request.job.tree:
        return request
    tree = find_tree(request.job.tree)
    return replace(request, tinygrad=str(tree.folder), commit=tree.commit)


_running: dict[subprocess.Popen[bytes], int] = {}
"""The children, each with the parent's end of its lifeline."""


def start_process(
    request: Request, patches: Patches | None, streams: Streams, **defaults: str
) -> subprocess.Popen[bytes]:
    """Starts the process of a child; for the arguments see `started_child`."""
    # the child may write to the same stdout: the tool's earlier output must come first
    sys.stdout.flush()
    spec = None if patches is None else format_patches(patches)
    lifeline, held = os.pipe()
    process = subprocess.Popen(
        [*module_runner(request.job), _MODULES[type(request)], dump_record(replace(request, lifeline=lifeline))],
        env=child_environment(spec, {**defaults, **os.environ}, request.tinygrad),
        stdout=streams.stdout,
        stderr=streams.stderr,
        # a process group of its own, so that everything the snippet starts can be stopped with it
        start_new_session=True,
        pass_fds=(lifeline,),
    )
    os.close(lifeline)
    _running[process] = held
    return process


def module_runner(job: Job) -> list[str]:
    """Returns the command that runs a module of vmapdbg. Another interpreter does not have vmapdbg installed."""
    if job.python:
        return [job.python, str(BOOTSTRAP_DIR / "child.py")]
    return [sys.executable, "-m"]


@dataclass(frozen=True)
class Child(Generic[R]):
    """A process that answers a request."""

    process: subprocess.Popen[bytes]
    request: R

    def answer(
        self, name: str, timeout: float | None, progress: Progress | None, imports: Sequence[str] = ()
    ) -> tuple[str, BaseException | None]:
        """Waits for the JSON text of the answer. If the child died, or Ctrl-C stopped it, the answer has what it wrote
        before, and the second value is the reason: a ChildDied or a KeyboardInterrupt.

        `name` is what error messages call the child. Raises the reason if there is no answer.
        """
        ended: BaseException | None = None
        try:
            died = self.wait(name, timeout, progress, imports)
            if died:
                ended = ChildDied(died)
        except KeyboardInterrupt as interrupted:
            # Stopped, raised for SIGTERM, is a KeyboardInterrupt, too: it ends the tool
            if type(interrupted) is not KeyboardInterrupt or not self.request.output.exists():
                raise
            ended = interrupted
        return self.request.output.read_text(encoding="utf-8"), ended

    def wait(self, name: str, timeout: float | None, progress: Progress | None, imports: Sequence[str] = ()) -> str:
        """Waits for the end of the child, and imports modules meanwhile. `progress` gets the lines that it writes.

        Returns how the child died if it died after it wrote an output, or its shadow wrote it; else "". Raises
        ChildDied without an output, with `name` in the message.
        """
        end = time.monotonic() + (timeout or math.inf)
        died = too_soon = ""
        try:
            import_all(imports)
            if progress is not None:
                self._report_progress(end, progress)
            status = self.process.wait(None if timeout is None else max(0.0, end - time.monotonic()))
            if not self.request.output.exists():
                died, too_soon = f"{name} {explain_status(status)}", " before it could report"
        except subprocess.TimeoutExpired:
            died = f"{name} did not end within {timeout:g} seconds and was stopped (--timeout)"
        finally:
            if died and self.request.shadow:
                self._wait_for_shadow()
            # the group exists as long as one of its processes: workers that the snippet started end here
            stop_group(self.process)
        if died and not self.request.output.exists():
            raise ChildDied(died + too_soon)
        return died

    def _report_progress(self, end: float, progress: Progress) -> None:
        """Passes on what the child writes to its progress file, until it ends or the time is over."""
        file = self.request.progress
        while self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if file.exists():
                    progress(file.read_text(encoding="utf-8"))
                self.process.wait(_POLL)

    def _wait_for_shadow(self) -> None:
        """Ends the child. If it has a shadow, gives it time for a report."""
        self.process.kill()
        self.process.wait()
        end = time.monotonic() + _LONGEST_REPORT
        while time.monotonic() < end and not self.request.output.exists() and _is_running(self.request.shadow_id):
            time.sleep(_POLL / 4)


def _is_running(file: Path) -> bool:
    """Tells whether the process runs whose id is in a file."""
    try:
        os.kill(int(file.read_text(encoding="utf-8")), 0)
    except (OSError, ValueError):
        return False
    return True


def import_all(modules: Sequence[str]) -> None:
    """Imports modules and holds Ctrl-C back meanwhile. If Ctrl-C comes while Python makes a dataclass, Python ends by
    the signal, and the tool cannot choose its exit code."""
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


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a child and all processes that it started, unless it was ended before."""
    held = _running.get(process)
    if held is None:
        return
    kill_group(process)
    process.wait()
    del _running[process]
    os.close(held)


def stop_all() -> None:
    """Stops the children of every thread: Ctrl-C reaches the main thread only."""
    for process in list(_running):
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    # the group may be gone; if only zombies are left in it, macOS raises PermissionError
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def explain_status(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended the process with status {status}"


# *** a whole program, for `vmapdbg run`


@dataclass(frozen=True)
class Program:
    """SCRIPT [ARGUMENTS] or -m MODULE [ARGUMENTS], with the job for its tinygrad; the job's snippet is the program."""

    arguments: tuple[str, ...]
    job: Job

    @property
    def command(self) -> list[str]:
        return [self.job.python or sys.executable, *self.arguments]

    def environment(self, observes: bool = False) -> dict[str, str]:
        """Returns the environment of its processes, with the patches of the job, or its tree. With `observes`,
        processes without patches are observed."""
        patches = None if self.job.patches is None else format_patches(self.job.patches)
        folder = str(find_tree(self.job.tree).folder) if self.job.tree else ""
        return child_environment(patches, dict(os.environ), folder, observes=observes)


def run_program(program: Program, stdout: IO[str] | None = None, **variables: str) -> int:
    """Runs a program that is observed, with more variables in its environment. Returns its exit code: 128 + the number
    of the signal that killed it, as in a shell. `stdout` is where it prints, None for the tool's stdout."""
    environment = {**program.environment(observes=True), **variables}
    process = subprocess.Popen(program.command, env=environment, stdout=stdout)
    # Ctrl-C goes to the program as well: the program decides what to do
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        process.kill()
    return 128 - status if status < 0 else status
