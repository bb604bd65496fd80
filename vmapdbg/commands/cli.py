"""The command line: the group that the commands belong to."""

import os
import pkgutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from vmapdbg import __version__
from vmapdbg.commands.shared.console import display_options, say
from vmapdbg.model.failure import EXIT_USAGE, Failure

_MODULES = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]) if not module.ispkg]
COMMANDS = tuple(name for name in _MODULES if "_" not in name and name != "cli")
"""The subcommands: the modules in this folder, without the modules that are parts of a command."""

_TASKS = """vmapdbg shows what tinygrad's scheduler did to your program.

It is slow            vmapdbg show FILE.py
It is not one kernel  vmapdbg why FILE.py
Make it faster        vmapdbg tune FILE.py
The values are wrong  vmapdbg check FILE.py
It needs much memory  vmapdbg show FILE.py --memory
What did my edit do?  vmapdbg diff OLD.py NEW.py
Or a new tinygrad?    vmapdbg diff FILE.py --baseline=0.13.0
Show me everything    vmapdbg report FILE.py -o report.html
It is tinygrad's bug  vmapdbg issue FILE.py -o issue.md

FILE.py is any program that imports tinygrad.
All commands: vmapdbg --help. Examples: vmapdbg why --help"""


class Stopped(KeyboardInterrupt):
    """SIGTERM or SIGHUP, its argument: the tool ends as at Ctrl-C, and leaves no child behind."""


def stop_at_signals() -> None:
    """Makes SIGTERM (`timeout`) and SIGHUP (a closed terminal) raise Stopped; ignored signals (nohup) stay ignored."""

    def stop(signal_number: int, _: Any) -> NoReturn:
        raise Stopped(signal_number)

    for name in ("SIGTERM", "SIGHUP"):
        if (known := getattr(signal, name, None)) is not None and signal.getsignal(known) is signal.SIG_DFL:
            signal.signal(known, stop)


class Commands(click.Group):
    """A group whose usage errors are one line. It imports a command when the user types it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # for an unknown name, click suggests similar names among all commands
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = pkgutil.resolve_name(f"vmapdbg.commands.{name}:{name}")
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in COMMANDS and Path(args[0]).suffix == ".py":
            raise click.UsageError(f"{args[0]} is no command: did you mean vmapdbg show {args[0]}?", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            drop_stdout()
            sys.exit(0)  # click would exit with 1, which means findings

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        if sys.stderr is None:
            open_stderr()
        if sys.stdout is None:
            say("cannot write to stdout: it is closed")
            sys.exit(EXIT_USAGE)
        try:
            stop_at_signals()
            # in its standalone mode click prints errors over several lines, and exits with 1 at Ctrl-C
            status = super().main(args=args, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx is not None else "vmapdbg"
            said = " ".join(error.format_message().split())
            say(f"{said.rstrip('.')} (see {command} --help)")
            sys.exit(EXIT_USAGE)
        except Failure as error:
            say(f"{error}")
            sys.exit(error.exit_code)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt) as ended:
            if isinstance(ended.__cause__, Stopped):
                sys.exit(128 + ended.__cause__.args[0])
            say("interrupted")
            sys.exit(130)
        except BrokenPipeError:  # the reader of the pipe (head, less) closed it
            drop_stdout()
            sys.exit(0)
        except OSError as error:
            if error.filename is not None:
                raise
            drop_stdout()
            is_gone = isinstance(error, FileNotFoundError)  # else it is usually a full disk
            say("the working directory has been deleted" if is_gone else f"cannot write to stdout: {error.strerror}")
            sys.exit(EXIT_USAGE)
        sys.exit(status if isinstance(status, int) else 0)


def open_stderr() -> None:
    """Drops messages if stderr is closed. Otherwise the next opened file would get its number, and the messages."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != 2:
        os.dup2(nowhere, 2)
        os.close(nowhere)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def drop_stdout() -> None:
    """Drops what is still in the buffer of stdout. Python would write it at exit and print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@display_options
@click.version_option(__version__, prog_name="vmapdbg")
@click.pass_context
def main(context: click.Context) -> None:
    """See what tinygrad's scheduler did to a program, and why."""
    if context.invoked_subcommand is None:
        click.echo(_TASKS)
