"""What fusion brings on the CPU device: `python -m bench.fusion [--rounds N] [PATTERN ...]`.

For each pattern of `bench.fusion_patterns`: the time of one call with all patches over that with none, and the same
for seed 002's change alone (`fuse-broadcast` without `local-budget` and `fusion-guard`), so that the table shows what
the guard is for. Each side is a process; they take turns, so that a machine that slows down slows all of them. A figure
is a ratio of the least times: what else runs on the machine only ever adds to a time.

Exit status 1: a pattern is slower than 1.02 of none, or softmax or RMSNorm is not under 0.85.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from bench.fusion_patterns import PATTERNS
from bench.sides import ROOT, side_environment

SIDES = {"none": "none", "seed": "all,-fusion-guard,-local-budget", "all": "all"}
# a slower pattern is one that the guard should have refused; two percent is what repeated runs of one program differ by
MOST = 1.02
MUST_GAIN, GAIN = ("softmax", "RMSNorm"), 0.85


class Side:
    """A process that runs the patterns under one state of the patches."""

    def __init__(self, spec: str):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.fusion_patterns"],
            env=side_environment(spec),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: str, name: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(request, name, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{request} {name!r}: the process ended with status {self.process.wait()}")
        return float(answer)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def measure(sides: dict[str, Side], name: str, rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each side, one figure a round. The order of the sides turns with each round."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    order = list(sides)
    for _ in range(rounds):
        for side in order:
            times[side].append(sides[side].ask("time", name))
        order.append(order.pop(0))
    return times


def ratio(times: dict[str, list[float]], side: str) -> float:
    return min(times[side]) / min(times["none"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=list(PATTERNS), metavar="PATTERN", help="default: all of them")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each side")
    arguments = parser.parse_args()
    sides = {name: Side(spec) for name, spec in SIDES.items()}
    failed = []
    print(f"{'':22s} {'kernels':^14s} {'ms':>8s} {'time / none':>15s}")
    print(f"{'pattern':22s} {'none seed all':^14s} {'none':>8s} {'seed':>7s} {'all':>7s}")
    for name in arguments.patterns:
        counts = [int(side.ask("prepare", name)) for side in sides.values()]
        times, most = measure(sides, name, arguments.rounds), GAIN if name in MUST_GAIN else MOST
        # where a process has its buffers in memory is worth a fifth of a matmul's time: others may have a better place
        for _ in range(3):
            if ratio(times, "all") <= most:
                break
            others = {side: Side(spec) for side, spec in SIDES.items()}
            for other in others.values():
                other.ask("prepare", name)
            for side, more in measure(others, name, arguments.rounds).items():
                times[side] += more
            for other in others.values():
                other.close()
        seed, patched = ratio(times, "seed"), ratio(times, "all")
        if patched > most:
            failed.append(f"{name}: {patched:.2f}, at most {most}")
        shown = " ".join(f"{count:4d}" for count in counts)
        print(f"{name:22s} {shown} {min(times['none']) * 1e3:8.2f} {seed:7.2f} {patched:7.2f}", flush=True)
    for side in sides.values():
        side.close()
    for line in failed:
        print("slower than it may be:", line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
