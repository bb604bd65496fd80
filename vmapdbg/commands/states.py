"""Runs a snippet once for each state of the patches that `report --patches-all` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from vmapdbg.commands.baseline import capture_of, tell_printed
from vmapdbg.commands.completion import list_names
from vmapdbg.commands.jobs import find_job, is_saved, refuse_overlay_error, tell_mistakes, tell_untimed
from vmapdbg.commands.last_job import remember_names
from vmapdbg.commands.launcher import run_many
from vmapdbg.commands.options import JobOptions
from vmapdbg.commands.progress import count_runs, show_progress
from vmapdbg.commands.turns import run_in_turns
from vmapdbg.install.job import Job, Run
from vmapdbg.install.patches import ALL, PatchState, list_states
from vmapdbg.model.capture import Capture
from vmapdbg.model.failure import Failure

_MOST = 2
"""So many children at the same time: each may take the memory of a whole program."""


def capture_states(snippet: str | None, options: JobOptions, times: bool) -> list[tuple[PatchState, Capture]]:
    """Runs the snippet, or the last one, with all patches on, with none, and without each of them.

    Timed runs take turns. What the snippet prints with all patches on goes to stderr; how another run
    failed is a line there. Raises Failure where the patches cannot be switched.
    """
    _refuse(snippet, options)
    job = replace(find_job(snippet, replace(options, patches=ALL)), times=times)
    states = list_states()
    jobs = [replace(job, patches=state.patches) for state in states]
    runs = run_in_turns(jobs, f"{job.snippet} with and without each patch") if times else _run(job.snippet, jobs)
    tell_printed(runs[0])
    found: list[tuple[PatchState, Capture]] = []
    for state, run, made in zip(states, runs, jobs, strict=True):
        capture = capture_of(run, made)
        refuse_overlay_error(capture)
        found.append((state, capture))
        _tell_failure(state, capture)
    first = found[0][1]
    if times:
        tell_untimed(first)
    tell_mistakes(first.findings)
    remember_names(list_names(first))
    return found


def _refuse(snippet: str | None, options: JobOptions) -> None:
    if is_saved(snippet):
        raise Failure(f"{snippet} is a saved capture, of one state of the patches: --patches-all runs a snippet")
    if options.patches is not None:
        raise Failure("--patches and --patches-all: choose one")


def _run(name: str, jobs: Sequence[Job]) -> list[Run]:
    click.echo(f"vmapdbg: running {name} {len(jobs)} times, with all that it does", err=True)
    with show_progress(f"running {name} with and without each patch") as progress:
        return run_many(jobs, count_runs(progress, len(jobs)), _MOST, shadow=True)


def _tell_failure(state: PatchState, capture: Capture) -> None:
    """The traceback of the run with all patches is there already; what another one died of is told here."""
    error = capture.error
    if error is None:
        return
    if error.type == "ChildDied":
        click.echo(f"vmapdbg: {state.words}: {error.message}", err=True)
    elif state.patches != ALL:
        click.echo(f"vmapdbg: {state.words}: {error.type}: {next(iter(error.message.splitlines()), '')}", err=True)
