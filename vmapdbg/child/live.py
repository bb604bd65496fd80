"""Captures schedules in the process that makes them. If that is not the child of a snippet, the process stays as it
was: what it prints, when its tensors are freed, the names of its kernels."""

import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vmapdbg import __version__
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.records import PassRecord, ScheduleRecord
from vmapdbg.child.listen.releases import schedule_module
from vmapdbg.install import overlay
from vmapdbg.install.job import Job
from vmapdbg.install.trees import find_version
from vmapdbg.model import capture as model

MOST_PROGRAMS = 256
"""How many rendered kernels are kept for the next schedule that has the same."""


def build_capture(
    snippet: str,
    target: str,
    patches: Mapping[str, bool] | None,
    schedules: tuple[model.Schedule, ...],
    error: model.SnippetError | None = None,
    missing: Sequence[str] = (),
) -> model.Capture:
    """Returns the capture of some schedules. `patches` are the states of the patches, None without the overlay."""
    tinygrad = _observed_version() if patches is None else overlay.TINYGRAD_VERSION
    versions = model.Versions(__version__, tinygrad, platform.python_version())
    what = (model.SCHEMA, versions, snippet, target, dict(patches or {}), error, schedules, ())
    mode = "observe" if patches is None else "overlay"
    return model.Capture(*what, mode=mode, missing=tuple(missing))


def _observed_version() -> str:
    """Returns the version that the files next to the imported tinygrad say; `none` without tinygrad."""
    file = getattr(sys.modules.get("tinygrad"), "__file__", None)
    return "none" if file is None else find_version(Path(file).resolve().parent.parent) or "unknown"


def build_live_capture(schedules: list[ScheduleRecord], target: str) -> model.Capture:
    """Returns the capture of some schedules of a process that stays as it was. Raises as `build_schedules`."""
    from vmapdbg.child.capture.schedule import build_schedules

    patches = None
    if overlay.is_installed():
        patches = Job("", target=target, patches=overlay.get_state().patches).patch_states
    with process_kept():
        return build_capture("", target, patches, build_schedules(schedules, target))


def is_ordered(passed: PassRecord) -> bool:
    """Whether the kernels of a run of the pass use memory in the order that its graph asks for."""
    from vmapdbg.child.capture.order import MemoryOrder
    from vmapdbg.child.capture.view import PassView

    order = MemoryOrder(PassView(passed))
    order.find()
    return not order.wrong_times and not order.overwrites


@contextmanager
def process_kept() -> Iterator[None]:
    """What is rendered in the block leaves the process as it was."""
    from tinygrad.codegen.opt.postrange import Scheduler
    from tinygrad.helpers import Context

    from vmapdbg.child.program.programs import forget_programs

    # up to 0.13 the name of a kernel has a number, which counts the kernels of the process
    counter: dict[str, int] = getattr(Scheduler, "kernel_cnt", {})
    counts = dict(counter)
    try:
        with Context(DEBUG=0, VIZ=0):
            yield
    finally:
        counter.clear()
        counter.update(counts)
        forget_programs(MOST_PROGRAMS)


@contextmanager
def recording(recorder: Recorder) -> Iterator[list[ScheduleRecord]]:
    """Records in this block alone. Yields the list of the block's schedules. At the end every UOp is let go."""
    # a schedule that was made before would come from the cache, and was not recorded then
    getattr(schedule_module(), "schedule_cache", {}).clear()
    recorder.forget()
    recorder.tally.clear()
    recorder.is_paused = False
    try:
        yield recorder.schedules
    finally:
        recorder.is_paused = True
        recorder.forget()
