"""The command line: the group that the commands belong to."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from vmapdbg import __version__
from vmapdbg.commands.console import list_display_options
from vmapdbg.model.failure import EXIT_USAGE, Failure

COMMANDS = ("bisect", "check", "diff", "graph", "lint", "patches", "report", "run", "schema", "show", "why")
"""Each is a function in the module of its name."""
_NOT_PRINTING = frozenset({"graph", "report", "schema"})
"""These write files, or a document for programs: they have no options about printing."""


class Stopped(KeyboardInterrupt):
    """A signal that asks the tool to end: it does so as at Ctrl-C, and leaves no child behind."""

    def __init__(self, signal_number: int):
        super().__init__()
        self.signal_number = signal_number


def stop_at_signals() -> None:
    """Has SIGTERM (`timeout`, `kill`) and SIGHUP (a closed terminal) raise Stopped. One that is ignored (nohup) stays
    ignored."""

    def stop(signal_number: int, _: Any) -> NoReturn:
        raise Stopped(signal_number)

    for name in ("SIGTERM", "SIGHUP"):
        known = getattr(signal, name, None)
        if known is not None and signal.getsignal(known) is signal.SIG_DFL:
            signal.signal(known, stop)


class Commands(click.Group):
    """A group whose usage errors are one line. A command is imported when it is asked for: to import all of them takes
    as long as the one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # for a name that is none, click looks among all for one that is spelled alike
        wanted = [cmd_name] if cmd_name in COMMANDS else COMMANDS
        for name in wanted:
            if name not in self.commands:
                self.commands[name] = load_command(name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # click would end with 1, which means findings
            drop_stdout()
            sys.exit(0)

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        if sys.stderr is None:
            open_stderr()
        if sys.stdout is None:
            click.echo("vmapdbg: cannot write to stdout: it is closed", err=True)
            sys.exit(EXIT_USAGE)
        try:
            stop_at_signals()
            # click by itself prints errors over several lines, and ends with 1 at Ctrl-C
            status = super().main(args=args, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx is not None else "vmapdbg"
            click.echo(f"vmapdbg: {error.format_message().rstrip('.')} (see {command} --help)", err=True)
            sys.exit(EXIT_USAGE)
        except Failure as error:
            click.echo(f"vmapdbg: {error}", err=True)
            sys.exit(error.exit_code)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt) as ended:
            if isinstance(ended.__cause__, Stopped):
                sys.exit(128 + ended.__cause__.signal_number)
            click.echo("vmapdbg: interrupted", err=True)
            sys.exit(130)
        except BrokenPipeError:
            # the reader of a pipe has seen enough (head, less)
            drop_stdout()
            sys.exit(0)
        except OSError as error:
            if error.filename is not None:
                raise
            # a full disk, mostly
            drop_stdout()
            click.echo(f"vmapdbg: cannot write to stdout: {error.strerror}", err=True)
            sys.exit(EXIT_USAGE)
        sys.exit(status if isinstance(status, int) else 0)


def load_command(name: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(f"vmapdbg.commands.{name}"), name)
    if name not in _NOT_PRINTING:
        command.params += list_display_options()
    return command


def open_stderr() -> None:
    """Has messages go nowhere where who started the tool closed stderr. The next file to be opened would be it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != 2:
        os.dup2(nowhere, 2)
        os.close(nowhere)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def drop_stdout() -> None:
    """Has what is still to be written go nowhere: Python would try it once more at its end, and print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=Commands,
    params=list_display_options(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="vmapdbg")
@click.pass_context
def main(context: click.Context) -> None:
    """See what tinygrad's scheduler did to a program, and why."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
