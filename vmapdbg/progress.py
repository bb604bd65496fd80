"""Says on stderr how far long work is, where stderr is a terminal. Nothing of it is left when the work is done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def show_progress(text: str) -> Iterator[Callable[[str], None]]:
    """Shows `text` while the block runs. The block gets a function that changes what is shown."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False)
    with console.status(text) as status:
        yield lambda more: status.update(f"{text}: {more}" if more else text)
