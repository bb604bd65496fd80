"""The two ways to look at the tinygrad that a snippet imports: with the overlay and its patches, or observed as it is.

Both are set up before tinygrad is imported, and end in a Capture. Runs in the child.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from vmapdbg import overlay
from vmapdbg.child.extract.choices import make_choices
from vmapdbg.child.live import build_capture, find_renderer
from vmapdbg.child.live_observed import build_observed_capture
from vmapdbg.child.record.lines import set_internal_folders
from vmapdbg.child.record.observe import ObservingRecorder, start
from vmapdbg.child.record.outputs import note_values
from vmapdbg.child.record.recorder import Recorder
from vmapdbg.job.job import Request
from vmapdbg.job.patches import format_patches
from vmapdbg.model import capture as model

if TYPE_CHECKING:
    from vmapdbg.child.evidence.collector import Collector
    from vmapdbg.child.evidence.observed import ObservedCollector


class Mode(Protocol):
    """How a request's snippet is looked at."""

    def prepare(self) -> None:
        """Sets it up, importing nothing of tinygrad: the snippet may set its environment. Raises OverlayError where
        this tinygrad cannot be looked at so."""
        ...

    def count_kernels(self) -> int:
        """How many kernels there are to be rendered."""
        ...

    def build(self, error: model.SnippetError | None, progress: Callable[[], object]) -> model.Capture:
        """Returns what was recorded, and lets go of what no Capture needs. Calls `progress` after each kernel."""
        ...

    def close(self) -> None:
        """The snippet is done."""
        ...


def choose_mode(request: Request) -> Mode:
    if request.job.patches is None:
        return ObserveMode(request)
    return OverlayMode(request)


class OverlayMode:
    """tinygrad 0.12.0 with the overlay: its pass reports what it decides."""

    def __init__(self, request: Request):
        self.job = request.job
        self.recorder = Recorder(self.job.values)
        self.collector: Collector | None = None
        if request.evidence is not None:
            # it brings numpy along, which nobody else here has to wait for
            from vmapdbg.child.evidence.collector import Collector

            self.collector = Collector(Path(request.evidence), self.recorder)
            self.recorder.watch = self.collector.watch

    def prepare(self) -> None:
        assert self.job.patches is not None
        overlay.check_installed()
        set_internal_folders(str(overlay.overlay_dir()), str(overlay.installed_folder()))
        overlay.install(format_patches(self.job.patches))
        state = overlay.get_state()
        state.observer = self.recorder
        state.find_renderer = functools.partial(find_renderer, self.job.target)

    def count_kernels(self) -> int:
        records = self.recorder.schedules
        passes = {id(record.passed): record.passed for record in records if record.passed is not None}
        return sum(len(passed.kernels) for passed in passes.values())

    def build(self, error: model.SnippetError | None, progress: Callable[[], object]) -> model.Capture:
        return build_capture(self.job, self.recorder.schedules, error, progress)

    def close(self) -> None:
        if self.collector is not None:
            self.collector.close()


class ObserveMode:
    """Any tinygrad, nothing of it replaced: its own deciding code is listened to."""

    def __init__(self, request: Request):
        self.request, self.job = request, request.job
        self.recorder: ObservingRecorder | None = None
        self.collector: ObservedCollector | None = None

    def prepare(self) -> None:
        # what reads the values wraps `Tensor.realize` with a helper of the overlay's
        set_internal_folders(str(overlay.overlay_dir()))
        recorder = ObservingRecorder(functools.partial(make_choices, self.job.choices))
        self.recorder = start(self.tensor_ready, recorder)

    def tensor_ready(self, module: ModuleType) -> None:
        recorder = self.recorder
        if recorder is None:
            return
        if self.request.evidence is not None:
            self.collect(module, recorder, Path(self.request.evidence))
        if not self.job.values:
            return
        try:
            note_values(module, lambda: len(recorder.schedules), lambda o: recorder.schedules[-1].outputs.append(o))
        except ImportError as unknown:
            recorder.lost.append(f"values of realized tensors: {unknown}")

    def collect(self, module: ModuleType, recorder: ObservingRecorder, folder: Path) -> None:
        """Has what `check` compares kept in a folder."""
        from vmapdbg.child.evidence.observed import ObservedCollector

        try:
            collector = ObservedCollector(folder, recorder)
            collector.watch(module)
            self.collector = collector
        except ImportError as unknown:
            recorder.lost.append(f"the values that check compares: {unknown}")

    def count_kernels(self) -> int:
        schedules = [] if self.recorder is None else self.recorder.schedules
        passes = {id(schedule.passed): schedule.passed for schedule in schedules if schedule.passed is not None}
        return sum(len(passed.kernels) for passed in passes.values())

    def build(self, error: model.SnippetError | None, progress: Callable[[], object]) -> model.Capture:
        assert self.recorder is not None
        capture = build_observed_capture(self.job, self.recorder, error, progress)
        versions = replace(capture.versions, tree=self.job.tree, commit=self.request.commit)
        return replace(capture, versions=versions)

    def close(self) -> None:
        if self.collector is not None:
            self.collector.close()


def schedule_lazy(values: Sequence[Any], realize: bool) -> None:
    """Schedules, and does not run unless `realize`, the Tensors that no other one of them is made from."""
    from tinygrad.tensor import Tensor

    from vmapdbg.child.adapters import find_adapter

    adapter = find_adapter()
    tensors = list(dict.fromkeys(find_tensors(values, Tensor)))
    lazy = [t for t in tensors if not adapter.is_settled(t) and not t.uop.ranges]
    inner = {u for t in lazy for u in t.uop.base.toposort() if u is not t.uop.base}
    ends = [t for t in lazy if t.uop.base not in inner]
    if ends and realize:
        ends[0].realize(*ends[1:])
    elif ends:
        adapter.schedule(ends)


def find_tensors(values: Sequence[Any], kind: type) -> list[Any]:
    """Returns the Tensors among some values, and those in lists, tuples and dicts of them."""
    found = []
    for value in values:
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += find_tensors(value, kind)
        elif type(value) is dict:
            found += find_tensors(list(value.values()), kind)
    return found
