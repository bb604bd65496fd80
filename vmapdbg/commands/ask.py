"""Asks a child for something about the evidence or the values of a run, and returns the text of its answer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from vmapdbg.commands.launcher import ChildDied, Streams, add_tree, make_folder, start_child, wait_for
from vmapdbg.commands.programs import ONE_THREAD
from vmapdbg.commands.progress import Progress
from vmapdbg.job.job import CheckRequest, ReduceRequest, ValueRequest


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
    text, ended = _ask_until_stopped(request, request.job.snippet, progress, ["vmapdbg.render.text.value_path"])
    if isinstance(ended, ChildDied):
        print(f"vmapdbg: {ended}", file=sys.stderr)
    return text


def ask_checker(request: CheckRequest, name: str, progress: Progress | None) -> tuple[str, BaseException | None]:
    """Has a child compare the evidence, in a process without the overlay; `name` is what it is called in errors.

    Returns the JSON text of what it has, and why that is not everything: a ChildDied, or a KeyboardInterrupt. Raises
    them where it has nothing.
    """
    return _ask_until_stopped(request, name, progress, ())


def _ask_until_stopped(
    request: CheckRequest | ValueRequest, name: str, progress: Progress | None, imports: Sequence[str]
) -> tuple[str, BaseException | None]:
    job = request.job
    patches = job.patches if isinstance(request, ValueRequest) else None
    with make_folder() as folder:
        request = add_tree(replace(request, folder=folder))
        # stdout carries what the tool was asked for
        process = start_child(request, patches, Streams(stdout=sys.stderr.fileno()))
        ended: BaseException | None = None
        try:
            died = wait_for(process, request, name, job.timeout, progress, imports)
            if died:
                ended = ChildDied(died)
        except KeyboardInterrupt as interrupted:
            # a signal that asks the tool to end is one, too
            if type(interrupted) is not KeyboardInterrupt or not request.output.exists():
                raise
            ended = interrupted
        return request.output.read_text(encoding="utf-8"), ended
