"""Finds the capture that a command is about: runs a snippet, the remembered one, or reads a saved file."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

import click

from vmapdbg.commands.completion import list_names
from vmapdbg.commands.last_job import recall_job, remember_job, remember_names
from vmapdbg.commands.launcher import Streams, run_job
from vmapdbg.commands.options import JobOptions
from vmapdbg.commands.progress import show_progress
from vmapdbg.commands.settings import Settings, find_settings
from vmapdbg.commands.tinygrad import settle_job
from vmapdbg.commands.typed import find_typed
from vmapdbg.install.job import Job
from vmapdbg.install.patches import ALL, spell_patches
from vmapdbg.install.targets import DEFAULT_TARGET
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import load_capture
from vmapdbg.model.wording import format_known


def is_saved(snippet: str | None) -> TypeGuard[str]:
    """Tells whether what is given in the place of a snippet is a saved capture."""
    return snippet is not None and snippet.endswith(".json")


def find_shown(
    snippet: str | None, options: JobOptions, arguments: tuple[str, ...], times: bool, quiet_stdout: bool
) -> Capture:
    """Returns the capture of a run of the snippet, timed or not, or the saved one. `arguments` come before those after
    `--`. Raises Failure for a saved one with what would do nothing."""
    options = add_arguments(options, arguments)
    if not is_saved(snippet):
        job = replace(find_job(snippet, options), times=times)
        capture = capture_job(job, quiet_stdout=quiet_stdout)
        if times:
            tell_untimed(capture)
        return capture
    if times:
        raise Failure(f"{snippet} is a saved capture: it takes no arguments and no --time")
    return find_capture(snippet, options)


def add_arguments(options: JobOptions, arguments: tuple[str, ...]) -> JobOptions:
    """Returns the options with arguments of the snippet's that stand before those after `--`."""
    if not arguments:
        return options
    return replace(options, arguments=(*arguments, *(options.arguments or ())))


def find_capture(snippet: str | None, options: JobOptions) -> Capture:
    """Returns the capture of a saved file, or of a run of the snippet; what it prints goes to stderr.

    Raises Failure for a saved one with an option of the job, which would do nothing."""
    if is_saved(snippet):
        refuse_options(snippet, options)
        return load_capture(snippet)
    return capture_job(find_job(snippet, options), quiet_stdout=True)


def refuse_options(saved: str, options: JobOptions) -> None:
    """Raises Failure where there are options, which would do nothing with a saved capture."""
    if options.arguments:
        raise Failure(f"{saved} is a saved capture: it takes no arguments and no --time")
    if options.code is not None:
        find_typed(saved, options.code)
    if any(value is not None for value in vars(options).values()):
        raise Failure(f"{saved} is a saved capture: it was made with its own patches, target and tinygrad")


def find_job(snippet: str | None, options: JobOptions) -> Job:
    """Returns the job for a snippet, which is remembered, or the remembered one with the options that are given in
    place of its own. Its tinygrad is there: see `settle_job`."""
    return settle_job(find_plain_job(snippet, options), options.patches)


def find_plain_job(snippet: str | None, options: JobOptions) -> Job:
    """Does the same, and leaves open which tinygrad it runs on."""
    snippet, typed = find_typed(snippet, options.code)
    if snippet is not None:
        check_snippet(snippet)
        job = apply_options(apply_settings(Job(snippet, typed=typed)), options)
        remember_job(job)
        return job
    job = recall_job()
    check_snippet(job.snippet)
    job = apply_options(job, options)
    click.echo(f"vmapdbg: using {job.snippet}, from the last show{describe_choices(job)}", err=True)
    return job


def describe_choices(job: Job) -> str:
    """Returns what of a job is not the default: ` with --patches none --target metal`; nothing where all is."""
    given: list[str] = []
    if job.patches is not None and job.patches != ALL:
        given.append(f"--patches {spell_patches(job.patches)}")
    if job.target != DEFAULT_TARGET:
        given.append(f"--target {job.target}")
    if job.tree:
        given.append(f"--tinygrad {job.tree}")
    if job.python:
        given.append(f"--python {job.python}")
    if job.arguments:
        given.append(f"-- {shlex.join(job.arguments)}")
    return format_known(" with {}", " ".join(given))


