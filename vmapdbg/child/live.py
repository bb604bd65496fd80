"""Captures schedules in the process that makes them. Used by `run --lint`, `bisect --reduce` and the pytest plugin."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from vmapdbg import __version__, model, overlay
from vmapdbg.child.record.lines import note_lines, set_internal_folders
from vmapdbg.child.record.observer import Observer
from vmapdbg.child.record.recorder import Recorder, ScheduleRecord
from vmapdbg.patches import patch_states

MOST_PROGRAMS = 256
"""How many rendered kernels are kept for the next schedule that has the same."""


def observe_with(observer: Observer) -> None:
    """Has the overlay, which is installed and has imported nothing of tinygrad yet, report to `observer`."""
    set_internal_folders(str(overlay.overlay_dir()), str(overlay.installed_folder()))
    overlay.get_state().observer = observer


def find_renderer(target: str) -> Any:
    """Returns the renderer of the target. tinygrad is imported here, when the scheduler asks and not before."""
    from vmapdbg.child.program.programs import make_renderer

    return make_renderer(target)


def build_capture(records: list[ScheduleRecord], target: str) -> model.Capture:
    """Returns what was recorded, its kernels rendered for `target`; the process stays as it was.

    Raises what tinygrad raises for a kernel that the target cannot have.
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
    states = patch_states(overlay.get_state().patches)
    return model.Capture(model.SCHEMA, versions, "", target, states, None, schedules, ())


class LineKeeper(Observer):
    """Listens to nothing, and has tinygrad note the user's lines: a block that records finds those of Tensors that were
    made before it."""

    def tensor_ready(self, module: ModuleType) -> None:
        note_lines(module)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Has the overlay report to a new recorder while the block runs, and yields it. Every UOp is let go at the end."""
    from tinygrad.engine.schedule import schedule_cache

    # a schedule that was made before would come from the cache, and nobody listened then
    schedule_cache.clear()
    state = overlay.get_state()
    recorder = Recorder()
    before, state.observer = state.observer, recorder
    try:
        yield recorder
    finally:
        state.observer = before
