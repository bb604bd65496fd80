"""The command line: parse, call, print."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import click

from vmapdbg import __version__
from vmapdbg.capture.launcher import TARGETS, ChildDied, Job, Streams, run_job
from vmapdbg.memory import NothingRemembered, recall_job, remember_job
from vmapdbg.model import Capture
from vmapdbg.overlay import child_environment
from vmapdbg.patches import PATCHES, PatchError, format_patches, parse_patches, patch_states
from vmapdbg.store import StoreError, dump_capture, load_capture, save_capture

EXIT_USAGE, EXIT_SNIPPET, EXIT_CHILD = 2, 3, 4
SECTIONS = ("ranges", "vmap", "bufferize", "kernels", "source")


class Failure(click.ClickException):
    """Ends the tool with one line on stderr and an exit code."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        click.echo(f"vmapdbg: {self.message}", err=True)


class Commands(click.Group):
    """A group whose usage errors are one line."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        try:
            status = super().main(args=args, **{**extra, "standalone_mode": False})
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx is not None else "vmapdbg"
            click.echo(f"vmapdbg: {error.format_message().rstrip('.')} (see {command} --help)", err=True)
            sys.exit(EXIT_USAGE)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            click.echo("vmapdbg: interrupted", err=True)
            sys.exit(130)
        except BrokenPipeError:
            # the reader of a pipe has seen enough (head, less)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        sys.exit(status if isinstance(status, int) else 0)


class PatchesType(click.ParamType):
    """A `--patches` value."""

    name = "SPEC"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        try:
            return parse_patches(str(value))
        except PatchError as error:
            self.fail(str(error), param, ctx)


class SectionsType(click.ParamType):
    """A comma separated list of sections."""

    name = "SECTIONS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = [name.strip() for name in str(value).split(",")]
        for name in names:
            if name not in SECTIONS:
                self.fail(f"unknown section {name!r}: choose from {', '.join(SECTIONS)}", param, ctx)
        return tuple(name for name in SECTIONS if name in names)


class ScheduleType(click.ParamType):
    """The number of a schedule, or `all`."""

    name = "N|all"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | Literal["all"]:
        if value == "all":
            return "all"
        try:
            return int(str(value))
        except ValueError:
            self.fail(f"{value!r} is no schedule number and not 'all'", param, ctx)


patches_option = click.option(
    "--patches",
    type=PatchesType(),
    help="Which patches are on: all, none, or a list such as all,-close-ranges.  [default: all]",
)


target_option = click.option("--target", type=click.Choice(TARGETS), help="Render source for it.  [default: c]")
timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Stop the snippet after this many seconds."
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vmapdbg")
def main() -> None:
    """See what tinygrad's scheduler did to a program, and why."""


@main.command()
@click.argument("snippet")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@target_option
@click.option("--only", type=SectionsType(), default=SECTIONS, help=f"Print only these: {','.join(SECTIONS)}.")
@click.option("--schedule", type=ScheduleType(), help="Print only this schedule.")
@click.option("--all", "show_all", is_flag=True, help="Print every node of a long graph.")
@click.option("--json", "as_json", is_flag=True, help="Print the capture as one JSON document.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the capture to a file, too.")
@patches_option
@timeout_option
def show(
    snippet: str,
    arguments: tuple[str, ...],
    target: str | None,
    only: tuple[str, ...],
    schedule: int | Literal["all"] | None,
    show_all: bool,
    as_json: bool,
    save: Path | None,
    patches: frozenset[str] | None,
    timeout: float | None,
) -> None:
    """Run SNIPPET and show what the scheduler did: ranges, vmap_map, BUFFERIZE, kernels, source.

    ARGUMENTS after -- are the snippet's own.

    \b
    Examples:
      vmapdbg show samples/lost_range.py
      vmapdbg show samples/lost_range.py --patches all,-ambient-ranges --only bufferize,source
      vmapdbg show train.py --target metal --save after.json -- --steps 1
    """
    check_snippet(snippet)
    job = Job(snippet, arguments, target or "c", on(patches), timeout)
    remember_job(job)
    capture = capture_job(job, as_json)
    try:
        if save is not None:
            save_capture(capture, save)
    except StoreError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    if as_json:
        sys.stdout.write(dump_capture(capture))
    else:
        print_report(capture, only, schedule, show_all)
    end_after(capture)


