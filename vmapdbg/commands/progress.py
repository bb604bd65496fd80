"""Says on stderr how far long work is, where stderr is a terminal. Nothing of it is left when the work is done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

Told = Callable[[str], object]


@contextlib.contextmanager
def show_progress(text: str) -> Iterator[Told]:
    """Shows `text` while the block runs. The block gets a function that changes what is shown."""
    with show_late_progress(text) as told:
        if told is not None:
            told("")
        yield told or (lambda _: None)


@contextlib.contextmanager
def show_late_progress(text: str) -> Iterator[Told | None]:
    """Shows `text` from when the block first says how far it is: before that a snippet has the terminal to itself. The
    block gets None where nothing is shown."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False)
    with contextlib.ExitStack() as stack:
        status: Any = None

        def tell(more: str) -> None:
            nonlocal status
            shown = f"{text}: {more}" if more else text
            if status is None:
                status = stack.enter_context(console.status(shown))
            else:
                status.update(shown)

        yield tell
