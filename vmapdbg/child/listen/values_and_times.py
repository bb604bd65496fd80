"""What a run of a snippet gives: the values of the tensors that it realizes, so that two runs can be compared, and how
long each kernel takes, by the device's own clock, and how much memory tinygrad has."""

from __future__ import annotations

import functools
import hashlib
import importlib
import math
import os
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import ModuleType
from typing import Any

from vmapdbg.child.listen.guard import Watched, watching
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.records import Launch, ScheduleRecord, find_passes
from vmapdbg.child.memory import name_dtype, read_buffer
from vmapdbg.install.overlay import OVERLAY_PACKAGE, tinygrad_finder
from vmapdbg.model.capture import Capture, Kernel, Measured, Output

SAMPLE = 1024
"""The most elements that are kept of one tensor, evenly spaced."""

# dtypes without a format of `struct`: the format of their bits
_BITS = {"bfloat16": "H", "fp8e4m3": "B", "fp8e5m2": "B"}

# devices whose memory is no result of a computation
_NO_VALUES = ("NULL", "DISK", "TINYFS")


def note_values(tensor_module: ModuleType, recorder: Recorder) -> None:
    """Wraps `Tensor.realize`, which every read of values calls: each Tensor that a new schedule realized becomes an
    output of the schedule. Raises UnknownShape."""

    def noting(realize: Callable[..., Any], tensor: Any, *others: Any, **options: Any) -> Any:
        before = len(recorder.schedules)
        result = realize(tensor, *others, **options)
        if len(recorder.schedules) > before:
            recorder.schedules[-1].outputs += filter(None, map(read_output, (tensor, *others)))
        return result

    with watching("values of realized tensors") as changes:
        changes.wrap(tensor_module.Tensor, "realize", noting, "self", "lst", "do_update_stats")


SEED = 0


def fix_seeds() -> None:
    """Gives `random` and numpy a fixed seed as soon as the program imports them, so that two runs of it have the same
    data. A program that sets its own seed keeps it."""
    finder = tinygrad_finder()
    seeded: dict[str, Callable[[ModuleType], None]] = {
        "random": _seed_random,
        "numpy.random.bit_generator": _seed_numpy,
    }
    finder.patches = {**finder.patches, **seeded}
    for name, seed in seeded.items():
        if name in sys.modules:
            seed(sys.modules[name])


def _seed_random(module: ModuleType) -> None:
    module.seed(SEED)


def _seed_numpy(module: ModuleType) -> None:
    """Replaces the source of numpy's default seeds: `RandomState()`, `default_rng()` and the functions of
    `numpy.random` all take them from there."""
    import random

    module.__dict__["randbits"] = random.Random(SEED).getrandbits


def seed_tensors(tensor_module: ModuleType) -> None:
    """Gives the Tensors' random numbers a fixed seed: tinygrad's own is the time."""
    tensor_module.Tensor.manual_seed(SEED)


def read_output(tensor: Any) -> Output | None:
    """Returns the values of a realized Tensor, None if it has none to read (sharded tensors, virtual devices)."""
    device = tensor.uop.device
    if not isinstance(device, str) or device.startswith(_NO_VALUES) or not tensor.uop.is_realized:
        return None
    buffer = tensor.uop.base.buffer
    data = read_buffer(buffer)
    # 0.14 has no dtype of pointers, so none has a base
    name = name_dtype(getattr(buffer.dtype, "base", buffer.dtype))
    shape = tuple(map(int, tensor.shape))
    return Output(shape, name, hashlib.sha256(data).hexdigest(), sample_values(data, name))


