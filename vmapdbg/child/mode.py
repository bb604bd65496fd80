"""How the child runs a snippet: with tinygrad as it is, or with the overlay and the patches of the job."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from vmapdbg.child.failures.diagnose import KnownNodes, read_nodes
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.records import PassRecord, ScheduleRecord
from vmapdbg.child.listen.rendering import make_renderer
from vmapdbg.child.listen.values_and_times import Stopwatch, note_values
from vmapdbg.child.live import build_capture, listen
from vmapdbg.install import overlay
from vmapdbg.install.job import Request
from vmapdbg.install.patches import format_patches
from vmapdbg.model import capture as model

if TYPE_CHECKING:
    from vmapdbg.child.evidence.collector import Collector
    from vmapdbg.child.failures.snippet_end import Shadow


class Mode:
    """Is set up before tinygrad is imported, and ends in a Capture."""

    def __init__(self, request: Request):
        self.request, self.job = request, request.job
        self.recorder = Recorder()
        self.recorder.is_strict = self.job.patches is not None
        if self.job.choices:
            self.recorder.choose = self._choose
        # only for `check`: it imports numpy, which takes time
        self.collector: Collector | None = None
        # the class of the collector, None: Collector
        self.collector_kind: type[Collector] | None = None
        self.stopwatch: Stopwatch | None = None
        if self.job.times:
            self.stopwatch = Stopwatch()
        self.shadow: Shadow | None = None

    @property
    def schedules(self) -> list[ScheduleRecord]:
        """What the snippet scheduled so far."""
        return self.recorder.schedules

    def prepare(self) -> None:
        """Sets the mode up, importing nothing of tinygrad: the snippet may set its environment. Raises OverlayError if
        the overlay does not fit the installed tinygrad."""
        if self.job.patches is not None:
            overlay.check_installed()
            overlay.install(format_patches(self.job.patches))
            # the patches of fusion decide by the limits of the target
            overlay.get_state().find_renderer = functools.partial(make_renderer, self.job.target)
        listen(self.recorder, self.tensor_ready)

    def tensor_ready(self, module: ModuleType) -> None:
        """Hooks the rest in, once `tinygrad.tensor` is imported. A hook that does not fit an observed tinygrad is left
        out."""
        if self.request.evidence is not None:
            from vmapdbg.child.evidence.collector import Collector

            with self.recorder.leaving_out("the values that check compares"):
                collector = (self.collector_kind or Collector)(Path(self.request.evidence), self.recorder)
                collector.watch(module)
                self.collector = collector
        if self.job.values:
            with self.recorder.leaving_out("values of realized tensors"):
                note_values(module, self.recorder)
        with self.recorder.leaving_out("launches"):
            if self.stopwatch is not None:
                self.stopwatch.watch()
            if self.shadow is not None:
                self.shadow.watch(module)

    def find_nodes(self) -> KnownNodes:
        """Returns what is known of the nodes of the last schedule."""
        return read_nodes(self.recorder)

    def build(self, error: model.SnippetError | None, progress: Callable[[], object]) -> model.Capture:
        """Returns what was recorded, and lets go of what no Capture needs. Calls `progress` after each kernel."""
        job, recorder = self.job, self.recorder
        capture = build_capture(
            job.snippet,
            job.target,
            None if job.patches is None else job.patch_states,
            recorder.schedules,
            error,
            recorder.missing,
            progress,
            keeps_failed=True,
            # `check` waits for it
            is_brief=self.request.evidence is not None,
        )
        if job.patches is not None:
            return capture
        return replace(capture, versions=replace(capture.versions, tree=job.tree, commit=self.request.commit))

    def add_times(self, capture: model.Capture) -> model.Capture:
        """Returns the capture with the measured times, and with the times that the overlay predicts."""
        if self.stopwatch is None:
            return capture
        return self.stopwatch.add_times(capture, [] if self.job.patches is None else self.schedules)

    def _choose(self, passed: PassRecord, schedule: int) -> str | None:
        from vmapdbg.child.capture.schedule import make_choices

        return make_choices(self.job.choices, passed, schedule)

    def close(self) -> None:
        """The snippet is done."""
        if self.collector is not None:
            if self.schedules:
                # meanwhile the oracle compares the last of them, which is waited for
                importlib.import_module("vmapdbg.child.capture.schedule")
            self.collector.close()
        if self.shadow is not None:
            self.shadow.stop()
