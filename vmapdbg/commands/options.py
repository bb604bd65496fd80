"""What the commands have in common on the command line: option types, shared options, one-line errors,
how a command ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

import click

from vmapdbg.commands.launcher import TARGETS
from vmapdbg.model import Capture
from vmapdbg.patches import PatchError, parse_patches
from vmapdbg.render.sections import SECTIONS

EXIT_USAGE, EXIT_SNIPPET, EXIT_CHILD = 2, 3, 4


class Failure(click.ClickException):
    """Ends the tool with one line on stderr and an exit code."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        click.echo(f"vmapdbg: {self.message}", err=True)


class Stopped(KeyboardInterrupt):
    """A signal that asks the tool to end: it does so as at Ctrl-C, and leaves no child behind."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


def stop_at_signals() -> None:
    """Has SIGTERM (`timeout`, `kill`) and SIGHUP (a closed terminal) raise Stopped. One that is ignored (nohup) stays
    ignored."""

    def stop(number: int, _: Any) -> NoReturn:
        raise Stopped(number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, stop)


class Commands(click.Group):
    """A group whose usage errors are one line."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        try:
            stop_at_signals()
            status = super().main(args=args, **{**extra, "standalone_mode": False})
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx is not None else "vmapdbg"
            click.echo(f"vmapdbg: {error.format_message().rstrip('.')} (see {command} --help)", err=True)
            sys.exit(EXIT_USAGE)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt) as ended:
            if isinstance(ended.__cause__, Stopped):
                sys.exit(128 + ended.__cause__.number)
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


def tell_no_schedule(capture: Capture) -> None:
    """Says why there is nothing to see, unless the snippet failed: that is told already."""
    if capture.error is None:
        click.echo(
            f"vmapdbg: {capture.snippet} made no schedule: it realized nothing and left no lazy Tensor in a global",
            err=True,
        )


def make_console(stderr: bool = False) -> Any:
    """Returns the console of stdout, or of stderr: width and colour from the terminal, plain when piped, NO_COLOR
    honoured."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def end_after(capture: Capture) -> None:
    """Ends with the code of the snippet's failure, if it failed. Its traceback is on stderr already."""
    if capture.error is None:
        return
    if capture.error.type == "SystemExit":
        click.echo(f"vmapdbg: {capture.snippet} exited with status {capture.error.message}", err=True)
    sys.exit(EXIT_SNIPPET)
