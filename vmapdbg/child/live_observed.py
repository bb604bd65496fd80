"""A Capture of what was observed of stock tinygrad, of any release. Runs in the child."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from vmapdbg import __version__
from vmapdbg.child.listen.recorder import ObservingRecorder
from vmapdbg.child.listen.records import ObservedPass, ObservedSchedule, UOp
from vmapdbg.child.live import process_kept
from vmapdbg.install.job import Job
from vmapdbg.install.tree import find_version
from vmapdbg.model import capture as model


def build_observed_capture(
    job: Job,
    recorder: ObservingRecorder,
    error: model.SnippetError | None = None,
    progress: Callable[[], object] = lambda: None,
    is_brief: bool = False,
    settled: Container[int] = frozenset(),
) -> model.Capture:
    """Returns what was observed of a job, its kernels rendered for its target. `progress` is called for each kernel.

    Raises RendererMissing. What tinygrad raises for a kernel that the target cannot have, the kernel has.
    `is_brief` is that of `View`, `settled` that of `extract.schedule.build_schedules`.
    """
    schedules: tuple[model.Schedule, ...] = ()
    missing = recorder.lost
    # where there are none tinygrad may not even be there
    if recorder.schedules:
        from vmapdbg.child.capture.observed import build_schedules

        schedules = build_schedules(
            recorder.schedules, job.target, progress, keeps_failed=True, is_brief=is_brief, settled=settled
        )
        missing = recorder.missing
    return _make_capture(job.snippet, job.target, schedules, error, tuple(missing))


def build_live_observed(schedules: list[ObservedSchedule], target: str) -> model.Capture:
    """The same of some schedules of a process with a life of its own, which stays as it was."""
    from vmapdbg.child.capture.observed import build_schedules

    with process_kept():
        return _make_capture("", target, build_schedules(schedules, target))


def is_observed_ordered(passed: ObservedPass) -> bool:
    """Tells whether the kernels of a run of the pass use memory in the order that its graph asks for."""
    from vmapdbg.child.capture.observed_view import ObservedView
    from vmapdbg.child.capture.order import find_order

    return find_order(ObservedView(passed)).is_right


def _make_capture(
    snippet: str,
    target: str,
    schedules: tuple[model.Schedule, ...],
    error: model.SnippetError | None = None,
    missing: tuple[str, ...] = (),
) -> model.Capture:
    versions = model.Versions(__version__, observed_version(), platform.python_version())
    what = (model.SCHEMA, versions, snippet, target, {}, error, schedules, ())
    return model.Capture(*what, mode="observe", missing=missing)


class BlockObserver(ObservingRecorder):
    """Observes only in blocks, and outside of them keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.is_on = False

    def schedule_asked(self, key: bytes, cached: bool) -> None:
        if self.is_on:
            super().schedule_asked(key, cached)

    def pass_starts(self, tsink: UOp) -> None:
        if self.is_on:
            super().pass_starts(tsink)

    @contextmanager
    def recording(self) -> Iterator[list[ObservedSchedule]]:
        """Yields the list that the schedules of the block come into. Every UOp is let go at the end."""
        # a schedule that was made before would come from the cache, and nobody observed then
        self.adapter.forget_schedules()
        self.forget()
        self.is_on = True
        try:
            yield self.schedules
        finally:
            self.is_on = False
            self.forget()


def observed_version() -> str:
    """Returns the version of the tinygrad that is imported, by what lies beside it; `none` where none is imported."""
    module = sys.modules.get("tinygrad")
    if module is None or module.__file__ is None:
        return "none"
    return find_version(Path(module.__file__).resolve().parent.parent) or "unknown"
