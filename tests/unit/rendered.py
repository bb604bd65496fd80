"""What the tool prints on a rich console, as text that a test reads."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

from rich.console import Console

# a style that sets a colour, not only bold or italics
COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-7]|38|9[0-7])[;m]")


def print_to_text(show: Callable[[Console], None], width: int = 80, *, terminal: bool = False) -> str:
    """What `show` prints, as a pipe (or, with `terminal`, a colour terminal) gets it.

    Unlike on the command line, the console highlights and reads markup: text by the user must be safe from both.
    """
    file = io.StringIO()
    color_system = "truecolor" if terminal else None
    show(Console(file=file, width=width, force_terminal=terminal, color_system=color_system))
    return file.getvalue()


def flatten(output: str) -> str:
    """The output with every fold undone, for sentences that may be folded anywhere."""
    return " ".join(output.split())


def remove_colours(output: str) -> str:
    """The output without the escapes of its styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", output)


def assert_same_but_coloured(coloured: str, plain: str) -> None:
    """A terminal is shown what a pipe gets, in colours; a table may fill its lines there."""
    assert "\x1b[" in coloured
    assert [line.rstrip() for line in remove_colours(coloured).splitlines()] == plain.splitlines()
