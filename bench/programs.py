"""What the patches cost and bring on real programs: `python -m bench.programs [--rounds N] [NAME ...]`.

For each program, ten of our own and those that nobody tuned the patches for: with all patches over stock's schedule,
the time of a call under TinyJit, the time of its first schedule, and the peak of its memory. `noise` is stock's time in
a second process over that in the first; `=` says that all kernels are stock's, so that a difference is noise, too. The
processes take turns, so that a machine that slows down slows all of them; a figure is the ratio of the least times.

Exit status 1: a time is above 1.02 and above the noise, a first schedule above 1.5, or a peak above 1.1 although not a
fifth of the time is saved.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import time
from typing import Any

from bench.answers import Run, time_once
from bench.own_programs import OWN
from bench.sides import ROOT, UNFUSED, side_environment
from bench.unseen_programs import UNSEEN

STOCK, AGAIN, PATCHED = "stock", "again", "patched"
SPECS = {STOCK: UNFUSED, AGAIN: UNFUSED, PATCHED: "all"}
MOST_TIME, MOST_SCHEDULE, MOST_PEAK, WORTH_MEMORY = 1.02, 1.5, 1.1, 0.8


# *** in the process of one side


def make(name: str) -> Run:
    from tinygrad import Device, Tensor

    Tensor.manual_seed(0)
    call = {**OWN, **UNSEEN}[name]()

    def run() -> None:
        call()
        Device[Device.DEFAULT].synchronize()

    return run


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


def answer(name: str) -> None:
    """Prints what the first call did; then the seconds of a call for each line on stdin."""
    run = make(name)
    print(json.dumps(watch_first_call(run)), flush=True)
    # TinyJit captures the second call
    run()
    for _ in sys.stdin:
        print(time_once(run), flush=True)


# *** in the process that compares


class Side:
    """A process that runs one program under one state of the patches."""

    def __init__(self, spec: str, name: str):
        command = [sys.executable, "-m", "bench.programs", "--answer", name]
        self.process = subprocess.Popen(
            command, env=side_environment(spec), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first: dict[str, Any] = json.loads(self.read())
        self.times: list[float] = []

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args}: ended with status {self.process.wait()}")
        return line

    def measure(self) -> None:
        assert self.process.stdin is not None
        print("time", file=self.process.stdin, flush=True)
        self.times.append(float(self.read()))

    @functools.cached_property
    def seconds(self) -> float:
        return min(self.times)


def compare(name: str, rounds: int) -> list[str]:
    """Prints the row of a program. Returns what is above its limit."""
    sides = {side: Side(spec, name) for side, spec in SPECS.items()}
    for _ in range(rounds):
        for side in sides.values():
            side.measure()
    for side in sides.values():
        side.process.kill()
        side.process.wait()
    stock, again, patched = sides.values()
    took, noise = patched.seconds / stock.seconds, again.seconds / stock.seconds
    schedule, peak = (patched.first[what] / max(stock.first[what], 1e-9) for what in ("schedule", "peak"))
    kernels = f"{stock.first['kernels']} -> {patched.first['kernels']}"
    is_equal = patched.first["keys"] == stock.first["keys"]
    print(
        f"{name:21s} {kernels:>11s} {stock.seconds * 1e3:8.2f} {took:6.2f}{'=' if is_equal else ' '}{noise:6.2f} "
        f"{stock.first['schedule'] * 1e3:8.0f} {schedule:6.2f} {peak:6.2f}",
        flush=True,
    )
    found = []
    if took > max(MOST_TIME, noise, 1 / noise) and not is_equal:
        found.append(f"{name}: time {took:.2f}, at most {MOST_TIME}")
    if schedule > MOST_SCHEDULE:
        found.append(f"{name}: first schedule {schedule:.2f}, at most {MOST_SCHEDULE}")
    if peak > MOST_PEAK and took > WORTH_MEMORY:
        found.append(f"{name}: peak of memory {peak:.2f}, at most {MOST_PEAK}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of them")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each side")
    parser.add_argument("--answer", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.answer is not None:
        answer(arguments.answer)
        return 0
    print(
        f"{'':21s} {'kernels':>11s} {'ms':>8s} {'time':>6s} {'noise':>6s} {'schedule':>8s} {'ratio':>6s} {'peak':>6s}"
    )
    above = [line for name in arguments.names or [*OWN, *UNSEEN] for line in compare(name, arguments.rounds)]
    for line in above:
        print("above its limit:", line, file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
