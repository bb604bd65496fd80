"""Finds the capture that a command is about: runs a snippet, the remembered one, or reads a saved file."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from vmapdbg import __version__
from vmapdbg.bisect.outcome import Outcome, Outcomes, Run
from vmapdbg.bisect.search import Reduced, Search, Searcher
from vmapdbg.check.result import CheckReport
from vmapdbg.commands.last_job import NothingRemembered, recall_job, remember_job
from vmapdbg.commands.launcher import (
    ChildDied,
    Job,
    Side,
    Streams,
    run_job,
    run_many,
    run_oracle,
    run_pair,
    run_reducer,
    run_side,
)
from vmapdbg.commands.options import EXIT_CHILD, EXIT_USAGE, Failure
from vmapdbg.commands.progress import show_late_progress, show_progress
from vmapdbg.data import build_data
from vmapdbg.model import SCHEMA, Capture, Finding, SnippetError, Versions
from vmapdbg.patches import PatchError, parse_patches, patch_states, spell_patches
from vmapdbg.store import StoreError, load_capture


def import_renderers() -> None:
    """Imports what prints the report: a third of a second that the child's run hides."""
    importlib.import_module("vmapdbg.render.text.capture")


def import_diff() -> None:
    """The same for what compares and prints two captures."""
    importlib.import_module("vmapdbg.diff")
    importlib.import_module("vmapdbg.render.text.diff")


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


def check_job(job: Job, limit: int, paranoid: bool) -> tuple[Capture, CheckReport]:
    """Runs the job once, then has stock tinygrad compute in another child what it should have got.

    What the snippet prints goes to stderr. `limit` is the most graphs that stock tinygrad runs for one output.
    """
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
        evidence = Path(folder)
        streams = Streams(stdout=sys.stderr.fileno())
        try:
            with show_late_progress(f"working on {job.snippet}") as told:
                capture = run_job(job, streams, meanwhile=import_check, evidence=evidence, told=told)
            refuse_overlay_error(capture)
            with show_progress(f"comparing {job.snippet} with stock tinygrad") as told:
                text = run_oracle(evidence, limit, paranoid, job.timeout, told)
        except ChildDied as error:
            raise Failure(str(error), EXIT_CHILD) from None
    return capture, build_data(CheckReport, json.loads(text))


def bisect_job(job: Job, kind: str, budget: int) -> tuple[Search, list[Outcome]]:
    """Runs the job with sets of its patches and returns what makes a difference to its `kind` of outcome.

    What the snippet prints is not shown. Raises Failure when the snippet needs patches that cannot be switched.
    """
    outcomes = Outcomes(kind, find_findings)
    with show_progress(f"bisecting {job.snippet}") as told:
        runs = 0

        def count() -> None:
            nonlocal runs
            runs += 1
            told(f"{runs} runs")

        def ask(sets: Sequence[frozenset[str]]) -> list[str]:
            sides = run_many([replace(job, patches=patches, values=True) for patches in sets], count)
            for side in sides:
                if side.capture is not None:
                    refuse_overlay_error(side.capture)
            return [outcomes.sort_in(Run(side.capture, side.died)) for side in sides]

        search = Searcher(job.patches or frozenset(), ask, budget).search()
    return search, outcomes.known


def reduce_job(job: Job, kind: str, search: Search, seconds: float) -> Reduced:
    """Reduces the graph of the snippet to one that still comes out differently with the patches of a search, and runs
    what is written once more with both, to be sure."""
    sides = find_deciding(search)
    names = " and ".join(f"--patches {spell_patches(side)}" for side in sides)
    comment = (
        f"Reduced from {job.snippet}, schedule {{schedule}}: {{before}} nodes to {{after}}, {{tried}} graphs tried.\n"
        f"Its {kind} differ with {names}."
    ).replace("Its crash differ", "How it ends differs")
    hang = job.timeout or 20.0
    with tempfile.TemporaryDirectory(prefix="vmapdbg-") as folder:
        evidence = Path(folder)
        quiet = subprocess.DEVNULL
        try:
            run_job(replace(job, patches=sides[0]), Streams(quiet, quiet), evidence=evidence)
            with show_progress(f"reducing {job.snippet}") as told:
                found = json.loads(run_reducer(evidence, sides, kind, job.target, comment, seconds, hang, told))
        except ChildDied as error:
            raise Failure(str(error), EXIT_CHILD) from None
        if "text" not in found:
            return Reduced(None, found["reason"], 0, 0, 0, 0)
        file = evidence / "reduced.py"
        file.write_text(found["text"], encoding="utf-8")
        outcomes = Outcomes(kind, find_findings)
        again = Job(str(file), (), job.target, None, job.timeout, values=True)
        runs = run_many([replace(again, patches=side) for side in sides], lambda: None)
        if len({outcomes.sort_in(Run(side.capture, side.died)) for side in runs}) == 1:
            return Reduced(
                None, "the reduced graph shows the difference, but the file written from it does not", 0, 0, 0, 0
            )
        return Reduced(reason=None, **found)


def find_deciding(search: Search) -> tuple[frozenset[str], frozenset[str]]:
    """Two sets with different outcomes, as near to each other as was found."""
    if search.removed.sets:
        return search.given, search.given - search.removed.sets[0]
    return search.added.sets[0], frozenset()


def find_findings(capture: Capture) -> tuple[Finding, ...]:
    return add_findings(capture).findings


def import_check() -> None:
    importlib.import_module("vmapdbg.check.blame")
    importlib.import_module("vmapdbg.render.text.check")


def refuse_overlay_error(capture: Capture) -> None:
    if capture.error is not None and capture.error.type == "OverlayError":
        raise Failure(capture.error.message, EXIT_USAGE)


def capture_job(job: Job, quiet_stdout: bool = False) -> Capture:
    """Runs the job. With `quiet_stdout` what the snippet prints goes to stderr, because stdout carries data."""
    streams = Streams(stdout=sys.stderr.fileno() if quiet_stdout else None)
    try:
        with show_late_progress(f"working on {job.snippet}") as told:
            capture = run_job(job, streams, meanwhile=import_renderers, told=told)
    except ChildDied as error:
        raise Failure(str(error), EXIT_CHILD) from None
    refuse_overlay_error(capture)
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
    with show_late_progress(f"running {after.snippet} with two sets of patches") as told:
        if told is not None:
            told("")
        return run_pair(replace(after, patches=patches), after, meanwhile=import_diff, told=told)


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
