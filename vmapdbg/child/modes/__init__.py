"""The two ways to look at the tinygrad of a process: `overlay` with our patches, or `observe` as it is.

Each is a module with a MODE, for the child of a snippet, and a FEED, for a process with a life of its own. Only the
one that is asked for is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from vmapdbg.child.diagnosis.known_nodes import KnownNodes
from vmapdbg.child.record.recording import Asked
from vmapdbg.job.job import Request
from vmapdbg.model import capture as model


class Mode(Protocol):
    """How a request's snippet is looked at. It is set up before tinygrad is imported, and ends in a Capture."""

    @property
    def schedules(self) -> Sequence[Asked[Any]]:
        """What the snippet scheduled so far."""
        ...

    def prepare(self) -> None:
        """Sets it up, importing nothing of tinygrad: the snippet may set its environment. Raises OverlayError where
        this tinygrad cannot be looked at so."""
        ...

    def find_nodes(self) -> KnownNodes:
        """Returns what is known of the nodes of the last schedule."""
        ...

    def build(self, error: model.SnippetError | None, progress: Callable[[], object]) -> model.Capture:
        """Returns what was recorded, and lets go of what no Capture needs. Calls `progress` after each kernel."""
        ...

    def close(self) -> None:
        """The snippet is done."""
        ...


def choose_mode(request: Request) -> Mode:
    return load_mode(observes=request.job.patches is None).MODE(request)


def load_mode(observes: bool) -> Any:
    """Returns the module of a mode."""
    name = "observe" if observes else "overlay"
    return importlib.import_module(f"{__name__}.{name}")
