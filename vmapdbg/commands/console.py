"""Where a command prints: the console of stdout or stderr, the options about it, and the pager in front of it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, Any, Literal

import click

_DISPLAY, _PAGER = "vmapdbg.display", "vmapdbg.pager"
_DEFAULT_PAGER = "less"
_NARROWEST = 20

Colour = Literal["auto", "always", "never"]


class Pager:
    """A process that shows what is written to it. A reader who has seen enough ends it: what follows goes nowhere, and
    the command goes on to its own end."""

    encoding = "utf-8"

    def __init__(self, command: str) -> None:
        # what git sets: end at once where one screen is enough, let colours through, leave the text on the screen
        environment = {"LESS": "FRX", "LV": "-c", **os.environ}
        self.process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment)
        assert self.process.stdin is not None
        self.pipe: IO[bytes] = self.process.stdin

    def write(self, text: str) -> int:
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.pipe.write(text.encode(self.encoding, "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.pipe.flush()

    def isatty(self) -> bool:
        """What it shows is on a terminal."""
        return True

    def close(self) -> None:
        """Waits until the reader has ended it. Ctrl-C is for the pager meanwhile."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with contextlib.suppress(BrokenPipeError):
                self.pipe.close()
            self.process.wait()
        finally:
            signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Display:
    """How is printed: `width` in columns, None: that of the terminal. `file` is printed to in the place of stdout."""

    colour: Colour = "auto"
    width: int | None = None
    paged: bool = True
    file: IO[str] | None = None


def _get_meta() -> dict[str, Any]:
    """Returns what belongs to the command that runs; outside of a command nothing is kept."""
    context = click.get_current_context(silent=True)
    if context is None:
        return {}
    return context.meta


def get_display() -> Display:
    return _get_meta().get(_DISPLAY, Display())


def set_display(**changed: Any) -> None:
    """Sets fields of the Display of the command that runs."""
    _get_meta()[_DISPLAY] = replace(get_display(), **changed)


def _take(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def set_field(_: click.Context, __: click.Parameter, value: Any) -> None:
        if value is not None:
            set_display(**{field: value})

    return set_field


def _take_no_pager(_: click.Context, __: click.Parameter, value: bool) -> None:
    # not given after the command, it may be given before
    if value:
        set_display(paged=False)


def list_display_options() -> list[click.Option]:
    """Returns the options about printing, which every command that prints for people has, and the tool itself."""
    return [
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            expose_value=False,
            callback=_take("colour"),
            help="Colours.  [default: auto, on a terminal without NO_COLOR]",
        ),
        click.Option(
            ["--width"],
            type=click.IntRange(min=_NARROWEST),
            expose_value=False,
            callback=_take("width"),
            help="Columns.  [default: those of the terminal]",
        ),
        click.Option(
            ["--no-pager"],
            is_flag=True,
            expose_value=False,
            callback=_take_no_pager,
            help="Print to the terminal at once, not through $PAGER (less -FRX).",
        ),
    ]


def make_console(stderr: bool = False) -> Any:
    """Returns the console of stdout, or of stderr: width and colour from the terminal and the options, plain when
    piped, NO_COLOR honoured. That of stdout is a pager where stdout is a terminal."""
    from vmapdbg.page.text.legible import LegibleConsole

    display = get_display()
    file = None
    if not stderr:
        file = display.file or start_pager(display)
    more: dict[str, Any] = {"file": file, "width": display.width}
    if display.colour == "always":
        more |= {"force_terminal": True, "no_color": False}
    if display.colour == "never":
        more |= {"color_system": None}
    console = LegibleConsole(stderr=stderr, highlight=False, markup=False, emoji=False, **more)
    if display.colour == "always" and console.color_system is None:
        # a terminal without a name, or "dumb": the colours that all of them know
        more["color_system"] = "standard"
        console = LegibleConsole(stderr=stderr, highlight=False, markup=False, emoji=False, **more)
    return console


# *** the pager


def start_pager(display: Display) -> Any:
    """Returns the pager of the command, started where it is the first time; None where nothing is paged."""
    context = click.get_current_context(silent=True)
    if context is None:
        return None
    if _PAGER not in context.meta:
        command = choose_pager(display)
        if command is None:
            return None
        sys.stdout.flush()
        context.meta[_PAGER] = Pager(command)
        context.call_on_close(close_pager)
    return context.meta[_PAGER]


def close_pager() -> None:
    """Waits for the end of the pager, where there is one: what is said on stderr comes after it."""
    pager = _get_meta().pop(_PAGER, None)
    if pager is not None:
        pager.close()


def choose_pager(display: Display) -> str | None:
    """Returns the command of the pager: $PAGER, else less; None where it is switched off or not there, or stdout is no
    terminal."""
    if not display.paged or os.environ.get("NO_PAGER") or not sys.stdout.isatty():
        return None
    command = os.environ.get("PAGER", _DEFAULT_PAGER)
    if os.environ.get("TERM", "dumb") == "dumb" or command.strip() in ("", "cat"):
        return None
    try:
        program = shlex.split(command)[0]
    except ValueError:
        program = command
    if shutil.which(program) is None:
        if "PAGER" in os.environ:
            click.echo(f"vmapdbg: there is no program {program}, which PAGER names: printed without it", err=True)
        return None
    return command
