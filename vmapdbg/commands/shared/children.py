"""Starts child processes and returns their results. This is the parent's side: it imports no tinygrad."""

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
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from vmapdbg import __version__
from vmapdbg.commands.shared.console import Progress, drop_progress
from vmapdbg.install.job import UNWRITTEN, Job, Request, Run, dump_record
from vmapdbg.install.overlay import BOOTSTRAP_DIR, child_environment
from vmapdbg.install.patches import Patches, format_patches
from vmapdbg.install.system import Stream, count_cores, end_group, start_group
from vmapdbg.install.trees import TreeError, find_tree
from vmapdbg.model.capture import DIED, SCHEMA, Capture, SnippetError, Versions
from vmapdbg.model.failure import EXIT_CHILD, Failure
from vmapdbg.model.store import load_capture
from vmapdbg.model.wording import split_place

_POLL = 0.2  # seconds between two looks at the progress of a child
_LONGEST_REPORT = 60.0  # seconds that the shadow of a dead child has for its report
_MOST_SOURCE = 400_000  # a capture does not have the text of a file with more bytes
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "VECLIB_MAXIMUM_THREADS": "1"}
"""For numpy while a program runs: with small matrices on busy cores, threads wait longer than they multiply."""

R = TypeVar("R", bound=Request)
T = TypeVar("T")


class ChildDied(Failure):
    """A child hung, was killed, or ended without a result."""

    exit_code = EXIT_CHILD


@dataclass(frozen=True)
class Child(Generic[R]):
    """A process that answers a request."""

    process: subprocess.Popen[bytes]
    request: R

    def answer(
        self, name: str, timeout: float | None, progress: Progress = drop_progress
    ) -> tuple[str, BaseException | None]:
        """Waits for the JSON text of the answer. If the child died, or Ctrl-C stopped it, returns what it wrote, and
        the reason, ChildDied or KeyboardInterrupt; raises it if there is no answer. Messages call the child `name`."""
        ended: BaseException | None
        try:
            died = self.wait(name, timeout, progress)
            ended = ChildDied(died) if died else None
        except KeyboardInterrupt as interrupted:
            # Stopped, raised for SIGTERM, is a KeyboardInterrupt, too: it ends the tool
            if type(interrupted) is not KeyboardInterrupt or not self.request.output.exists():
                raise
            self.process.kill()
            self.process.wait()
            ended = interrupted
        return self.request.output.read_text(encoding="utf-8"), ended

    def wait(self, name: str, timeout: float | None, progress: Progress = drop_progress) -> str:
        """Waits for the end of the child, and passes its lines to `progress`. Returns how it died if it, or its shadow,
        left an output; else "". Raises ChildDied without an output, Failure if the child could not write it."""
        end = time.monotonic() + (timeout or math.inf)
        died = too_soon = ""
        try:
            if progress is not drop_progress:
                self._report_progress(end, progress)
            status = self.process.wait(None if timeout is None else max(0.0, end - time.monotonic()))
            if not self.request.output.exists():
                if status == UNWRITTEN:
                    kept = f"cannot write what {name} did to {tempfile.gettempdir()}"
                    raise Failure(f"{kept}: is it full? TMPDIR can name another folder")
                killed = f"was killed by {signal.Signals(-status).name}" if status < 0 else ""
                ended = killed or f"ended the process with status {status}"
                died, too_soon = f"{name} {ended}", " before it could report"
        except subprocess.TimeoutExpired:
            died = f"{name} did not end within {timeout:g} seconds and was stopped (--timeout)"
        if died:
            self.process.kill()
            self.process.wait()
            self._wait_for_shadow()
            if not self.request.output.exists():
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
        """If the dead child has a shadow, gives it time for a report."""
        end = time.monotonic() + _LONGEST_REPORT
        # the file has the process id of the shadow
        with contextlib.suppress(OSError, ValueError):
            while time.monotonic() < end and not self.request.output.exists():
                os.kill(int(self.request.shadow_id.read_text(encoding="utf-8")), 0)
                time.sleep(_POLL / 4)


_running: set[subprocess.Popen[bytes]] = set()