def import_renderers() -> None:
    """Imports what prints the report: a third of a second that the child's run hides."""
    importlib.import_module("vmapdbg.render.text")


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
    return capture


def print_report(
    capture: Capture, only: tuple[str, ...], schedule: int | Literal["all"] | None, show_all: bool
) -> None:
    count = len(capture.schedules)
    if isinstance(schedule, int) and not 0 <= schedule < count:
        raise Failure(f"there is no schedule {schedule}: {capture.snippet} made {count}", EXIT_USAGE)
    if count == 0:
        if capture.error is None:
            click.echo(
                f"vmapdbg: {capture.snippet} made no schedule: it realized nothing and left no lazy Tensor in a global",
                err=True,
            )
        return
    from vmapdbg.render.text import print_capture

    print_capture(capture, make_console(), only=only, schedule=schedule, show_all=show_all)


def make_console() -> Any:
    """Returns the console of stdout: width and colour from the terminal, plain when piped, NO_COLOR honoured."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def end_after(capture: Capture) -> None:
    """Ends with the code of the snippet's failure, if it failed. Its traceback is on stderr already."""
    if capture.error is None:
        return
    if capture.error.type == "SystemExit":
        click.echo(f"vmapdbg: {capture.snippet} exited with status {capture.error.message}", err=True)
    sys.exit(EXIT_SNIPPET)


@main.command()
@click.argument("subject", required=False)
@click.argument("snippet", required=False)
@click.option("--schedule", type=click.IntRange(min=0), help="Look only at this schedule.")
@target_option
@patches_option
@timeout_option
def why(
    subject: str | None,
    snippet: str | None,
    schedule: int | None,
    target: str | None,
    patches: frozenset[str] | None,
    timeout: float | None,
) -> None:
    """Explain every decision about SUBJECT: a node's number, a kernel's name, or a line such as model.py:12.

    Without SUBJECT: one line for each buffer between two kernels, and why they are not one. SNIPPET is a Python file
    or a saved capture; without it, the snippet of the last show.

    \b
    Examples:
      vmapdbg why 48
      vmapdbg why r_3_2_2_2 samples/lost_range.py
      vmapdbg why samples/lost_range.py:28
      vmapdbg why
    """
    if snippet is None and subject is not None and subject.endswith((".py", ".json")):
        subject, snippet = None, subject
    capture = find_capture(snippet, target, patches, timeout)
    if not capture.schedules:
        print_report(capture, SECTIONS, None, False)
        end_after(capture)
        return
    from vmapdbg.render.text_why import print_explanations
    from vmapdbg.why import UnknownSubject, explain

    try:
        explanations = explain(capture, subject, schedule)
    except UnknownSubject as error:
        raise Failure(str(error), EXIT_USAGE) from None
    print_explanations(explanations, make_console())
    end_after(capture)


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


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@patches_option
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(patches: frozenset[str] | None, program: tuple[str, ...]) -> None:
    """Run a program on patched tinygrad: SCRIPT [ARGS] or -m MODULE [ARGS].

    Python processes that it starts (pytest-xdist workers, spawn, BEAM) get the same overlay and patches.

    \b
    Example:
      vmapdbg run --patches all,-close-ranges -m pytest -n 2 test_schedule.py
    """
    if program[0] == "-m":
        if len(program) == 1:
            raise Failure("-m needs the name of a module", EXIT_USAGE)
    else:
        check_snippet(program[0])
    environment = child_environment(format_patches(on(patches)), dict(os.environ))
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *program], environment)


@main.command()
@patches_option
def patches(patches: frozenset[str] | None) -> None:
    """Show the patches, what each does, and its state.

    \b
    Example:
      vmapdbg patches --patches all,-nested-ranges
    """
    from vmapdbg.render.text import print_patches

    print_patches(PATCHES, patch_states(on(patches)), make_console())
