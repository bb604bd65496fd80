"""Captures schedules in the process that makes them. Used by `run --lint`, `bisect --reduce` and the pytest plugin."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vmapdbg import __version__, model, overlay
from vmapdbg.child.record.lines import set_internal_folders
from vmapdbg.child.record.recorder import Recorder, ScheduleRecord
from vmapdbg.patches import parse_patches, patch_states

MOST_PROGRAMS = 256
"""How many rendered kernels are kept for the next schedule that has the same."""


def observe_with(recorder: Recorder) -> None:
    """Has the overlay, which is installed and has imported nothing of tinygrad yet, report to `recorder`."""
    set_internal_folders(str(overlay.overlay_dir()), str(overlay.installed_folder()))
    sys.modules[f"{overlay.OVERLAY_PACKAGE}._state"].observer = recorder  # type: ignore[attr-defined]


def find_renderer(target: str) -> Any:
    """Returns the renderer of the target. tinygrad is imported here, when the scheduler asks and not before."""
    from vmapdbg.child.program.programs import make_renderer

    return make_renderer(target)


def build_capture(records: list[ScheduleRecord], target: str, patches: str) -> model.Capture:
    """Returns what was recorded, its kernels rendered for `target`; the process stays as it was.

    `patches` are those of the overlay, comma separated. Raises what tinygrad raises for a kernel that the target cannot
    have.
    """
    from tinygrad.codegen.opt.postrange import Scheduler
    from tinygrad.helpers import Context

    from vmapdbg.child.extract import build_schedules
    from vmapdbg.child.program.programs import forget_programs

    # a kernel's name has a number, which counts those of the process: the program's own are to be as without us
    counts = dict(Scheduler.kernel_cnt)
    try:
        with Context(DEBUG=0, VIZ=0):
            schedules = build_schedules(records, target)
    finally:
        Scheduler.kernel_cnt.clear()
        Scheduler.kernel_cnt.update(counts)
        forget_programs(MOST_PROGRAMS)
    versions = model.Versions(__version__, overlay.TINYGRAD_VERSION, platform.python_version())
    states = patch_states(parse_patches(patches or "none"))
    return model.Capture(model.SCHEMA, versions, "", target, states, None, schedules, ())


class LiveRecorder(Recorder):
    """A recorder that is deaf, except inside `recording`."""

    def __init__(self) -> None:
        super().__init__()
        self.listens = False

    @contextmanager
    def recording(self) -> Iterator[list[ScheduleRecord]]:
        """Yields the list that the schedules made inside go to."""
        from tinygrad.engine.schedule import schedule_cache

        # a schedule that was made before would come from the cache, and nobody listened then
        schedule_cache.clear()
        self.schedules = records = []
        self.listens = True
        try:
            yield records
        finally:
            self.listens = False
            self.forget()

    def forget(self) -> None:
        """Lets go of every UOp."""
        self.schedules, self._by_key, self._tagged, self._current = [], {}, [], None

    def __getattribute__(self, name: str) -> Any:
        if name in _REPORTS and not object.__getattribute__(self, "listens"):
            return _ignore
        return object.__getattribute__(self, name)


# what the overlay calls for each decision; `tensor_ready` comes once, when tinygrad is imported
_REPORTS = frozenset(
    {
        "schedule_asked",
        "uop_tagged",
        "pass_starts",
        "consumers_disagree",
        "ranges_end",
        "bufferize_made",
        "removal_tried",
        "buffer_stored",
        "schedule_created",
    }
)


def _ignore(*args: Any) -> None:
    pass
