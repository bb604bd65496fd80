"""Asks a child for something about the evidence or the values of a run, and returns the text of its answer."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from vmapdbg.commands.launcher import ChildDied, Streams, add_tree, make_folder, start_child, stop_group, wait_for
from vmapdbg.commands.programs import ONE_THREAD
from vmapdbg.commands.progress import Progress
from vmapdbg.install.job import CheckRequest, ReduceRequest, ValueRequest
from vmapdbg.model.store import write_atomically


def ask_child(request: ReduceRequest, name: str, timeout: float | None, progress: Progress | None) -> str:
    """Has a child, in a process without the overlay, do what is asked for; `name` is what it is called in errors.

    Returns the JSON text of its result. Raises ChildDied.
    """
    with make_folder() as folder:
        request = add_tree(replace(request, folder=folder))
        # stdout carries what the tool was asked for
        process = start_child(request, None, Streams(stdout=sys.stderr.fileno()), **ONE_THREAD)
        wait_for(process, request, name, timeout, progress)
        return request.output.read_text(encoding="utf-8")


def ask_for_values(request: ValueRequest, progress: Progress | None) -> str:
    """Has a child follow the values of a snippet, and returns the JSON text of its result. Ctrl-C ends the child; what
    it has written by then is returned. Raises ChildDied."""
    with make_folder() as folder:
        request = add_tree(replace(request, folder=folder))
        process = start_child(request, request.job.patches, Streams(stdout=sys.stderr.fileno()))
        imports = ["vmapdbg.page.text.value_path"]
        text, ended = _wait_until_stopped(process, request, request.job.snippet, progress, imports)
    if isinstance(ended, ChildDied):
        print(f"vmapdbg: {ended}", file=sys.stderr)
    return text


@dataclass(frozen=True)
class Comparison:
    """A child that compares the evidence of a run, from when the snippet is started on."""

    process: subprocess.Popen[bytes]
    request: CheckRequest

    def list_compared(self) -> set[int]:
        """Returns the numbers of the schedules that it has compared while the snippet ran."""
        if not self.request.compared.exists():
            return set()
        return set(map(int, self.request.compared.read_text(encoding="utf-8").split()))

    def ask(self, work: Sequence[int], name: str, progress: Progress | None) -> tuple[str, BaseException | None]:
        """Has it compare the rest: the snippet is done. `work` is for `CheckRequest.over`, `name` is what the
        comparison is called in errors.

        Returns the JSON text of what it has, and why that is not everything: a ChildDied, or a KeyboardInterrupt.
        Raises them where it has nothing.
        """
        write_atomically(self.request.over, json.dumps(list(work)))
        return _wait_until_stopped(self.process, self.request, name, progress, ())


@contextlib.contextmanager
def start_comparison(request: CheckRequest) -> Generator[Comparison]:
    """Starts the child that compares, in a process without the overlay; it ends with the block."""
    with make_folder() as folder:
        request = add_tree(replace(request, folder=folder))
        # stdout carries what the tool was asked for
        process = start_child(request, None, Streams(stdout=sys.stderr.fileno()), **ONE_THREAD)
        try:
            yield Comparison(process, request)
        finally:
            stop_group(process)


def _wait_until_stopped(
    process: subprocess.Popen[bytes],
    request: CheckRequest | ValueRequest,
    name: str,
    progress: Progress | None,
    imports: Sequence[str],
) -> tuple[str, BaseException | None]:
    ended: BaseException | None = None
    try:
        died = wait_for(process, request, name, request.job.timeout, progress, imports)
        if died:
            ended = ChildDied(died)
    except KeyboardInterrupt as interrupted:
        # a signal that asks the tool to end is one, too
        if type(interrupted) is not KeyboardInterrupt or not request.output.exists():
            raise
        ended = interrupted
    return request.output.read_text(encoding="utf-8"), ended