def apply_options(job: Job, options: JobOptions) -> Job:
    """Returns the job with the options that are given."""
    given = {name: value for name, value in vars(options).items() if value is not None and name != "code"}
    return replace(job, **given)


def find_name(snippet: str | None, options: JobOptions) -> str | None:
    """Returns what is given as SNIPPET, else the remembered snippet; None for code after -c. Raises
    NothingRemembered."""
    if snippet is None and options.code is None:
        return recall_job().snippet
    return snippet


def settings_for(snippet: str | None, options: JobOptions) -> Settings:
    """Returns the settings for what is given as SNIPPET, or for the remembered snippet. Raises Failure."""
    return find_settings(find_name(snippet, options) or "-c")


def apply_settings(job: Job) -> Job:
    """Returns the job with what the pyproject.toml of its snippet says."""
    settings = find_settings(job.snippet)
    return replace(
        job,
        target=settings.target or job.target,
        patches=job.patches if settings.patches is None else settings.patches,
        timeout=settings.timeout,
    )


def check_snippet(snippet: str) -> None:
    path = Path(snippet)
    if path.is_dir():
        raise Failure(f"{snippet} is a directory, not a Python file")
    if not path.exists():
        raise Failure(f"there is no file {snippet}")
    if not os.access(path, os.R_OK):
        raise Failure(f"{snippet} cannot be read")
    if path.suffix == ".ipynb":
        raise Failure(f"{snippet} is a notebook: jupyter nbconvert --to script {snippet} makes a Python file of it")


def capture_job(job: Job, quiet_stdout: bool = False) -> Capture:
    """Runs the job. With `quiet_stdout` what the snippet prints goes to stderr, because stdout carries data."""
    streams = Streams(stdout=sys.stderr.fileno() if quiet_stdout else None)
    with show_progress(f"working on {job.snippet}", late=True) as progress:
        # what prints the report takes a third of a second to import
        capture = run_job(job, streams, ["vmapdbg.page.text.capture"], progress=progress, shadow=True)
    refuse_overlay_error(capture)
    tell_death(capture)
    capture = add_findings(capture)
    tell_mistakes(capture.findings)
    remember_names(list_names(capture))
    return capture


def tell_untimed(*captures: Capture) -> None:
    """Says that times were asked for and there are none, unless a snippet failed: that is told already."""
    kernels = [kernel for capture in captures for kernel in capture.kernels]
    failed = any(capture.error is not None for capture in captures)
    if failed or not kernels or any(kernel.measured is not None for kernel in kernels):
        return
    target = captures[-1].target
    click.echo(f"vmapdbg: no kernel was timed: what ran is not the source for {target} that is shown", err=True)


def tell_death(capture: Capture) -> None:
    """Says how the child died that left this capture, if it did."""
    if capture.error is not None and capture.error.type == "ChildDied":
        click.echo(f"vmapdbg: {capture.error.message}", err=True)


def tell_mistakes(findings: Iterable[Finding]) -> None:
    """Says which comments in the files of some findings are to ignore a code and cannot."""
    from vmapdbg.lint import CODES
    from vmapdbg.lint.ignores import list_other_mistakes

    for mistake in list_other_mistakes(findings, CODES):
        _tell_mistake(mistake)


@functools.cache
def _tell_mistake(mistake: str) -> None:
    """Says it once, however many captures a command looks at."""
    click.echo(f"vmapdbg: {mistake}", err=True)


def refuse_overlay_error(capture: Capture) -> None:
    """Raises Failure where the overlay could not be installed: that is no outcome of the snippet."""
    if capture.error is not None and capture.error.type == "OverlayError":
        raise Failure(capture.error.message)


def add_findings(capture: Capture, file: str | None = None) -> Capture:
    """Returns the capture with what lint finds in it alone, without what a comment on the user's line or the
    settings take out. The settings are those of `file`, of the snippet where none is named."""
    from vmapdbg.lint import lint_capture
    from vmapdbg.lint.ignores import split_ignored

    codes = find_settings(capture.snippet if file is None else file).choose_codes()
    return replace(capture, findings=split_ignored(lint_capture(capture, codes=codes))[0])


def find_findings(capture: Capture) -> tuple[Finding, ...]:
    return add_findings(capture).findings
