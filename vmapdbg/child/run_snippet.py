"""The child: runs the snippet as `__main__`, with or without the overlay and the patches of the job, and writes a
Capture. `shared/children.py` starts it as `python -m vmapdbg.child.run_snippet REQUEST`."""

import contextlib
import functools
import gc
import os
import shutil
import sys
import types
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmapdbg.child.device import find_device
from vmapdbg.child.edited import read_snippet
from vmapdbg.child.failures.diagnose import read_nodes
from vmapdbg.child.failures.endless import Watcher
from vmapdbg.child.failures.snippet_end import Shadow, explain_exit, report_error
from vmapdbg.child.listen import hooks
from vmapdbg.child.listen.allocations import Allocations
from vmapdbg.child.listen.guard import leaving_out
from vmapdbg.child.listen.launches import list_arguments
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.records import find_passes
from vmapdbg.child.listen.releases import is_computed, schedule_tensors
from vmapdbg.child.listen.rendering import make_renderer
from vmapdbg.child.listen.values_and_times import SEED, fix_seeds, hold_beam, note_values
from vmapdbg.child.live import build_capture
from vmapdbg.install import overlay
from vmapdbg.install.job import TUNED, Request, load_request
from vmapdbg.install.patches import format_patches
from vmapdbg.install.system import hold
from vmapdbg.model import capture as model
from vmapdbg.model.store import dump_compact, write_atomically

if TYPE_CHECKING:
    from vmapdbg.child.evidence.collector import Collector
    from vmapdbg.child.listen import times


class Mode:
    """Is set up before tinygrad is imported, and ends in a Capture."""

    def __init__(self, request: Request):
        self.request, self.job = request, request.job
        self.recorder = Recorder()
        self.recorder.is_strict = self.job.patches is not None
        if self.job.choices:
            from vmapdbg.child.capture.schedule import make_choices

            self.recorder.choose = functools.partial(make_choices, self.job.choices)
        self.collector: Collector | None = None  # only for `check`: it imports numpy, which takes time
        self.collector_kind: type[Collector] | None = None  # the class of the collector, None: Collector
        self.stopwatch: times.Stopwatch | None = None
        if self.job.times:
            from vmapdbg.child.listen.times import Stopwatch  # only for timed runs: it imports statistics

            self.stopwatch = Stopwatch(repeats=self.job.measured == TUNED)
        self.shadow: Shadow | None = None
        self.allocations: Allocations | None = None

    def prepare(self) -> None:
        """Sets the mode up without tinygrad, because the snippet may set its environment. Raises OverlayError."""
        if self.job.patches is not None:
            overlay.check_installed()
            overlay.install(format_patches(self.job.patches))
            # the patches of fusion decide by the limits of the target
            overlay.get_state().find_renderer = functools.partial(make_renderer, self.job.target)
        is_measured = self.job.measured == "memory"
        if is_measured or self.job.memory:
            self.allocations = Allocations(None if is_measured else self.recorder)
        hooks.start(self.recorder, self.tensor_ready, records=not is_measured)
        if self.job.is_compared:
            fix_seeds()

    def tensor_ready(self, module: types.ModuleType) -> None:
        """Hooks the rest in, once `tinygrad.tensor` is imported, but for hooks that do not fit an observed tinygrad."""
        if self.request.evidence is not None:
            from vmapdbg.child.evidence.collector import Collector

            with self.recorder.leaving_out("the values that check compares"):
                kind = self.collector_kind or Collector
                collector = kind(Path(self.request.evidence), self.recorder, self.job.gradients)
                collector.watch(module)
                self.collector = collector
        if self.job.is_compared:
            module.Tensor.manual_seed(SEED)  # tinygrad's own seed is the time
        if self.job.measured:
            hold_beam()
        if self.allocations is not None:
            with self.recorder.leaving_out("the peak of the memory"):
                self.allocations.watch(module)
        if self.job.values:
            with self.recorder.leaving_out("values of realized tensors"):
                note_values(module, self.recorder)
        with self.recorder.leaving_out("launches"):
            if self.stopwatch is not None:
                self.stopwatch.watch(module)
            if self.shadow is not None:
                self.shadow.watch(module)

    def build(self, error: model.SnippetError | None) -> model.Capture:
        """Returns what was recorded, and lets go of what no Capture needs."""
        job, recorder = self.job, self.recorder
        built: tuple[model.Schedule, ...] = ()
        # without schedules tinygrad may be missing
        if recorder.schedules:
            from vmapdbg.child.capture.schedule import build_schedules

            is_brief = self.request.evidence is not None  # `check` waits for it
            built = build_schedules(recorder.schedules, job.target, keeps_failed=True, is_brief=is_brief)
        patches = None if job.patches is None else job.patch_states
        capture = build_capture(job.snippet, job.target, patches, built, error, recorder.missing)
        versions = replace(capture.versions, tree=job.tree, commit=self.request.commit)
        account = recorder.tally.settle()
        if not built:
            account = replace(account, compared={})
        capture = replace(capture, versions=versions, account=account, functions=tuple(recorder.lines.functions))
        if self.allocations is None:
            return capture
        if recorder.schedules:
            from vmapdbg.child.capture.memory import MemoryBuilder

            with leaving_out("what the memory holds"):
                capture = MemoryBuilder(self.allocations, recorder.schedules, built).add_memory(capture)
        return replace(capture, peak_bytes=self.allocations.peak)

    def close(self) -> None:
        """The snippet is done."""
        if self.collector is not None:
            with leaving_out("evidence for check"):
                self.collector.close()
        if self.shadow is not None:
            self.shadow.stop()


