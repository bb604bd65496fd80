"""What the patches cost and bring on real programs: `python -m bench.programs [--rounds N] [NAME ...]`.

Measures the programs of `bench.own_programs` and those of `bench.unseen_programs`, for which nobody tuned the patches.
A row has four figures with all patches, each divided by the same figure with stock's schedule: the time of a call
under TinyJit, the time of the first schedule if nothing is known of the program, that time in a later process, which
finds the decisions in tinygrad's cache, and the peak of the memory. `noise` is stock's time in a second process,
divided by its time in the first. `=` means that all kernels are stock's: a difference is noise, too. The processes take
turns, so that a machine that slows down slows all of them; the least time of each process counts.

The first schedule of a process varies by up to a factor of two, because garbage is collected: three processes measure
it in a row, and the least counts.

Exit status 1: a time is above 1.02 and above the noise, a first schedule above 1.5, or a peak above 1.1 and by more
than 64 KiB although not a fifth of the time is saved.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from bench.first_call import DECIDES_ANEW
from bench.own_programs import OWN
from bench.sides import UNFUSED, Side, close, measure, side_environment
from bench.unseen_programs import UNSEEN

SPECS = {"stock": UNFUSED, "again": UNFUSED, "patched": "all", "later": "all"}
"""`patched` makes all decisions itself and writes them to tinygrad's cache. `later` reads them from there."""
MOST_TIME, MOST_SCHEDULE, MOST_PEAK, WORTH_MEMORY, FEW_BYTES = 1.02, 1.5, 1.1, 0.8, 64 << 10
PROCESSES = 3


def make_environment(side: str) -> dict[str, str]:
    environment = side_environment(SPECS[side])
    return {**environment, DECIDES_ANEW: "1"} if side == "patched" else environment


def compare(name: str, rounds: int) -> list[str]:
    """Prints the row of a program. Returns what is above its limit."""
    sides = dict[str, Side]()
    first = dict[str, Any]()
    for side in SPECS:
        answers = list[Any]()
        # only the times of calls are needed of the second process of stock
        for _ in range(1 if side == "again" else PROCESSES):
            if side in sides:
                sides.pop(side).close()
            sides[side] = Side("bench.first_call", make_environment(side))
            answers.append(json.loads(sides[side].ask("prepare", name)))
        first[side] = answers[-1] | {"schedule": min(answer["schedule"] for answer in answers)}
    sides.pop("later").close()
    stock, patched, later = (first[side] for side in ("stock", "patched", "later"))
    seconds, again, patched_seconds = map(min, measure(sides, name, rounds).values())
    close(sides)
    took, noise = patched_seconds / seconds, again / seconds
    schedule, peak = (patched[what] / max(stock[what], 1e-9) for what in ("schedule", "peak"))
    schedule_later = later["schedule"] / max(stock["schedule"], 1e-9)
    kernels = f"{stock['kernels']} -> {patched['kernels']}"
    is_equal = patched["keys"] == stock["keys"]
    print(
        f"{name:21s} {kernels:>11s} {seconds * 1e3:8.2f} {took:6.2f}{'=' if is_equal else ' '}{noise:6.2f} "
        f"{stock['schedule'] * 1e3:8.0f} {schedule:6.2f} {schedule_later:6.2f} {peak:6.2f}",
        flush=True,
    )
    found = []
    if took > max(MOST_TIME, noise, 1 / noise) and not is_equal:
        found.append(f"{name}: time {took:.2f}, at most {MOST_TIME}")
    if schedule > MOST_SCHEDULE:
        found.append(f"{name}: first schedule {schedule:.2f}, at most {MOST_SCHEDULE}")
    if schedule_later > MOST_SCHEDULE:
        found.append(f"{name}: first schedule in a later process {schedule_later:.2f}, at most {MOST_SCHEDULE}")
    if later["keys"] != patched["keys"]:
        found.append(f"{name}: a later process runs other kernels")
    if peak > MOST_PEAK and patched["peak"] - stock["peak"] > FEW_BYTES and took > WORTH_MEMORY:
        found.append(f"{name}: peak of memory {peak:.2f}, at most {MOST_PEAK}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of them")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each side")
    arguments = parser.parse_args()
    print(
        f"{'':21s} {'kernels':>11s} {'ms':>8s} {'time':>6s} {'noise':>6s} {'schedule':>8s} "
        f"{'ratio':>6s} {'later':>6s} {'peak':>6s}"
    )
    above = [line for name in arguments.names or [*OWN, *UNSEEN] for line in compare(name, arguments.rounds)]
    for line in above:
        print("above its limit:", line, file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
