"""Talks to the user: messages on stderr, results on stdout or in a file, progress, exit codes."""

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Generator
from typing import Any

import click

from vmapdbg.model.capture import DIED, Capture
from vmapdbg.model.failure import EXIT_CHILD, EXIT_SNIPPET
from vmapdbg.model.store import dump_document
from vmapdbg.model.wording import escape_unsafe

_WIDTH = "vmapdbg.width"  # the value of --width, in the `meta` of the context
_NARROWEST = 20

# *** messages


def say(message: str) -> None:
    """Prints a message on stderr. It may name what a file of another person contains: escapes are shown."""
    click.echo(f"vmapdbg: {escape_unsafe(message)}", err=True)


say_once = functools.cache(say)  # prints a line on stderr the first time it is called with that line


def report_no_schedule(capture: Capture) -> None:
    """Says why there is nothing to see. If the snippet failed, stderr has its traceback already."""
    if capture.error is None:
        say(f"{capture.snippet} made no schedule: it realized nothing and left no lazy Tensor in a global")


def report_death(capture: Capture) -> None:
    """Says what could not be observed and, if the child died after it had captured something, how."""
    for line in capture.missing:
        say_once(line)
    if capture.error is not None and capture.error.type == DIED:
        say(capture.error.message)


def report_untimed(*captures: Capture) -> None:
    """Says that --time measured nothing, unless a snippet failed: then stderr has its traceback already."""
    kernels = [kernel for capture in captures for kernel in capture.kernels]
    failed = any(capture.error is not None for capture in captures)
    if not failed and kernels and all(kernel.measured is None for kernel in kernels):
        say(f"no kernel was timed: what ran is not the source for {captures[-1].target} that is shown")


def report_unrendered(capture: Capture) -> None:
    """Says which kernels have no program for the target."""
    from vmapdbg.page.sentences import describe_error

    for schedule in capture.schedules:
        for number, kernel in enumerate(schedule.kernels):
            if kernel.failed is not None:
                place = f"kernel #{number} of schedule {schedule.index}, target {capture.target},"
                say_once(f"{place} has no program: {describe_error(kernel.failed)}")


# *** the end of a command

# the errors of a snippet that did not end by itself
_HUNG = frozenset({DIED, "EndlessRewrite"})


def end_after(capture: Capture, names_status: bool = True) -> None:
    """Ends the command with its exit code if the snippet failed. With `names_status`, says the snippet's own status."""
    if capture.error is None:
        report_unrendered(capture)
    elif names_status and capture.error.type == "SystemExit":
        say(f"{capture.snippet} exited with status {capture.error.message}")
    if status := exit_code_of(capture):
        sys.exit(status)


def exit_code_of(capture: Capture) -> int:
    """Returns the exit code of a snippet's failure, 0 if it did not fail."""
    if capture.error is not None:
        return EXIT_CHILD if capture.error.type in _HUNG else EXIT_SNIPPET
    # the snippet did not need this kernel, so the failure of its code generation is the only one
    return EXIT_CHILD if any(kernel.failed is not None for kernel in capture.kernels) else 0


# *** results


def _take_option(context: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None:  # None does not reset it: the option may be given before the subcommand
        context.meta[f"vmapdbg.{option.name}"] = value


def display_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options about printing. The tool has them, too: `vmapdbg --width 80 show F`."""
    option = functools.partial(click.option, expose_value=False, callback=_take_option)
    colours = click.Choice(["auto", "always", "never"])
    colour = option("--color", "colour", type=colours, help="Colours.  [default: auto, on a terminal without NO_COLOR]")
    width = option("--width", type=click.IntRange(min=_NARROWEST), help="Columns.  [default: the terminal's]")
    return colour(width(command))


def print_json(document: Any) -> None:
    """Prints a JSON document on stdout."""
    sys.stdout.write(dump_document(document))


def print_result(document: Any, as_json: bool, print_text: Callable[[Any, Any], object], stderr: bool = False) -> None:
    """Prints a document as JSON on stdout, or as text: `print_text` gets it with a console for stdout or stderr."""
    if as_json:
        print_json(document)
    else:
        print_text(document, make_console(stderr))


def print_to_text(print_page: Callable[[], object], width: int) -> str:
    """Returns what a function prints on stdout, in so many columns if --width is not given."""
    text = io.StringIO()
    click.get_current_context().meta.setdefault(_WIDTH, width)
    with contextlib.redirect_stdout(text):
        print_page()
    return text.getvalue()


def make_console(stderr: bool = False) -> Any:
    """Returns a console with the terminal's and options' width and colours; plain in a pipe or with NO_COLOR."""
    from vmapdbg.page.text.layout import LegibleConsole

    context = click.get_current_context(silent=True)
    display = {} if context is None else context.meta
    colour = display.get("vmapdbg.colour")
    more: dict[str, Any] = {}
    if colour == "always":
        more = {"force_terminal": True, "no_color": False}
        if os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
            more["color_system"] = "standard"  # the colours that every terminal has
    if colour == "never":
        more = {"color_system": None}
    plain = {"highlight": False, "markup": False, "emoji": False}
    return LegibleConsole(stderr=stderr, width=display.get(_WIDTH), **plain, **more)


# *** progress

Progress = Callable[[str], object]  # gets a line about the progress of the work


def drop_progress(line: str) -> None:
    """Shows nothing."""


@contextlib.contextmanager
def show_progress(text: str, wait: bool = False) -> Generator[Progress]:
    """Shows `text` on stderr while the block runs, with the lines that the block passes to the function it gets;
    nothing stays. Without a terminal, the function is `drop_progress`. With `wait`, shows nothing before the first
    line: until then the snippet uses the terminal."""
    if not sys.stderr.isatty():
        yield drop_progress
        return
    status = make_console(stderr=True).status(text)

    def progress(more: str) -> None:
        status.update(f"{text}: {more}" if more else text)
        status.start()

    try:
        if not wait:
            status.start()
        yield progress
    finally:
        status.stop()
