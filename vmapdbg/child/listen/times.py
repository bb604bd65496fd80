"""How long each kernel of a snippet takes as it runs, by the device's own clock. Runs in the child.

A kernel is known by its source: what ran and what is shown are rendered from the same linear program, or are two
programs.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vmapdbg.install.overlay import load_patching
from vmapdbg.model.capture import Capture, Kernel, Measured


class Stopwatch:
    """The times of all launches, in seconds, by the source of the kernel."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def watch(self) -> None:
        """Has every launch waited for and timed, from when tinygrad is imported. Raises UnknownShape."""
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

    def fill(self, capture: Capture) -> Capture:
        """Returns the capture with the times of its kernels."""
        schedules = (
            replace(schedule, kernels=tuple(map(self.fill_kernel, schedule.kernels))) for schedule in capture.schedules
        )
        return replace(capture, schedules=tuple(schedules))

    def fill_kernel(self, kernel: Kernel) -> Kernel:
        times = self.seconds.get(_strip(kernel.source))
        if not times:
            return kernel
        return replace(kernel, measured=Measured(len(times), statistics.median(times), min(times), max(times)))


class _TimedProgram:
    """Stands for what runs a program. Each run is waited for, and its time noted."""

    def __init__(self, run: Any, note: Callable[[float | None], float | None]) -> None:
        self._run, self._note = run, note

    def __call__(self, *buffers: Any, **options: Any) -> float | None:
        return self._note(self._run(*buffers, **options | {"wait": True}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


def _strip(source: str) -> str:
    return source.strip("\n")
