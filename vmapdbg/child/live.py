"""Captures schedules in the process that makes them. Where that is not the child of a snippet, the process stays as it
was: for `run --lint`, `bisect --reduce` and the pytest plugin."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from types import ModuleType
from typing import Any

from vmapdbg import __version__
from vmapdbg.child.listen.overlay_recorder import PassRecord, Recorder, ScheduleRecord
from vmapdbg.child.listen.user_lines import note_lines, set_internal_folders
from vmapdbg.install import overlay
from vmapdbg.install.job import Job
from vmapdbg.install.observer import Observer
from vmapdbg.model import capture as model

MOST_PROGRAMS = 256
"""How many rendered kernels are kept for the next schedule that has the same."""


def observe_with(observer: Observer) -> None:
    """Has the overlay, which is installed and has imported nothing of tinygrad yet, report to `observer`."""
    set_internal_folders(str(overlay.overlay_dir()), str(overlay.installed_folder()))
    overlay.get_state().observer = observer


def find_renderer(target: str) -> Any:
    """Returns the renderer of the target. tinygrad is imported here, when the scheduler asks and not before."""
    from vmapdbg.child.listen.adapter import find_adapter

    return find_adapter().make_renderer(target)


@functools.cache
def installed_version() -> str:
    try:
        return version("tinygrad")
    except ImportError:
        return "none"


def build_capture(
    job: Job,
    records: list[ScheduleRecord],
    error: model.SnippetError | None = None,
    progress: Callable[[], object] = lambda: None,
    keeps_failed: bool = False,
    is_brief: bool = False,
    settled: Container[int] = frozenset(),
) -> model.Capture:
    """Returns what was recorded of a job, its kernels rendered for its target. `progress` is called for each kernel.

    Raises what tinygrad raises for a kernel that the target cannot have; with `keeps_failed` the kernel has it.
    `is_brief` is that of `View`, `settled` that of `extract.schedule.build_schedules`.
    """
    schedules: tuple[model.Schedule, ...] = ()
    # where there are none tinygrad may not even be there
    if records:
        from vmapdbg.child.capture.overlay import build_schedules

        schedules = build_schedules(records, job.target, progress, keeps_failed, is_brief, settled)
    versions = model.Versions(__version__, installed_version(), platform.python_version())
    return model.Capture(model.SCHEMA, versions, job.snippet, job.target, job.patch_states, error, schedules, ())


def build_live_capture(records: list[ScheduleRecord], target: str) -> model.Capture:
    """The same of a process with a life of its own, which stays as it was."""
    with process_kept():
        return build_capture(Job("", target=target, patches=overlay.get_state().patches), records)


def is_live_ordered(passed: PassRecord) -> bool:
    """Tells whether the kernels of a run of the pass use memory in the order that its graph asks for."""
    from vmapdbg.child.capture.order import find_order
    from vmapdbg.child.capture.overlay_view import PassView

    return find_order(PassView(passed)).is_right


@contextmanager
def process_kept() -> Iterator[None]:
    """What is rendered in the block leaves the process as it was."""
    from tinygrad.codegen.opt.postrange import Scheduler
    from tinygrad.helpers import Context

    from vmapdbg.child.program.programs import forget_programs

    # a kernel's name has a number, which counts those of the process: the program's own are to be as without us.
    # From 0.14 on it has none.
    counter: dict[str, int] = getattr(Scheduler, "kernel_cnt", {})
    counts = dict(counter)
    try:
        with Context(DEBUG=0, VIZ=0):
            yield
    finally:
        counter.clear()
        counter.update(counts)
        forget_programs(MOST_PROGRAMS)


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
