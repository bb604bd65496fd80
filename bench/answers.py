"""The process of one side of `bench.fusion`: it answers one line for each request that it reads.

`prepare NAME` is answered with how many kernels one call runs, `time NAME` with the seconds it takes. It needs nothing
but Python: it runs under an interpreter that has torch, too.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[], Any]
Prepare = Callable[[str], tuple[Run, int]]
"""Takes a name; returns what runs one call, compiled, and how many kernels that are (0: it has none)."""


def answer_requests(prepare: Prepare) -> None:
    """Answers on stdout what is asked on stdin, until that is closed."""
    prepare = functools.cache(prepare)
    for line in sys.stdin:
        request, _, name = line.strip().partition(" ")
        run, kernels = prepare(name)
        print(kernels if request == "prepare" else time_once(run), flush=True)


def time_once(run: Run) -> float:
    """Returns the seconds of one call: the best of as many as fit in a tenth of a second, three at least."""
    best, spent, calls = float("inf"), 0.0, 0
    while calls < 3 or spent < 0.1:
        started = time.perf_counter()
        run()
        took = time.perf_counter() - started
        best, spent, calls = min(best, took), spent + took, calls + 1
    return best
