"""`python -m tests.fuzz hunt --minutes 60 --shard 0/2 --out DIR`: random programs of plain tinygrad on stock releases
and on the patches. Every realize is compared with the numpy reference.

A program that fails is made small and written to DIR, one line each; `--merge DIR` prints the finds there by cause.
Exit code 0: nothing found. 1: something was.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.draw import SeededDraw
from tests.fuzz.hunt.draw import draw_plan
from tests.fuzz.hunt.finds import MOST_ALIKE, Find, add_find, describe, merge, name_cause, name_group, read_finds
from tests.fuzz.hunt.plan import write_program
from tests.fuzz.hunt.runner import PATCHES, Outcome, Runner
from vmapdbg.bisect.smaller import shrink

BASE = "0.12.0"
TARGETS = (BASE, "0.13.0", "0.14.0", PATCHES)


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(arguments)
    if args.merge is not None:
        for cause, finds in merge(read_finds(args.merge)).items():
            print(describe(cause, finds))
        return 0
    return Hunt(args).run()


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz hunt", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2, help="how long to draw new programs")
    parser.add_argument("--programs", type=int, default=sys.maxsize, help="how many programs to draw at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the number of the first program")
    parser.add_argument("--shard", type=parse_shard, default=(0, 1), help="i/n: programs i, i+n, i+2n, ... of the seed")
    parser.add_argument("--on", type=lambda text: text.split(","), default=list(TARGETS), help="releases, `patches`")
    parser.add_argument("--timeout", type=float, default=12, help="seconds after which a program hangs")
    parser.add_argument("--reduce-seconds", type=float, default=60, help="how long to make one find smaller")
    parser.add_argument("--out", type=Path, default=Path("finds"), help="the folder for what is found")
    parser.add_argument("--merge", type=Path, help="print what is in such a folder instead")
    return parser.parse_args(arguments)


def parse_shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not i/n with i < n, such as 0/2")
    return int(found[1]), int(found[2])


class Hunt:
    """One process's part of the hunt."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.runners = {name: Runner(name, args.timeout) for name in args.on}
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in args.on}
        args.out.mkdir(parents=True, exist_ok=True)
        self.file: Path = args.out / f"finds-{args.seed}-{args.start}-{args.shard[0]}-{args.shard[1]}.jsonl"
        # the place of a crash or a hang, and the release
        self.known = {(f.release, f.cause) for f in read_finds(args.out) if f.kind in ("crash", "hang")}
        self.groups: Counter[str] = Counter()
        self.began = time.monotonic()
        self.found = 0

    def run(self) -> int:
        number = self.args.start + self.args.shard[0]
        reported = self.began
        drawn = 0
        while time.monotonic() - self.began < self.args.minutes * 60 and drawn < self.args.programs:
            drawn += 1
            self.try_number(number)
            number += self.args.shard[1]
            if time.monotonic() - reported > 30:
                reported = time.monotonic()
                self.say(drawn, number)
        self.say(drawn, number)
        for runner in self.runners.values():
            runner.stop()
        return 1 if self.found else 0

    def say(self, drawn: int, number: int) -> None:
        counts = "; ".join(
            f"{name}: {', '.join(f'{n} {kind}' for kind, n in counted.most_common())}"
            for name, counted in self.counts.items()
        )
        seconds = time.monotonic() - self.began
        print(f"{seconds:6.0f} s, {drawn} programs, next is {number}, {self.found} finds; {counts}", file=sys.stderr)

    def try_number(self, number: int) -> None:
        source = write_program(draw_plan(SeededDraw((self.args.seed, number))))
        outcomes = self.run_all(source, self.args.on)
        for name, outcome in outcomes.items():
            self.counts[name][outcome.kind] += 1
        for name in self.args.on:
            outcome = outcomes[name]
            # a fault of the patches alone is reported each time
            is_ours = name == PATCHES and BASE in outcomes and outcomes[BASE].kind != outcome.kind
            if not outcome.is_fault or ((name, outcome.signature) in self.known and not is_ours):
                continue
            group = name_group(outcome.kind, f"{name} {is_ours}", source)
            self.groups[group] += 1
            if self.groups[group] > MOST_ALIKE:
                continue
            on = self.keep(source, name, outcome, number)
            # the others that fail alike are said there
            for other, kind in on.items():
                if kind == outcomes[other].kind:
                    outcomes[other] = Outcome("ok")

    def run_all(self, source: str, names: list[str]) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        for name in names:
            base = outcomes.get(BASE) if name == PATCHES else None
            # what hangs on what the patches are made for hangs with them
            outcomes[name] = self.runners[name].run(source) if base is None or base.kind != "hang" else base
        for name in find_odd({name: o.printed for name, o in outcomes.items() if o.kind == "ok"}):
            outcomes[name] = Outcome("differs", "the other releases print other numbers", (), outcomes[name].printed)
        return outcomes

    def keep(self, source: str, name: str, outcome: Outcome, number: int) -> dict[str, str]:
        """Makes a program small that fails on one tinygrad, and saves it. Returns its result on each tinygrad."""

        def fails(candidate: str) -> bool:
            if outcome.kind == "differs":
                return self.run_all(candidate, self.args.on)[name].kind == "differs"
            found = self.runners[name].run(candidate)
            return found.kind == outcome.kind and found.signature == outcome.signature

        # a hang costs its timeout each time
        seconds = self.args.reduce_seconds * (2 if outcome.kind == "hang" else 1)
        source = [source, *shrink(source, lambda candidates: list(map(fails, candidates)), 1, seconds)][-1]
        outcomes = self.run_all(source, self.args.on)
        said = outcomes[name] if outcomes[name].kind == outcome.kind else outcome
        on = {other: found.kind for other, found in outcomes.items()}
        cause = name_cause(outcome.kind, outcome.signature, said.detail, source)
        if outcome.kind in ("crash", "hang"):
            for other, found in outcomes.items():
                self.known.add((other, found.signature))
            self.known.add((name, outcome.signature))
        detail = f"{said.detail} {' '.join(said.trace)}".strip()
        where = f"seed {self.args.seed} number {number}"
        find = Find(outcome.kind, name, cause, detail, source, on, where, time.monotonic() - self.began)
        add_find(self.file, find)
        self.found += 1
        print(f"{where} on {name}: {cause}: {detail[:150]}", file=sys.stderr, flush=True)
        return on


def find_odd(printed: dict[str, str]) -> list[str]:
    """Those whose numbers are others than what most print."""
    if len(printed) < 3:
        return []
    groups: list[list[str]] = []
    for name, text in printed.items():
        group = next((g for g in groups if is_close(printed[g[0]], text)), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    groups.sort(key=len)
    most = groups.pop()
    return [name for group in groups for name in group] if len(most) >= 2 else []


def is_close(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    a, b = (list(map(float, re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?|nan|inf", text))) for text in (ours, theirs))
    return len(a) == len(b) and all(
        x == y or x != x or abs(x - y) <= 1e-2 + 1e-2 * abs(y) for x, y in zip(a, b, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
