"""The child: sets up the mode, runs the snippet as `__main__`, writes a Capture.

Started by `shared/children.py` as `python -m vmapdbg.child.run_snippet REQUEST`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shutil
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vmapdbg.child.failures.diagnose import KnownNodes
from vmapdbg.child.failures.endless import EndlessRewrite, Watcher
from vmapdbg.child.failures.snippet_end import Shadow, explain_exit, hold, report_error
from vmapdbg.child.listen.records import find_passes
from vmapdbg.child.listen.releases import is_computed, schedule_tensors
from vmapdbg.child.mode import Mode
from vmapdbg.install import overlay
from vmapdbg.install.job import Request, load_request
from vmapdbg.model import capture as model
from vmapdbg.model.store import dump_compact, write_atomically


def main() -> None:
    request = load_request(Request, sys.argv[1])
    hold(request.lifeline)
    mode = Mode(request)
    watcher = Watcher(functools.partial(write_atomically, request.progress))
    watcher.start()

    def report(where: str) -> None:
        # the process died: the tool says how, in front of `where`
        line = next((asked.line for asked in reversed(mode.schedules)), None)
        write_capture(request, mode, model.SnippetError("ChildDied", where, line))

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
        error = run_snippet(request, mode.find_nodes)
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
    kernels = sum(len(passed.kernels) for passed in find_passes(mode.schedules))
    capture = mode.add_times(mode.build(error, count_kernels(kernels, request.progress)))
    write_atomically(request.output, dump_compact(capture))


def drop_destructor() -> None:
    """Removes the destructor of Tensor: it would run for garbage after Python has emptied tinygrad's modules, and fail
    with lines on stderr."""
    module = sys.modules.get("tinygrad.tensor")
    tensor = getattr(module, "Tensor", None)
    if tensor is not None and "__del__" in vars(tensor):
        del tensor.__del__


# what names a device for tinygrad; see DEV in its documentation of the environment
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


def run_snippet(request: Request, find_nodes: Callable[[], KnownNodes]) -> model.SnippetError | None:
    """Runs the snippet, then schedules the Tensors that it left lazy in its globals, and runs them for `check`.

    Its error goes to stderr. `find_nodes` returns the known nodes of the last schedule."""
    job = request.job
    main_module = types.ModuleType("__main__")
    main_module.__file__ = job.snippet
    main_module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main_module
    sys.argv = [job.typed or job.snippet, *job.arguments]
    set_path(job.folder, request.tinygrad)
    try:
        code = compile(Path(job.snippet).read_bytes(), job.snippet, "exec")
        exec(code, main_module.__dict__)
        if "tinygrad" in sys.modules:
            realize = request.evidence is not None or job.times
            schedule_lazy(list(main_module.__dict__.values()), realize)
    except SystemExit as ended:
        return explain_exit(ended)
    except overlay.OverlayError as refused:
        return model.SnippetError("OverlayError", str(refused), None)
    except BaseException as error:
        if not isinstance(error, (Exception, KeyboardInterrupt, EndlessRewrite)):
            raise
        return report_error(error, find_nodes())
    return None


def schedule_lazy(values: Sequence[Any], realize: bool) -> None:
    """Schedules the Tensors among some values, and in lists, tuples and dicts of them, except inputs of other Tensors
    there. With `realize` it runs them, too."""
    from tinygrad.tensor import Tensor

    tensors = dict.fromkeys(list_tensors(values, Tensor))
    lazy = [t for t in tensors if not is_computed(t) and not t.uop.ranges]
    inner = {u for t in lazy for u in t.uop.base.toposort() if u is not t.uop.base}
    ends = [t for t in lazy if t.uop.base not in inner]
    if ends and realize:
        ends[0].realize(*ends[1:])
    elif ends:
        schedule_tensors(ends)


def list_tensors(values: Sequence[Any], kind: type) -> list[Any]:
    """Returns the Tensors among some values, and in lists, tuples and dicts of them."""
    found: list[Any] = []
    # a container may contain itself
    opened: set[int] = set()
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        if isinstance(value, kind):
            found.append(value)
        elif id(value) in opened:
            continue
        elif type(value) is dict:
            waiting += reversed(value.values())
        elif isinstance(value, (list, tuple)):
            waiting += reversed(value)
        opened.add(id(value))
    return found


def set_path(folder: Path, tree: str) -> None:
    """Puts the snippet's folder first, as Python does. If the folder has another tinygrad, the request's tree
    comes before it. (The tree is on PYTHONPATH, too.)"""
    sys.path[0] = str(folder)
    if tree and (folder / "tinygrad").is_dir():
        sys.path.insert(0, tree)


def count_kernels(total: int, file: Path) -> Callable[[], None]:
    """Returns a function to call for each of `total` kernels: a few times a second it writes how many are done."""
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