def main() -> None:
    request = load_request(Request, sys.argv[1])
    hold(request.lifeline)
    mode = Mode(request)
    watcher = Watcher()
    watcher.start()

    def report(where: str) -> None:
        # the process died: the tool says how, in front of `where`
        line = next((asked.line for asked in reversed(mode.recorder.schedules)), None)
        write_capture(request, mode, model.SnippetError(model.DIED, where, line))

    if request.shadow:
        mode.shadow = Shadow(request.job.target, request.shadow_id, report)
    error = run_in(mode, request)
    write_capture(request, mode, error)
    watcher.stop()
    drop_destructor()


def run_in(mode: Mode, request: Request) -> model.SnippetError | None:
    """Sets the mode up, runs the snippet in it and ends it. Returns the snippet's error, None if it ended well."""
    try:
        mode.prepare()
    except overlay.OverlayError as refused:
        error = model.SnippetError("OverlayError", str(refused), None)
    else:
        fall_back_to_python_device()
        if mode.stopwatch is not None:
            mode.stopwatch.start(request.job.beam, request.job.searched)
        error = run_snippet(request, mode.recorder)
        if mode.stopwatch is not None:
            mode.stopwatch.stop()
    mode.close()
    # the snippet may have closed its stdout, or removed it
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sys.stdout.flush()
    return error


def write_capture(request: Request, mode: Mode, error: model.SnippetError | None) -> None:
    """Writes the capture; `error` says how the snippet ended."""
    # the records keep every UOp alive: collecting garbage would walk them all again and again, and find none
    gc.disable()
    gc.freeze()
    kernels = sum(len(passed.kernels) for passed in find_passes(mode.recorder.schedules))
    write_atomically(request.progress, f"{kernels:,} kernels")
    capture = mode.build(error)
    if mode.stopwatch is not None:
        capture = mode.stopwatch.add_times(capture)
        mode.recorder.is_paused = True
        with leaving_out("what the device reaches"):
            capture = replace(capture, device=find_device(mode.stopwatch))
    write_atomically(request.output, dump_compact(capture))


