"""How long the overlay's cost model takes kernels to run, beside how long they took. Runs in the child, when the
snippet is done: nothing is predicted where nothing was timed."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from vmapdbg.child.listen.records import Launch, ScheduleRecord, find_passes
from vmapdbg.install.overlay import OVERLAY_PACKAGE
from vmapdbg.model.capture import Capture, Kernel


def add_predictions(capture: Capture, records: Iterable[ScheduleRecord]) -> Capture:
    """Returns the capture with what is predicted of its timed kernels; `records` are those it was built from."""
    launched = {kernel.ast.key.hex(): kernel for passed in find_passes(records) for kernel in passed.kernels}

    def fill(kernel: Kernel) -> Kernel:
        if kernel.measured is None or kernel.key not in launched:
            return kernel
        return replace(kernel, predicted=predict(launched[kernel.key]))

    schedules = (replace(one, kernels=tuple(map(fill, one.kernels))) for one in capture.schedules)
    return replace(capture, schedules=tuple(schedules))


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
