"""A console whose colours can be read on a white background and on a black one.

A user chooses what the terminal shows for its 16 colours, and on white, yellow, cyan and bright colours are often
invisible. The 256 colours have fixed values, and some of them can be read on both backgrounds.
"""

from __future__ import annotations

import functools

from rich.color import Color
from rich.console import Console
from rich.style import Style

LEGIBLE = {
    "red": 160,
    "green": 28,
    "yellow": 130,
    "blue": 27,
    "magenta": 133,
    "cyan": 31,
    "bright_black": 244,
}
"""One of the 16 colours -> the number of its replacement among the 256, also for its bright form."""


class LegibleConsole(Console):
    """Shows the colours of `LEGIBLE` instead of the terminal's own."""

    def get_style(self, name: str | Style, *, default: Style | str | None = None) -> Style:
        return make_legible(super().get_style(name, default=default))

    def on_broken_pipe(self) -> None:
        """Raises, because rich would end the tool with exit code 1 when the reader of a pipe closes it."""
        raise


@functools.cache
def make_legible(style: Style) -> Style:
    """Returns a style with a colour that can be read on white and on black."""
    color = style.color
    if color is None:
        return style
    number = LEGIBLE.get(color.name, LEGIBLE.get(color.name.removeprefix("bright_")))
    if number is None:
        return style
    return style + Style(color=Color.from_ansi(number))
