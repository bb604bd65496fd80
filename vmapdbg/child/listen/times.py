"""How long each kernel of a snippet takes as it runs, by the device's own clock, and how long the overlay's cost model
predicts.

A kernel is known by its source: what ran and what is shown are rendered from the same linear program.
"""

from __future__ import annotations

import functools
import importlib
import statistics
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from vmapdbg.child.listen.records import Launch, ScheduleRecord, find_passes
from vmapdbg.install.overlay import OVERLAY_PACKAGE, load_patching
from vmapdbg.model.capture import Capture, Kernel, Measured


class Stopwatch:
    """The times of all launches, in seconds, by the source of the kernel."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def watch(self) -> None:
        """Waits for every launch and times it, from the import of tinygrad on. Raises UnknownShape."""
        from tinygrad.engine import realize

        with load_patching().Changes("times of kernels") as changes:
            if hasattr(realize, "CompiledRunner"):
                # 0.12
                changes.wrap(realize.CompiledRunner, "__call__", self.on_runner, "self", "rawbufs", "var_vals", "wait")
            else:
                changes.wrap(realize, "get_runtime", self.on_runtime, "device", "ast", "cache")

    def on_runner(
        self, run: Callable[..., Any], runner: Any, rawbufs: Any, var_vals: Any = None, *_: Any, **__: Any
    ) -> Any:
        # `wait` is left out: it is given here
        return self.note(runner.p.src, run(runner, rawbufs, var_vals, wait=True))

    def on_runtime(self, find: Callable[..., Any], device: str, program: Any, *rest: Any, **options: Any) -> Any:
        run = find(device, program, *rest, **options)
        source = next((u.arg for u in program.src if u.op.name == "SOURCE"), None)
        if source is None:
            return run

        return _TimedProgram(run, functools.partial(self.note, source))

    def note(self, source: str, seconds: float | None) -> float | None:
        if seconds is not None:
            self.seconds.setdefault(_strip(source), []).append(seconds)
        return seconds

    def add_times(self, capture: Capture, overlay: Iterable[ScheduleRecord]) -> Capture:
        """Returns the capture with the times of its kernels; for kernels of schedules on the overlay also with the time
        that its cost model predicts."""
        launched = {launch.ast.key.hex(): launch for passed in find_passes(overlay) for launch in passed.kernels}

        def fill(kernel: Kernel) -> Kernel:
            times = self.seconds.get(_strip(kernel.source))
            if not times:
                return kernel
            measured = Measured(len(times), statistics.median(times), min(times), max(times))
            predicted = predict(launched[kernel.key]) if kernel.key in launched else None
            return replace(kernel, measured=measured, predicted=predicted)

        schedules = (replace(one, kernels=tuple(map(fill, one.kernels))) for one in capture.schedules)
        return replace(capture, schedules=tuple(schedules))


class _TimedProgram:
    """Waits for each run of a program, and notes its time."""

    def __init__(self, run: Any, note: Callable[[float | None], float | None]) -> None:
        self._run, self._note = run, note

    def __call__(self, *buffers: Any, **options: Any) -> float | None:
        return self._note(self._run(*buffers, **options | {"wait": True}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


def _strip(source: str) -> str:
    return source.strip("\n")


def predict(launched: Launch) -> float | None:
    """Returns the seconds of one launch on the device of the kernel's buffers; None where codegen fails on its AST."""
    from tinygrad.device import Device

    model: Any = importlib.import_module(f"{OVERLAY_PACKAGE}.codegen._work")
    device = launched.buffers[0].device
    if isinstance(device, tuple):
        # the same kernel on each of them
        device = device[0]
    # the device is open: it ran the kernel
    renderer = Device[device].renderer
    try:
        work = model.estimate_work(launched.ast, renderer)
    except model.CannotLower:
        return None
    return model.predict_ns(work, renderer) / 1e9
