"""`python -m tests.fuzz --seconds N --seed S --shard i/n`: runs random vmapped programs and compares them with numpy.

`python -m tests.fuzz hunt` runs programs of plain tinygrad on several releases, see hunt/__main__.py.

Exit code 0: nothing found. 1: something was found; each is printed as a snippet for `vmapdbg show`, made small.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from .check import CODEGEN, STOCK, Outcome, Runner
from .draw import RecordedDraw, SeededDraw, shrink
from .generate import generate
from .program import Invalid, Program
from .source import to_source


def main() -> int:
    if sys.argv[1:2] == ["hunt"]:
        from .hunt.__main__ import main as hunt

        return hunt(sys.argv[2:])
    args = parse_arguments()
    shard, shards = args.shard
    runner, counts, found = Runner(args.timeout), Counter[str](), 0
    began = reported = time.monotonic()
    number = args.start + shard
    drawn = 0
    while time.monotonic() - began < args.seconds and drawn < args.programs and found < args.max_failures:
        drawn += 1
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
                report(draw, outcome, runner, f"seed{args.seed}_{number}", args)
        number += shards
        if time.monotonic() - reported > args.every:
            reported = time.monotonic()
            say_progress(counts, reported - began, number)
    runner.stop()
    say_progress(counts, time.monotonic() - began, number)
    return 1 if found else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to draw new programs")
    parser.add_argument("--programs", type=int, default=sys.maxsize, help="how many programs to draw at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", type=parse_shard, default=(0, 1), help="i/n: programs i, i+n, i+2n, ... of the seed")
    parser.add_argument("--start", type=int, default=0, help="the number of the first program")
    parser.add_argument("--timeout", type=float, default=60, help="seconds after which a program hangs")
    parser.add_argument("--shrink-seconds", type=float, default=120, help="how long to make one failure smaller")
    parser.add_argument("--max-failures", type=int, default=20, help="stop after so many")
    parser.add_argument("--every", type=float, default=15, help="seconds between two lines of progress")
    parser.add_argument("--out", type=Path, help="a folder for the snippets")
    return parser.parse_args()


def parse_shard(text: str) -> tuple[int, int]:
    i, slash, n = text.partition("/")
    if not slash or not i.isdecimal() or not n.isdecimal() or not int(i) < int(n):
        raise argparse.ArgumentTypeError(f"{text!r} is not i/n with i < n, such as 0/2")
    return int(i), int(n)


def report(draw: RecordedDraw, outcome: Outcome, runner: Runner, name: str, args: argparse.Namespace) -> None:
    print(f"\n{name}: {outcome.kind}: {first_line(outcome.detail)}; making it smaller", file=sys.stderr, flush=True)

    def fails_alike(program: Program) -> bool:
        try:
            found = runner.check(program)
        except Invalid:
            return False
        return found.failed and found.same_as(outcome)

    program = shrink(draw, generate, fails_alike, Invalid, args.shrink_seconds)
    outcome = runner.check(program)
    detail = "\n".join(f"#   {line}" for line in (outcome.traceback or outcome.detail).strip().splitlines()[-8:])
    snippet = f"# {name}: {outcome.kind}\n{detail}\n{to_source(program)}"
    print(snippet, flush=True)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{name}.py").write_text(snippet)


def first_line(text: str) -> str:
    return text.strip().split("\n")[0][:200]


def say_progress(counts: Counter[str], seconds: float, number: int) -> None:
    total = sum(counts.values()) - counts["not drawn"]
    listed = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    print(
        f"{seconds:6.0f} s: {total} programs, {total / seconds:.1f} a second: {listed}; next is {number}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
