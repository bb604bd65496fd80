"""`python -m tests.mutate [--places 60] [--seed N] [--only GLOB]`.

First all tests run once on sources that report which test reaches which place. Then each mutant runs the tests that
reach it, the quickest first, until one fails. What is done is kept in `.cache/mutate`, so a run that was stopped goes
on, as long as the sources are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.mutate.places import Place, choose_places, find_places
from tests.mutate.runs import EVERY, ROOT, Copy, Tried, limit_memory, order_tests, record, try_place


def main() -> int:
    asked = read_arguments()
    # `timeout` and `kill` end what it started, too
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    limit_memory()
    files = [file for folder in ("vmapdbg", "tinygrad") for file in sorted((ROOT / folder).rglob("*.py"))]
    names = [file.relative_to(ROOT).as_posix() for file in files]
    # what runs before vmapdbg can be imported cannot report
    names = [name for name in names if fnmatch(name, asked.only) and "/bootstrap/" not in name]
    every = [place for name in names for place in find_places(name, (ROOT / name).read_bytes())]
    places = choose_places(every, asked.places, asked.seed)
    if not places:
        print(f"no places in {asked.only}", file=sys.stderr)
        return 2
    # options and paths of the first pytest
    tests = [*(EVERY if asked.slow else ()), *asked.tests]
    kept = Kept(places, tests)
    end = time.monotonic() + 60 * asked.minutes
    with tempfile.TemporaryDirectory(prefix="vmapdbg-mutate-", ignore_cleanup_errors=True) as folder:
        copy = Copy(Path(folder))
        if not kept.notes:
            print(f"{len(places)} of {len(every)} places; all tests run once", file=sys.stderr, flush=True)
            kept.notes, kept.reports = record(copy, places, tests, asked.jobs)
            kept.save()
        for number, place in enumerate(places):
            if place.name in kept.tried or time.monotonic() > end:
                continue
            reports = [line.partition("\t")[2] for line in kept.reports if line.startswith(f"{number}\t")]
            order = order_tests(kept.notes, reports)
            kept.tried[place.name] = asdict(try_place(copy, place, order, kept.notes, asked.most))
            kept.save()
            print(describe(place, Tried(**kept.tried[place.name])), file=sys.stderr, flush=True)
    return print_table(places, kept)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("--places", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="*", help="a pattern of files: 'vmapdbg/page/*'")
    parser.add_argument("--tests", nargs="*", default=[], help="tests that run; all if none is named")
    parser.add_argument("--slow", action="store_true", help="also slow tests")
    parser.add_argument("--most", type=float, default=400, help="seconds of tests for each mutant")
    parser.add_argument("--minutes", type=float, default=240, help="after so many minutes no mutant is begun")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the first run")
    return parser.parse_args()


class Kept:
    """The file with what is known of some places: the tests, the reports and the mutants that were tried."""

    def __init__(self, places: list[Place], tests: list[str]) -> None:
        # each source with its places, and the tests: changed sources have another file
        text = repr((tests, [place.name for place in places])).encode()
        text += b"".join((ROOT / name).read_bytes() for name in dict.fromkeys(place.file for place in places))
        self.file = ROOT / ".cache" / "mutate" / f"{hashlib.sha256(text).hexdigest()[:16]}.json"
        known: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8")) if self.file.exists() else {}
        self.notes: dict[str, Any] = known.get("notes", {})
        self.reports: list[str] = known.get("reports", [])
        self.tried: dict[str, Any] = known.get("tried", {})

    def save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"notes": self.notes, "reports": self.reports, "tried": self.tried}, indent=1)
        self.file.write_text(text, encoding="utf-8")


def describe(place: Place, tried: Tried) -> str:
    ended = f"killed by {tried.killer}" if tried.killer else f"SURVIVED {tried.tests} tests"
    return f"{place.file}:{place.line}  {place.kind}  {place.shown}\n    {ended}  {tried.seconds:.0f} s"


def print_table(places: list[Place], kept: Kept) -> int:
    """Prints each mutant that was tried. Returns 1 if one survived."""
    tried = [(place, Tried(**kept.tried[place.name])) for place in places if place.name in kept.tried]
    for place, one in tried:
        print(describe(place, one))
    killed = sum(one.killer is not None for _, one in tried)
    print(f"{len(tried)} of {len(places)} places tried: {killed} killed, {len(tried) - killed} survived")
    return 1 if killed < len(tried) else 0


if __name__ == "__main__":
    sys.exit(main())
