"""Runs a program on the tinygrad on PYTHONPATH with hooks of ours that fail: all of them, or one.

    python planted.py before|after all|NUMBER PROGRAM

A hook fails before it calls tinygrad's function, or after. Prints as JSON, after what the program prints, the parts of
the hooks by number, the numbers of those that were called, and the lines that say what could not be observed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmapdbg.child.listen import guard, hooks
from vmapdbg.child.listen.recorder import Recorder
from vmapdbg.child.listen.times import Stopwatch
from vmapdbg.child.listen.values_and_times import note_values

parts: list[str] = []
called: set[int] = set()
when, which, program = sys.argv[1:]
real = guard.guard


def plant(part: str, around: Callable[..., Any]) -> Callable[..., Any]:
    number = len(parts)
    parts.append(part)

    def failing(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        called.add(number)
        if which not in ("all", str(number)):
            return around(stock, *args, **kwargs)
        if when == "after":
            stock(*args, **kwargs)
        raise ValueError(f"planted {number}")

    return real(part, failing)


def report_badly(*_: Any) -> None:
    raise ValueError("planted")


def watch(module: Any) -> None:
    from vmapdbg.child.passes.watch import FollowingCollector

    FollowingCollector(Path(tempfile.mkdtemp()), recorder).watch(module)
    note_values(module, recorder)
    Stopwatch().watch(module)


guard.guard = plant
recorder = Recorder()
if which == "all":
    # what is no function around tinygrad's: lines of UOps, and answers of rules
    for owner, names in ((Recorder, ["schedule_asked"]), (type(recorder.lines), ["follow"])):
        for name in names:
            setattr(owner, name, report_badly)
hooks.start(recorder, watch)
exec(compile(Path(program).read_text(encoding="utf-8"), program, "exec"), {"__name__": "__main__"})
print(json.dumps({"parts": parts, "called": sorted(called), "missing": recorder.missing}))