def sample_values(data: bytes, dtype: str) -> tuple[float | str, ...]:
    """Returns at most `SAMPLE` elements of a buffer; none if the dtype has no numbers."""
    from tinygrad.dtype import dtypes

    # not numpy: the interpreter of the user's project may not have it
    form: str | None = getattr(getattr(dtypes, dtype, None), "fmt", None) or _BITS.get(dtype)
    if form is None or not data:
        return ()
    size = struct.calcsize(f"={form}")
    step = math.ceil(len(data) // size / SAMPLE) * size
    picked = [data[start : start + size] for start in range(0, len(data), step)]
    if dtype.startswith("fp8"):
        from vmapdbg.values.numbers import Array, decode

        numbers = map(float, decode(Array(b"".join(picked), dtype, (len(picked),))))
    else:
        if dtype == "bfloat16":
            # the upper half of a float
            picked, form = [b"\0\0" + value for value in picked], "f"
        numbers = map(float, struct.unpack(f"<{len(picked)}{form}", b"".join(picked)))
    return tuple(number if math.isfinite(number) else str(number) for number in numbers)


# *** times


class Stopwatch:
    """The times of all launches, in seconds, by the source of the kernel: what ran and what is shown are rendered from
    the same linear program."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def watch(self) -> None:
        """Waits for every launch and times it, from the import of tinygrad on. Raises UnknownShape."""
        from tinygrad.engine import realize

        with watching("times of kernels") as changes:
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
        return Watched(run, functools.partial(self.on_program, source), "times of kernels")

    def on_program(self, source: str, run: Callable[..., Any], *buffers: Any, **options: Any) -> float | None:
        return self.note(source, run(*buffers, **options | {"wait": True}))

    def note(self, source: str, seconds: float | None) -> float | None:
        if seconds is not None:
            self.seconds.setdefault(source.strip("\n"), []).append(seconds)
        return seconds

    def add_times(self, capture: Capture, overlay: Iterable[ScheduleRecord]) -> Capture:
        """Returns the capture with the times of its kernels; for kernels of schedules on the overlay also with the time
        that its cost model predicts."""
        # only this job needs it, and it takes time to import
        from statistics import median

        launched = {launch.ast.key.hex(): launch for passed in find_passes(overlay) for launch in passed.kernels}

        def fill(kernel: Kernel) -> Kernel:
            times = self.seconds.get(kernel.source.strip("\n"))
            if not times:
                return kernel
            measured = Measured(len(times), median(times), min(times), max(times))
            predicted = predict(launched[kernel.key]) if kernel.key in launched else None
            return replace(kernel, measured=measured, predicted=predicted)

        schedules = (replace(one, kernels=tuple(map(fill, one.kernels))) for one in capture.schedules)
        return replace(capture, schedules=tuple(schedules))


# *** what `bisect` measures


class Peak:
    """The most `bytes` that tinygrad had allocated at a time, on all devices together, by its own counter; None if it
    is not watched."""

    def __init__(self) -> None:
        self.bytes: int | None = None

    def watch(self) -> None:
        """Looks at the counter after each allocation: nothing else lets it grow."""
        from tinygrad.device import Buffer
        from tinygrad.helpers import GlobalCounters

        def noting(allocate: Callable[..., Any], *args: Any, **options: Any) -> Any:
            allocated = allocate(*args, **options)
            self.bytes = max(self.bytes or 0, GlobalCounters.mem_used)
            return allocated

        with watching("allocated memory") as changes:
            changes.wrap(Buffer, "allocate", noting, "self", "opaque", "external_ptr")
        self.bytes = GlobalCounters.mem_used


def hold_beam() -> None:
    """Keeps BEAM at 0, whatever the environment and `Context` say: what a search finds differs from run to run, and is
    kept in a cache."""
    from tinygrad.helpers import BEAM

    # a captured TinyJit reads it from the environment
    os.environ["JITBEAM"] = "0"
    held = property(lambda beam: 0, lambda beam, value: None)
    BEAM.__class__ = type("HeldBeam", (type(BEAM),), {"value": held})


def predict(launched: Launch) -> float | None:
    """Returns the seconds of one launch on the device of the kernel's buffers; None if codegen fails on its AST."""
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
