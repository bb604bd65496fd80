"""Says on stderr how far long work is, where stderr is a terminal. Nothing of it is left when the work is done."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Generator
from typing import Any

from vmapdbg.commands.console import make_console

Progress = Callable[[str], object]
"""Gets a line about how far the work is."""


@contextlib.contextmanager
def show_progress(text: str, late: bool = False) -> Generator[Progress | None]:
    """Shows `text` while the block runs, with what the block says of how far it is; None where nothing is shown.

    With `late` nothing is shown until the block says how far it is: before that a snippet has the terminal to itself.
    """
    if not sys.stderr.isatty():
        yield None
        return
    console = make_console(stderr=True)
    with contextlib.ExitStack() as stack:
        status: Any = None

        def progress(more: str) -> None:
            nonlocal status
            shown = f"{text}: {more}" if more else text
            if status is None:
                status = stack.enter_context(console.status(shown))
            else:
                status.update(shown)

        if not late:
            progress("")
        yield progress


def count_runs(progress: Progress | None, most: int | None = None) -> Callable[[], None]:
    """Returns what to call after each run, to say how many are done, of at most `most` where that is known."""
    counted = itertools.count(1)
    of_most = "" if most is None else f" of {most}"

    def count() -> None:
        done = next(counted)
        if progress is not None:
            progress(f"{done}{of_most} runs")

    return count
