"""The two ways to look at the tinygrad of a process: `overlay` with our patches, or `observe` as it is.

Each is a module with a MODE, for the child of a snippet, and a FEED, for a process with a life of its own. Only the
one that is asked for is imported.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from vmapdbg.child.failures.known_nodes import KnownNodes
from vmapdbg.child.listen.recording import Asked
from vmapdbg.install.job import Request
from vmapdbg.model import capture as model

if TYPE_CHECKING:
    from vmapdbg.child.evidence.collector import Collector
    from vmapdbg.child.failures.shadow import Shadow
    from vmapdbg.child.listen.times import Stopwatch


class Mode(ABC):
    """How a request's snippet is looked at. It is set up before tinygrad is imported, and ends in a Capture."""

    EXTRACT: ClassVar[str]
    """The module that makes a Capture of what was recorded."""

    def __init__(self, request: Request):
        self.request, self.job = request, request.job
        # where `check` has evidence kept: it brings numpy along, which nobody else here has to wait for
        self.collector: Collector | None = None
        self.stopwatch: Stopwatch | None = None
        if self.job.times:
            from vmapdbg.child.listen.times import Stopwatch

            self.stopwatch = Stopwatch()
        self.shadow: Shadow | None = None
        # whether an oracle may work beside the snippet, which says what it needs of the evidence
        self.is_judged = False

    @property
    def is_brief(self) -> bool:
        """Whether the Capture has no more than `check` says, which waits for it; see `View`."""
        return self.request.evidence is not None

    @property
    @abstractmethod
    def schedules(self) -> Sequence[Asked[Any]]:
        """What the snippet scheduled so far."""

    @abstractmethod
    def prepare(self) -> None:
        """Sets it up, importing nothing of tinygrad: the snippet may set its environment. Raises OverlayError where
        this tinygrad cannot be looked at so."""

    @abstractmethod
    def find_nodes(self) -> KnownNodes:
        """Returns what is known of the nodes of the last schedule."""

    @abstractmethod
    def build(self, error: model.SnippetError | None, progress: Callable[[], object]) -> model.Capture:
        """Returns what was recorded, and lets go of what no Capture needs. Calls `progress` after each kernel."""

    def find_settled(self) -> frozenset[int]:
        """Returns the numbers of the schedules of which nothing is to be told: the oracle says that they are right."""
        if self.collector is None or self.collector.late is None:
            return frozenset()
        return self.collector.late.find_settled()

    def pack_late(self) -> None:
        """Packs what was left for later, where there is no later."""
        if self.collector is not None and self.collector.late is not None:
            self.collector.late.pack_all()

    def watch_values(self, collector: Collector, tensor_module: ModuleType) -> None:
        """Has the collector keep evidence, once tinygrad is imported. Raises UnknownShape."""
        collector.watch(tensor_module)
        if self.is_judged:
            collector.wait_for_oracle()

    def watch_launches(self, tensor_module: ModuleType) -> None:
        """Has launches timed, and a copy of the process made before they run, where that is asked for, once tinygrad is
        imported. Raises UnknownShape."""
        if self.stopwatch is not None:
            self.stopwatch.watch()
        if self.shadow is not None:
            self.shadow.watch(tensor_module)

    def add_times(self, capture: model.Capture) -> model.Capture:
        """Returns the capture with what was timed."""
        if self.stopwatch is None:
            return capture
        return self.stopwatch.fill(capture)

    def close(self) -> None:
        """The snippet is done."""
        if self.collector is not None:
            if self.schedules:
                # meanwhile the oracle compares the last of them, which is waited for
                importlib.import_module(self.EXTRACT)
            self.collector.close()
        if self.shadow is not None:
            self.shadow.stop()


def choose_mode(request: Request) -> Mode:
    return load_mode(observes=request.job.patches is None).MODE(request)


def load_mode(observes: bool) -> Any:
    """Returns the module of a mode."""
    name = "observe" if observes else "overlay"
    return importlib.import_module(f"vmapdbg.child.mode_{name}")
