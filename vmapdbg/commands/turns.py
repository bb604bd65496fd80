"""Runs jobs in turns, so that what else the machine does falls on all of them, and none slows another."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import click

from vmapdbg.commands.launcher import run_quietly
from vmapdbg.commands.progress import show_progress
from vmapdbg.install.job import Job, Run
from vmapdbg.model.capture import Measured, Schedule
from vmapdbg.model.schedule_index import find_times

_TURNS = 3
"""A kernel that a snippet launches once is timed so often: a ratio of two single launches is mostly noise."""


def run_in_turns(jobs: Sequence[Job], name: str) -> list[Run]:
    """Runs timed jobs, one after the other, again and again. The runs that it returns are the first of each job; their
    kernels have the times of all. A job that fails is not run again. `name` is for what is said of it."""
    click.echo(f"vmapdbg: running {name}, {_TURNS} times each, in turns", err=True)
    sides: list[list[Run]] = [[] for _ in jobs]
    with show_progress(f"timing {name}") as progress:
        for turn in range(_TURNS):
            for runs, job in zip(sides, jobs, strict=True):
                if progress is not None:
                    progress(f"turn {turn + 1} of {_TURNS}")
                if all(run.capture is not None and run.capture.error is None for run in runs):
                    runs.append(run_quietly(job))
    return [_join(runs) for runs in sides]


def _join(runs: Sequence[Run]) -> Run:
    """Returns the first run, its kernels with the times of all runs."""
    first = runs[0]
    if first.capture is None:
        return first
    captures = [run.capture for run in runs if run.capture is not None]
    times = [find_times(capture.kernels) for capture in captures]
    schedules = tuple(_time_schedule(schedule, times) for schedule in first.capture.schedules)
    return replace(first, capture=replace(first.capture, schedules=schedules))


def _time_schedule(schedule: Schedule, times: Sequence[dict[str, Measured]]) -> Schedule:
    kernels = tuple(
        replace(kernel, measured=_join_times([found[kernel.source] for found in times if kernel.source in found]))
        for kernel in schedule.kernels
    )
    return replace(schedule, kernels=kernels)


def _join_times(found: Sequence[Measured]) -> Measured | None:
    if not found:
        return None
    return Measured(
        launches=found[0].launches,
        median=statistics.median(one.median for one in found),
        least=min(one.least for one in found),
        most=max(one.most for one in found),
        runs=len(found),
    )
