"""vmapdbg: see what tinygrad's scheduler did to a program, and why."""

from collections.abc import Callable

__version__ = "0.1.0"

listeners: list[Callable[[str | None], None]] = []
"""What hears of marks: `show --time` does, in the process of the program."""


def mark(name: str | None) -> None:
    """Names the phase that begins here, for `show --time`; None ends the phase. Does nothing in an untimed program."""
    for listen in listeners:
        listen(name)