def drop_destructor() -> None:
    """Removes Tensor's destructor: after Python has emptied tinygrad's modules, it fails with lines on stderr."""
    tensor = getattr(sys.modules.get("tinygrad.tensor"), "Tensor", None)
    if tensor is not None and "__del__" in vars(tensor):
        del tensor.__del__


# they name a device for tinygrad: see DEV in its documentation of the environment
DEVICE_VARIABLES = ("DEV", "METAL", "AMD", "NV", "CUDA", "QCOM", "CL", "CPU", "DSP", "WEBGPU", "PYTHON", "NULL")


def fall_back_to_python_device() -> None:
    """Uses the PYTHON device in place of the CPU device if there is no clang, and says so."""
    chosen = any(os.environ.get(name, "0") not in ("", "0") for name in DEVICE_VARIABLES)
    compiler = shutil.which(os.environ.get("CC", "clang"))
    if chosen or compiler is not None or os.environ.get("CPU_LLVM", "0") not in ("", "0"):
        return
    if any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd")) or sys.platform == "darwin":
        return
    os.environ["DEV"] = "PYTHON"
    print("vmapdbg: no clang for the CPU device, running on the PYTHON device (slow)", file=sys.stderr)


def run_snippet(request: Request, recorder: Recorder) -> model.SnippetError | None:
    """Runs the snippet (its error goes to stderr), then schedules what it left lazy, and runs that for `check`."""
    job = request.job
    main_module = types.ModuleType("__main__")
    main_module.__file__ = job.snippet
    main_module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main_module
    sys.argv = [job.typed or job.snippet, *job.arguments]
    # as Python does, but behind the request's tree if the folder has another tinygrad
    sys.path.insert(0, str(job.folder))
    if request.tinygrad and (job.folder / "tinygrad").is_dir():
        sys.path.insert(0, request.tinygrad)
    depth = sys.getrecursionlimit()
    try:
        code = compile(read_snippet(job.snippet, job.edits), job.snippet, "exec")
        try:
            exec(code, main_module.__dict__)
        finally:
            sys.setrecursionlimit(max(depth, sys.getrecursionlimit()))  # what follows is no part of the program
            overlay.tinygrad_finder().listener.restore_modules()
        if "tinygrad" in sys.modules:
            # a program that runs something has its own peak
            is_idle = job.memory and not recorder.tally.seen["launches"]
            realize = request.evidence is not None or job.times or is_idle
            schedule_lazy(list(main_module.__dict__.values()), realize, recorder.missing)
    except SystemExit as ended:
        return explain_exit(ended)
    except overlay.OverlayError as refused:
        return model.SnippetError("OverlayError", str(refused), None)
    except BaseException as error:
        # its own methods may fail
        with leaving_out("the snippet's error"):
            return report_error(error, read_nodes(recorder))
        return model.SnippetError(type(error).__name__, "", None)
    return None


def schedule_lazy(values: Sequence[Any], realize: bool, missing: list[str] | None = None) -> None:
    """Schedules the Tensors among some values, and in lists, tuples and dicts of them, except inputs of other Tensors
    there. With `realize` it runs them, too. A Tensor that cannot be scheduled is a line in `missing`."""
    from tinygrad.tensor import Tensor

    lazy = []
    tensors = (value for _, value in list_arguments(values, {}) if issubclass(type(value), Tensor))
    for t in dict.fromkeys(tensors):
        try:
            if t.uop._shape is not None and not is_computed(t) and not t.uop.ranges:
                lazy.append(t)
        except (ValueError, RuntimeError) as error:
            # an earlier schedule replaced a part of its graph by a buffer of another shape
            if missing is None:
                raise
            missing.append(f"a Tensor that was left lazy was not scheduled: {type(error).__name__}: {error}")
    inner = {u for t in lazy for u in t.uop.base.toposort() if u is not t.uop.base}
    ends = [t for t in lazy if t.uop.base not in inner]
    if ends and realize:
        ends[0].realize(*ends[1:])
    elif ends:
        schedule_tensors(ends)


if __name__ == "__main__":
    main()
