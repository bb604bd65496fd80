"""The process of one side of `bench.programs`: it answers as `bench.answers` says, about the first call in JSON."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from bench.answers import Run, answer_requests
from bench.own_programs import OWN, make
from bench.unseen_programs import UNSEEN

DECIDES_ANEW = "BENCH_DECIDES_ANEW"
"""If this variable is set, the process decides again what the cache knows already."""


def watch_first_call(run: Run) -> dict[str, Any]:
    """Makes the first call. Returns how many kernels it ran, and their keys; the CPU seconds of its schedules, and the
    bytes that it added to the memory in use at the peak."""
    from tinygrad import GlobalCounters, Tensor
    from tinygrad.device import Buffer
    from tinygrad.uop.ops import Ops

    GlobalCounters.reset()
    before = peak = GlobalCounters.mem_used
    seconds, keys = 0.0, list[str]()
    schedule, allocate = Tensor.schedule_with_vars, Buffer.allocate

    def timed(*given: Any, **options: Any) -> Any:
        nonlocal seconds
        began = time.thread_time()
        made = schedule(*given, **options)
        seconds += time.thread_time() - began
        keys.extend(item.ast.key.hex() for item in made[0] if item.ast.op is Ops.SINK)
        return made

    def noted(*given: Any, **options: Any) -> Any:
        nonlocal peak
        buffer = allocate(*given, **options)
        peak = max(peak, GlobalCounters.mem_used)
        return buffer

    Tensor.schedule_with_vars, Buffer.allocate = timed, noted
    try:
        run()
    finally:
        Tensor.schedule_with_vars, Buffer.allocate = schedule, allocate
    return {"kernels": GlobalCounters.kernel_count, "keys": keys, "schedule": seconds, "peak": peak - before}


def forget_decisions() -> None:
    """The scheduler finds no decisions in tinygrad's cache, but keeps its own there."""
    import tinygrad  # noqa: F401  # it loads the overlay
    from tinygrad_overlay.schedule import _known

    _known.diskcache_get = lambda *_: None


def prepare(name: str) -> tuple[Run, str]:
    if os.environ.get(DECIDES_ANEW):
        forget_decisions()
    run = make({**OWN, **UNSEEN}[name])
    known = json.dumps(watch_first_call(run))
    # TinyJit captures the second call
    run()
    return run, known


if __name__ == "__main__":
    answer_requests(prepare)
