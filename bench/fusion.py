"""What fusion brings on the CPU device: `python -m bench.fusion [--rounds N] [--torch PYTHON] [NAME ...]`.

For each pattern of `bench.fusion_patterns` and each program of `bench.own_programs`: the time of one call with all
patches, divided by its time with stock's schedule (without the patches that choose what is stored). For the patterns
the same with the fusion alone (`fuse-broadcast` without `local-budget` and `fusion-guard`), which shows what the
guard is for. With `--torch`, an interpreter that has torch, the programs stand beside PyTorch with as many threads.
Each side is a process; they take turns, so that a machine that slows down slows all of them. A figure is a ratio of the
least times: what else runs on the machine only ever adds to a time.

Exit status 1: one is slower than 1.02 of none, softmax or RMSNorm is not under 0.85, the rotary program not under 0.15,
or, where all are measured, their geometric mean not under 0.8.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

from bench.fusion_patterns import PATTERNS
from bench.own_programs import OWN
from bench.sides import UNFUSED, Side, close, measure, side_environment

SEED, TORCH = "seed", "torch"
SIDES = {"none": UNFUSED, SEED: "all,-fusion-guard,-local-budget,-realize-reused", "all": "all"}
# a slower pattern is one that the guard should have refused; two percent is what repeated runs of one program differ by
MOST = 1.02
GAINS = {"softmax": 0.85, "RMSNorm": 0.85, "rotary attention": 0.15}
MEAN = 0.8


def start(side: str) -> Side:
    return Side("bench.fusion_patterns", side_environment(SIDES[side]))


def ratio(times: dict[str, list[float]], side: str) -> float:
    return min(times[side]) / min(times["none"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*PATTERNS, *OWN], metavar="NAME", help="default: all of them")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each side")
    arguments = parser.parse_args()
    failed, ratios = [], []
    print(f"{'':22s} {'kernels':^14s} {'ms':>8s} {'time / none':>15s} {'all / torch':>12s}")
    print(f"{'':22s} {'none seed all':^14s} {'none':>8s} {'seed':>7s} {'all':>7s}")
    shared = {side: start(side) for side in SIDES}
    for name in arguments.names:
        most = GAINS.get(name, MOST)
        # a program is much memory, and what the fusion alone makes of one may take minutes
        sides = shared if name in PATTERNS else {side: start(side) for side in SIDES if side != SEED}
        if arguments.torch is not None and name in OWN:
            sides[TORCH] = Side("bench.programs_torch", os.environ, arguments.torch)
        found = compare(name, sides, most, arguments.rounds)
        ratios.append(found["all"])
        if found["all"] > most:
            failed.append(f"{name}: {found['all']:.2f}, at most {most}")
        if sides is not shared:
            close(sides)
    close(shared)
    mean = statistics.geometric_mean(ratios)
    print(f"geometric mean of all over none, {len(ratios)} measured: {mean:.2f}")
    # of some of them it says nothing
    if mean > MEAN and set(arguments.names) >= {*PATTERNS, *OWN}:
        failed.append(f"the geometric mean: {mean:.2f}, at most {MEAN}")
    for line in failed:
        print("slower than it may be:", line, file=sys.stderr)
    return 1 if failed else 0


def compare(name: str, sides: dict[str, Side], most: float, rounds: int) -> dict[str, float]:
    """Measures one pattern or program, prints its line, and returns the time of each side over that of none."""
    counts = {side: int(process.ask("prepare", name)) for side, process in sides.items()}
    times = measure(sides, name, rounds)
    # where a process has its buffers in memory is worth a fifth of a matmul's time: others may have a better place
    for _ in range(3):
        if ratio(times, "all") <= most:
            break
        others = {side: start(side) for side in sides if side != TORCH}
        for other in others.values():
            other.ask("prepare", name)
        for side, more in measure(others, name, rounds).items():
            times[side] += more
        close(others)
    found = {side: ratio(times, side) for side in sides}
    shown = " ".join(f"{counts.get(side, ''):>4}" for side in SIDES)
    seed = f"{found[SEED]:7.2f}" if SEED in found else " " * 7
    torch = f"{found['all'] / found[TORCH]:12.1f}" if TORCH in found else ""
    print(f"{name:22s} {shown} {min(times['none']) * 1e3:8.2f} {seed} {found['all']:7.2f} {torch}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
