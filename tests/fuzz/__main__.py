"""`python -m tests.fuzz --seconds N --seed S`: runs random vmapped programs and compares them with numpy.

`python -m tests.fuzz hunt` runs programs of plain tinygrad on several releases, see hunt/__main__.py.

Exit code 0: nothing found. 1: something was found; each is printed as a snippet for `vmapdbg show`, made small.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from .check import CODEGEN, STOCK, Outcome, Runner
from .draw import Draw, SeededDraw, shrink
from .generate import generate
from .program import Invalid, Program
from .source import to_source

MOST_FAILURES = 20
SHRINK_SECONDS = 120
"""How long to make one failure smaller."""


def main() -> int:
    if sys.argv[1:2] == ["hunt"]:
        from .hunt.__main__ import main as hunt

        return hunt(sys.argv[2:])
    args = parse_arguments()
    runner, counts, found = Runner(args.timeout), Counter[str](), 0
    began = time.monotonic()
    number = 0
    while time.monotonic() - began < args.seconds and number < args.programs and found < MOST_FAILURES:
        draw = SeededDraw((args.seed, number))
        try:
            program = generate(draw)
        except Invalid:
            counts["not drawn"] += 1
        else:
            outcome = runner.check(program)
            counts[outcome.kind] += 1
            if outcome.kind in (STOCK, CODEGEN):
                print(f"number {number}: {outcome.kind}: {first_line(outcome.detail)}", file=sys.stderr, flush=True)
            if outcome.failed:
                found += 1
                report(draw, outcome, runner, f"seed{args.seed}_{number}")
        number += 1
    runner.stop()
    print_counts(counts, time.monotonic() - began)
    return 1 if found else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to draw new programs")
    parser.add_argument("--programs", type=int, default=sys.maxsize, help="how many programs to draw at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which a program hangs")
    return parser.parse_args()


def report(draw: Draw, outcome: Outcome, runner: Runner, name: str) -> None:
    print(f"\n{name}: {outcome.kind}: {first_line(outcome.detail)}; making it smaller", file=sys.stderr, flush=True)

    def fails_alike(program: Program) -> bool:
        try:
            found = runner.check(program)
        except Invalid:
            return False
        return found.failed and found.same_as(outcome)

    program = shrink(draw, generate, fails_alike, Invalid, SHRINK_SECONDS)
    outcome = runner.check(program)
    detail = "\n".join(f"#   {line}" for line in (outcome.traceback or outcome.detail).strip().splitlines()[-8:])
    print(f"# {name}: {outcome.kind}\n{detail}\n{to_source(program)}", flush=True)


def first_line(text: str) -> str:
    return text.strip().split("\n")[0][:200]


def print_counts(counts: Counter[str], seconds: float) -> None:
    total = sum(counts.values()) - counts["not drawn"]
    listed = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    print(f"{seconds:6.0f} s: {total} programs, {total / seconds:.1f} a second: {listed}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
