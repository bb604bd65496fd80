"""The process of one side of `bench.fusion`: it answers one line for each request that it reads.

`prepare NAME` is answered with what is known of the first call, `time NAME` with the seconds of a call. It needs
nothing but Python: it runs under an interpreter that has torch, too.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[], Any]
Prepare = Callable[[str], tuple[Run, object]]
"""Takes a name; returns what runs one call, compiled, and the answer about the first call: one line as text."""


def answer_requests(prepare: Prepare) -> None:
    """Answers on stdout what is asked on stdin, until that is closed."""
    prepare = functools.cache(prepare)
    for line in sys.stdin:
        request, _, name = line.strip().partition(" ")
        run, known = prepare(name)
        print(known if request == "prepare" else time_once(run), flush=True)


def time_once(run: Run) -> float:
    """Returns the seconds of one call: the best of as many as fit in a tenth of a second, three at least."""
    best, spent, calls = float("inf"), 0.0, 0
    while calls < 3 or spent < 0.1:
        started = time.perf_counter()
        run()
        took = time.perf_counter() - started
        best, spent, calls = min(best, took), spent + took, calls + 1
    return best
