"""The child: installs the overlay, runs the snippet as `__main__`, writes a Capture.

Started by `launcher` as `python -m vmapdbg.child.run_snippet REQUEST`.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vmapdbg import overlay
from vmapdbg.child.evidence.collector import Collector
from vmapdbg.child.live import build_capture, find_renderer
from vmapdbg.child.record.lines import find_user_file, set_internal_folders
from vmapdbg.child.record.recorder import Recorder, ScheduleRecord
from vmapdbg.child.record.stock import observe_stock
from vmapdbg.job.job import Job, Request, load_request
from vmapdbg.job.patches import format_patches
from vmapdbg.model import capture as model
from vmapdbg.model.store import dump_compact, write_atomically
from vmapdbg.model.wording import first_line


def main() -> None:
    request = load_request(Request, sys.argv[1])
    job = request.job
    recorder = Recorder(job.values)
    collector = None
    if request.evidence is not None:
        collector = Collector(Path(request.evidence), recorder)
        recorder.watch = collector.watch
    try:
        prepare(job, recorder)
    except overlay.OverlayError as refused:
        error = model.SnippetError("OverlayError", str(refused), None)
    else:
        error = run_snippet(job, realize=collector is not None)
    if collector is not None:
        collector.close()
    sys.stdout.flush()
    # the records keep every UOp alive: collecting garbage would walk them all again and again, and find none
    gc.disable()
    gc.freeze()
    progress = count_kernels(recorder.schedules, request.progress)
    capture = build_capture(job, recorder.schedules, error, progress)
    write_atomically(request.output, dump_compact(capture))


def prepare(job: Job, recorder: Recorder) -> None:
    """Installs the overlay and the observer. Nothing of tinygrad is imported: the snippet may set its environment."""
    overlay.check_installed()
    set_internal_folders(str(overlay.overlay_dir()), str(overlay.installed_folder()))
    if job.patches is None:
        observe_stock(recorder)
    else:
        overlay.install(format_patches(job.patches))
        state = overlay.get_state()
        state.observer = recorder
        state.find_renderer = functools.partial(find_renderer, job.target)
    fall_back_to_python_device()


# what names a device for tinygrad; see DEV in its documentation of the environment
DEVICE_VARIABLES = ("DEV", "METAL", "AMD", "NV", "CUDA", "QCOM", "CL", "CPU", "DSP", "WEBGPU", "PYTHON", "NULL")


def fall_back_to_python_device() -> None:
    """Where the CPU device would be used and there is no clang for it, uses the PYTHON device, and says so."""
    chosen = any(os.environ.get(name, "0") not in ("", "0") for name in DEVICE_VARIABLES)
    compiler = shutil.which(os.environ.get("CC", "clang"))
    if chosen or compiler is not None or os.environ.get("CPU_LLVM", "0") not in ("", "0"):
        return
    if any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd")) or sys.platform == "darwin":
        return
    os.environ["DEV"] = "PYTHON"
    print("vmapdbg: no clang for the CPU device, running on the PYTHON device (slow)", file=sys.stderr)


def run_snippet(job: Job, realize: bool) -> model.SnippetError | None:
    """Runs the snippet, then schedules the Tensors that it left lazy in its globals, and with `realize` runs these.

    Its error goes to stderr."""
    main_module = types.ModuleType("__main__")
    main_module.__file__ = job.snippet
    main_module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main_module
    sys.argv = [job.snippet, *job.arguments]
    sys.path[0] = str(Path(job.snippet).resolve().parent)
    try:
        code = compile(Path(job.snippet).read_bytes(), job.snippet, "exec")
        exec(code, main_module.__dict__)
        schedule_lazy_tensors(main_module.__dict__.values(), realize)
    except SystemExit as ended:
        return explain_exit(ended)
    except overlay.OverlayError as refused:
        return model.SnippetError("OverlayError", str(refused), None)
    except BaseException as error:
        if not isinstance(error, (Exception, KeyboardInterrupt)):
            raise
        return explain_error(error)
    return None


def explain_exit(ended: SystemExit) -> model.SnippetError | None:
    status = ended.code
    if status in (None, 0):
        return None
    # as Python does: a message goes to stderr, and the status is 1
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    return model.SnippetError("SystemExit", str(status), None)


def explain_error(error: BaseException) -> model.SnippetError:
    """Prints the snippet's own traceback, without the tool's frames, and returns what it says."""
    shown = traceback.TracebackException.from_exception(error)
    strip_own_frames(shown)
    print("".join(shown.format()), end="", file=sys.stderr)
    line = next((f"{f.filename}:{f.lineno}" for f in reversed(shown.stack) if find_user_file(f.filename)), None)
    if isinstance(error, SyntaxError) and error.filename is not None:
        line = f"{error.filename}:{error.lineno}"
    return model.SnippetError(type(error).__name__, first_line(error), line)


def strip_own_frames(shown: traceback.TracebackException) -> None:
    own = tuple(f"{folder.resolve()}{os.sep}" for folder in (Path(__file__).parent.parent, overlay.overlay_dir()))
    shown.stack[:] = [f for f in shown.stack if not os.path.abspath(f.filename).startswith(own)]
    for linked in (shown.__cause__, shown.__context__):
        if linked is not None:
            strip_own_frames(linked)


def schedule_lazy_tensors(values: Iterable[Any], realize: bool) -> None:
    """Schedules, and does not run unless `realize`, the Tensors that no other one of them is made from."""
    if "tinygrad" not in sys.modules:
        return
    from tinygrad.tensor import Tensor

    tensors = list(dict.fromkeys(find_tensors(list(values), Tensor)))
    lazy = [t for t in tensors if not is_settled(t) and not t.uop.ranges]
    inner = {u for t in lazy for u in t.uop.base.backward_slice}
    ends = [t for t in lazy if t.uop.base not in inner]
    if ends and realize:
        ends[0].realize(*ends[1:])
    elif ends:
        ends[0].schedule_with_vars(*ends[1:])


def find_tensors(values: Iterable[Any], kind: type) -> Iterable[Any]:
    for value in values:
        if isinstance(value, kind):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from find_tensors(value, kind)
        elif isinstance(value, dict) and type(value) is dict:
            yield from find_tensors(value.values(), kind)


def is_settled(tensor: Any) -> bool:
    """There is nothing to schedule for a buffer, or a constant."""
    base = tensor.uop.base
    return base.op.name in {"BUFFER", "CONST", "BUFFER_VIEW", "MSTACK"} or tensor.uop.is_realized


def count_kernels(records: list[ScheduleRecord], file: Path) -> Callable[[], None]:
    """Returns what is called for each kernel of some schedules: a few times a second it writes how many are done."""
    passes = {id(record.passed): record.passed for record in records if record.passed is not None}
    total = sum(len(passed.kernels) for passed in passes.values())
    done, last = 0, 0.0

    def count() -> None:
        nonlocal done, last
        done += 1
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            write_atomically(file, f"{done:,} of {total:,} kernels")

    return count


if __name__ == "__main__":
    main()
