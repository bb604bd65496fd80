"""tinygrad 0.12.0 with the overlay: its pass reports what it decides. Runs in the child."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from vmapdbg.child.failures.known_nodes import KnownNodes, read_overlay_nodes
from vmapdbg.child.feed import Feed
from vmapdbg.child.listen.overlay_recorder import Recorder, ScheduleRecord
from vmapdbg.child.live import build_capture, build_live_capture, find_renderer, is_live_ordered, observe_with
from vmapdbg.child.mode import Mode
from vmapdbg.install import overlay
from vmapdbg.install.job import Request
from vmapdbg.install.patches import format_patches
from vmapdbg.model import capture as model


class OverlayMode(Mode):
    """Runs a snippet with the patches of its job."""

    EXTRACT = "vmapdbg.child.capture.overlay"

    def __init__(self, request: Request):
        super().__init__(request)
        self.recorder = Recorder(self.job.values)
        if request.evidence is not None:
            from vmapdbg.child.evidence.overlay import OverlayCollector

            self.collector = OverlayCollector(Path(request.evidence), self.recorder)
        self.recorder.watch = self.tensor_ready

    @property
    def schedules(self) -> list[ScheduleRecord]:
        return self.recorder.schedules

    def prepare(self) -> None:
        assert self.job.patches is not None
        overlay.check_installed()
        overlay.install(format_patches(self.job.patches))
        observe_with(self.recorder)
        overlay.get_state().find_renderer = functools.partial(find_renderer, self.job.target)

    def tensor_ready(self, module: ModuleType) -> None:
        if self.collector is not None:
            self.watch_values(self.collector, module)
        self.watch_launches(module)

    def add_times(self, capture: model.Capture) -> model.Capture:
        timed = super().add_times(capture)
        if self.stopwatch is None:
            return timed
        from vmapdbg.child.listen.predictions import add_predictions

        return add_predictions(timed, self.schedules)

    def find_nodes(self) -> KnownNodes:
        return read_overlay_nodes(self.recorder)

    def build(self, error: model.SnippetError | None, progress: Callable[[], object]) -> model.Capture:
        return build_capture(
            self.job,
            self.schedules,
            error,
            progress,
            keeps_failed=True,
            is_brief=self.is_brief,
            settled=self.find_settled(),
        )


class OverlayFeed(Feed, Recorder):
    """Has the schedules from the overlay, which is installed already."""

    build, is_ordered = staticmethod(build_live_capture), staticmethod(is_live_ordered)

    def start(self) -> None:
        observe_with(self)


MODE, FEED = OverlayMode, OverlayFeed
