"""Finds the capture that a command is about: runs a snippet, the remembered one, or reads a saved file."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import click

from vmapdbg import __version__
from vmapdbg.capture.launcher import ChildDied, Job, Side, Streams, run_job, run_pair, run_side
from vmapdbg.memory import NothingRemembered, recall_job, remember_job
from vmapdbg.model import SCHEMA, Capture, SnippetError, Versions
from vmapdbg.options import EXIT_CHILD, EXIT_USAGE, Failure
from vmapdbg.patches import PatchError, parse_patches, patch_states
from vmapdbg.store import StoreError, load_capture


def import_renderers() -> None:
    """Imports what prints the report: a third of a second that the child's run hides."""
    importlib.import_module("vmapdbg.render.text")


def import_diff() -> None:
    """The same for what compares and prints two captures."""
    importlib.import_module("vmapdbg.diff")
    importlib.import_module("vmapdbg.render.text_diff")


def on(patches: frozenset[str] | None) -> frozenset[str]:
    return parse_patches("all") if patches is None else patches


def check_snippet(snippet: str) -> None:
    path = Path(snippet)
    if path.is_dir():
        raise Failure(f"{snippet} is a directory, not a Python file", EXIT_USAGE)
    if not path.exists():
        raise Failure(f"there is no file {snippet}", EXIT_USAGE)
    if not os.access(path, os.R_OK):
        raise Failure(f"{snippet} cannot be read", EXIT_USAGE)


def capture_job(job: Job, quiet_stdout: bool = False) -> Capture:
    """Runs the job. With `quiet_stdout` what the snippet prints goes to stderr, because stdout carries data."""
    streams = Streams(stdout=sys.stderr.fileno() if quiet_stdout else None)
    try:
        capture = run_job(job, streams, meanwhile=import_renderers)
    except ChildDied as error:
        raise Failure(str(error), EXIT_CHILD) from None
    if capture.error is not None and capture.error.type == "OverlayError":
        raise Failure(capture.error.message, EXIT_USAGE)
    return add_findings(capture)


def add_findings(capture: Capture) -> Capture:
    """Returns the capture with what lint finds in it alone, without what a comment on the user's line takes out."""
    from vmapdbg.lint import lint_capture
    from vmapdbg.lint.ignores import split_ignored

    return replace(capture, findings=split_ignored(lint_capture(capture))[0])


def find_capture(
    snippet: str | None, target: str | None, patches: frozenset[str] | None, timeout: float | None
) -> Capture:
    """Returns the capture of a saved file, or of a run of the snippet; what it prints goes to stderr."""
    if snippet is not None and snippet.endswith(".json"):
        return read_capture(snippet)
    return capture_job(find_job(snippet, target, patches, timeout), quiet_stdout=True)


def read_capture(file: str) -> Capture:
    try:
        return load_capture(Path(file))
    except StoreError as error:
        raise Failure(str(error), EXIT_USAGE) from None


def find_job(snippet: str | None, target: str | None, patches: frozenset[str] | None, timeout: float | None) -> Job:
    """Returns the job for a snippet, or the remembered one with the options that are given in place of its own."""
    if snippet is not None:
        check_snippet(snippet)
        job = Job(snippet, (), target or "c", on(patches), timeout)
        remember_job(job)
        return job
    try:
        job = recall_job()
    except NothingRemembered as error:
        raise Failure(str(error), EXIT_USAGE) from None
    check_snippet(job.snippet)
    click.echo(f"vmapdbg: using {job.snippet}, from the last show", err=True)
    return replace(
        job,
        target=target or job.target,
        patches=job.patches if patches is None else patches,
        timeout=timeout or job.timeout,
    )


def find_sides(after: Job, baseline: str) -> tuple[Side, Side]:
    """Returns (before, after): the job, and the same snippet with the baseline's patches, run at the same time.

    `baseline` is `none`, `stock`, a patch list, or a saved capture.
    """
    if baseline.endswith(".json"):
        return Side(read_capture(baseline), None, b"", b""), run_side(after)
    try:
        patches = None if baseline == "stock" else parse_patches(baseline)
    except PatchError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    return run_pair(replace(after, patches=patches), after, meanwhile=import_diff)


def side_capture(side: Side, job: Job) -> Capture:
    """Returns what the side captured; for a child that died a capture with that as its error, and no schedule."""
    if side.capture is not None:
        return add_findings(side.capture)
    return Capture(
        schema=SCHEMA,
        versions=Versions(__version__, "", ""),
        snippet=job.snippet,
        target=job.target,
        patches={} if job.patches is None else patch_states(job.patches),
        error=SnippetError("ChildDied", side.died or "", None),
        schedules=(),
        findings=(),
    )
