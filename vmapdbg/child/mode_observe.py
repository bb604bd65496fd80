"""Any tinygrad, nothing of it replaced: its own deciding code is listened to. Runs in the child."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from vmapdbg.child.capture.choices import make_choices
from vmapdbg.child.failures.known_nodes import KnownNodes, read_observed_nodes
from vmapdbg.child.feed import Feed
from vmapdbg.child.listen.hooks import start
from vmapdbg.child.listen.outputs import note_values
from vmapdbg.child.listen.recorder import ObservingRecorder
from vmapdbg.child.listen.records import ObservedSchedule
from vmapdbg.child.listen.user_lines import set_internal_folders
from vmapdbg.child.live_observed import build_live_observed, build_observed_capture, is_observed_ordered
from vmapdbg.child.mode import Mode
from vmapdbg.install import overlay
from vmapdbg.install.job import Request
from vmapdbg.model import capture as model

if TYPE_CHECKING:
    from vmapdbg.child.evidence.observed import ObservedCollector


class ObserveMode(Mode):
    """Runs a snippet, and makes the choices of its job."""

    EXTRACT = "vmapdbg.child.capture.observed"

    def __init__(self, request: Request):
        super().__init__(request)
        self.recorder = ObservingRecorder(functools.partial(make_choices, self.job.choices))
        # what is made to collect, None: an ObservedCollector
        self.collector_kind: type[ObservedCollector] | None = None

    @property
    def schedules(self) -> list[ObservedSchedule]:
        return self.recorder.schedules

    def prepare(self) -> None:
        # what reads the values wraps `Tensor.realize` with a helper of the overlay's
        set_internal_folders(str(overlay.overlay_dir()))
        start(self.tensor_ready, self.recorder)

    def tensor_ready(self, module: ModuleType) -> None:
        if self.request.evidence is not None:
            self.collect(module, Path(self.request.evidence))
        if self.job.values:
            self.note_values(module)
        try:
            self.watch_launches(module)
        except ImportError as unknown:
            self.recorder.lost.append(f"launches: {unknown}")

    def collect(self, module: ModuleType, folder: Path) -> None:
        """Has what `check` compares kept in a folder."""
        from vmapdbg.child.evidence.observed import ObservedCollector

        try:
            collector = (self.collector_kind or ObservedCollector)(folder, self.recorder)
            self.watch_values(collector, module)
            self.collector = collector
        except ImportError as unknown:
            self.recorder.lost.append(f"the values that check compares: {unknown}")

    def note_values(self, module: ModuleType) -> None:
        """Has the values of realized tensors kept with their schedules."""
        recorder = self.recorder
        try:
            note_values(module, lambda: len(recorder.schedules), lambda o: recorder.schedules[-1].outputs.append(o))
        except ImportError as unknown:
            recorder.lost.append(f"values of realized tensors: {unknown}")

    def find_nodes(self) -> KnownNodes:
        return read_observed_nodes(self.recorder)

    def build(self, error: model.SnippetError | None, progress: Callable[[], object]) -> model.Capture:
        capture = build_observed_capture(self.job, self.recorder, error, progress, self.is_brief, self.find_settled())
        versions = replace(capture.versions, tree=self.job.tree, commit=self.request.commit)
        return replace(capture, versions=versions)


class ObservedFeed(Feed, ObservingRecorder):
    """Has the schedules from tinygrad as it is."""

    build, is_ordered = staticmethod(build_live_observed), staticmethod(is_observed_ordered)

    def start(self) -> None:
        start(recorder=self)


MODE, FEED = ObserveMode, ObservedFeed
