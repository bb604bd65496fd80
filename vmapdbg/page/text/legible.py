"""A console whose colours can be read on a white background and on a black one.

What a terminal shows for its 16 colours is its user's choice, and on white yellow, cyan and all bright ones are often
next to nothing. The 256 have fixed values: of these some stand out from both.
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
"""One of the 16 colours -> the one of the 256 that is shown for it, and for its bright form."""


class LegibleConsole(Console):
    """Shows the colours of `LEGIBLE` in the place of a terminal's own."""

    def get_style(self, name: str | Style, *, default: Style | str | None = None) -> Style:
        return make_legible(super().get_style(name, default=default))

    def on_broken_pipe(self) -> None:
        """Leaves it to the tool what it ends with when the reader of a pipe has seen enough: rich ends with 1."""
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