@contextlib.contextmanager
def started_child(
    request: R,
    patches: Patches | None,
    stdout: Stream = None,
    stderr: Stream = None,
    one_thread: bool = False,
    stdin: Stream = None,
) -> Generator[Child[R]]:
    """Starts the child for a request, in a temporary folder; the child and all its processes end with the block.
    `patches` None: no overlay. `one_thread`: its numpy uses one thread, unless the environment has another number."""
    if request.job.tree:
        tree = find_tree(request.job.tree)
        request = replace(request, tinygrad=str(tree.folder), commit=tree.commit)
    environment = dict(os.environ)
    if request.job.is_compared:
        # values are compared with another run's: sets must have the same order
        environment.setdefault("PYTHONHASHSEED", "0")
    environment.update({switch.partition("=")[0]: switch.partition("=")[2] for switch in request.job.switches})
    if one_thread:
        environment = {**_ONE_THREAD, **environment}
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
        # the child holds one end of the lifeline: it ends when this process ends, however that happens
        lifeline, held = os.pipe()
        request = replace(request, folder=folder, lifeline=lifeline)
        sys.stdout.flush()  # the child may write to the same stdout: the tool's earlier output must come first
        python, start = request.job.python or sys.executable, str(BOOTSTRAP_DIR / "child.py")
        command = [python, start, request.module, dump_record(request)]
        spec = None if patches is None else format_patches(patches)
        environment = child_environment(spec, environment, request.tinygrad)
        process = start_group(command, environment, lifeline, stdin, stdout, stderr)
        os.close(lifeline)
        _running.add(process)
        try:
            yield Child(process, request)
        finally:
            end_group(process)  # the group exists as long as one of its processes
            process.wait()
            _running.remove(process)
            os.close(held)


def import_meanwhile(*modules: str) -> None:
    """Imports msgspec, which reads what the child sends, then modules, in a thread while a child runs. Ctrl-C reaches
    only the main thread: it would end a Python that makes a dataclass, and the tool could not choose its exit code."""
    threading.Thread(target=lambda: list(map(importlib.import_module, ("msgspec", *modules)))).start()


def run_job(
    job: Job,
    stdout: Stream = None,
    stderr: Stream = None,
    evidence: str | None = None,
    progress: Progress = drop_progress,
    shadow: bool = False,
) -> Capture:
    """Runs the snippet in a child and returns its capture; an error of the snippet is part of it. `evidence` is the
    folder for what `check` compares. `progress` gets lines after the snippet has ended. With `shadow`, a child that
    dies leaves what it captured, and its error, a ChildDied, says how it died. Ctrl-C ends all its processes. Raises
    ChildDied without a capture, Failure if the overlay cannot be installed."""
    request = Request(job=job, evidence=evidence, shadow=shadow)
    with started_child(request, job.patches, stdout, stderr) as child:
        died = child.wait(job.snippet, job.timeout, progress)
        capture = finish_capture(load_capture(child.request.output))
        if died and capture.error is not None:
            capture = replace(capture, error=replace(capture.error, message=died + capture.error.message))
        return capture


def finish_capture(capture: Capture) -> Capture:
    """Returns a child's capture with its sentences. Raises Failure if the overlay could not be installed."""
    from vmapdbg.page.sentences import fill_sentences  # imported here because it imports rich

    if capture.error is not None and capture.error.type == "OverlayError":
        raise Failure(capture.error.message)
    return replace(fill_sentences(capture), sources=dict(read_sources(capture)))


def read_sources(capture: Capture) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each file that the lines of a capture name, without files that are large."""
    from vmapdbg.page.format import list_places

    for name in sorted({split_place(line)[0] for line in list_places(capture)}):
        path = Path(name)
        # code from `exec` is in `<string>`
        with contextlib.suppress(OSError, ValueError):
            if path.is_file() and path.stat().st_size <= _MOST_SOURCE:
                yield name, path.read_text(encoding="utf-8", errors="replace")


def died_capture(job: Job, message: str) -> Capture:
    """Returns the Capture of a child that left none: it has only the error, a ChildDied."""
    died, versions = SnippetError(DIED, message, None), Versions(__version__, "", "")
    return Capture(SCHEMA, versions, job.snippet, job.target, job.patch_states, died, (), ())


def run_quietly(job: Job) -> Run:
    """Runs a job and keeps what its snippet prints."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        try:
            capture = run_job(job, stdout, stderr)
        except (ChildDied, TreeError) as error:
            capture = died_capture(job, str(error))
        stdout.seek(0)
        stderr.seek(0)
        return Run(capture, stdout.read(), stderr.read())


def run_many(jobs: Sequence[Job], most: int | None = None, progress: Progress = drop_progress) -> list[Run]:
    """Runs jobs as `do_many` does, and returns their runs. `progress` gets a line about how many have ended."""
    tasks = [partial(run_quietly, job) for job in jobs]
    return do_many(tasks, most, lambda count: progress(f"{count} of {len(tasks)} runs"))


def do_many(
    tasks: Sequence[Callable[[], T]], most: int | None = None, count_done: Callable[[int], object] = lambda count: None
) -> list[T]:
    """Returns the results of tasks that start children, `most` (None: number of cores) at once. Ctrl-C ends them."""
    with ThreadPoolExecutor(max_workers=most or count_cores()) as pool:
        try:
            started = [pool.submit(task) for task in tasks]
            for count, _ in enumerate(as_completed(started), 1):
                count_done(count)
            return [one.result() for one in started]
        except KeyboardInterrupt:
            # Ctrl-C reaches only the main thread
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_running):
                end_group(process)
            raise
