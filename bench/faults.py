"""What the tool finds of the faults that tests/faults plants in the scheduler: `python -m bench.faults [NAME ...]`.

One row a fault: the codes that lint reports without running anything, those that check reports of a run, and for each
the place among its findings of the first one that names the right line (lint: and the right node).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tests.faults_check.outcomes import Outcome, check_faults

ROOT = Path(__file__).parent.parent


class Counts(NamedTuple):
    """Of `total` faults so many are found, with the right place first, or among the first three."""

    total: int
    found: int
    first: int
    third: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults of tests/faults/table.py, default all")
    names = parser.parse_args().names
    os.environ.setdefault("DEV", "PYTHON")
    start = time.monotonic()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed} faults"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        linted = lint_faults(names, bar)
        unknown = [name for name in names if name not in {row["name"] for row in linted}]
        if unknown:
            parser.error(f"no fault is called {', '.join(unknown)}")
        lint_seconds = time.monotonic() - start
        checked = run_faults(names, bar)
    print_results(linted, checked, lint_seconds, time.monotonic() - start - lint_seconds)


def lint_faults(names: Sequence[str], bar: Progress) -> list[dict[str, Any]]:
    """Returns a row for each fault, of the table and of the runner together."""
    command = [sys.executable, "-m", "tests.faults.runner", *names]
    task = bar.add_task("lint", total=None)
    found = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found.append(json.loads(line))
            bar.update(task, advance=1)
    if process.returncode:
        raise SystemExit("bench.faults: the runner failed")
    return found


def run_faults(names: Sequence[str], bar: Progress) -> dict[str, Outcome]:
    task = bar.add_task("check", total=None)
    found = {}
    with tempfile.TemporaryDirectory(prefix="vmapdbg-faults-") as folder:
        for outcome in check_faults(Path(folder), names):
            found[outcome.name] = outcome
            bar.update(task, advance=1)
    return found


def print_results(
    linted: list[dict[str, Any]], checked: dict[str, Outcome], lint_seconds: float, check_seconds: float
) -> None:
    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("fault", ratio=1)
    for column in ("lint", "place", "check", "place"):
        table.add_column(column)
    for row in linted:
        name = Text.assemble((row["name"], "bold"), "\n", (row["what"], "dim"))
        table.add_row(name, *describe_lint(row), *describe_check(row, checked.get(row["name"])))
    console.print(table)
    seen = [row for row in linted if row["codes"]]
    lint_counts = count((row["found"], row["rank"]) for row in seen)
    console.print(format_counts("lint", "that it can see, running nothing", lint_counts, lint_seconds))
    unseen = Counter(row["unseen"] for row in linted if not row["codes"])
    for reason, number in unseen.items():
        console.print(f"  {number} not for lint: {reason}")
    check_counts = count((bool(outcome.findings), outcome.rank) for outcome in checked.values())
    console.print(format_counts("check", "that change values", check_counts, check_seconds))
    stopped = sum(outcome.stopped for outcome in checked.values())
    if stopped:
        console.print(f"  {stopped} of them stop the program")
    elsewhere = Counter(row["target"] for row in linted if row["wrong_values"] and row["name"] not in checked)
    for target, number in elsewhere.items():
        console.print(f"  {number} more not run: it needs {target}")


def count(found: Iterable[tuple[bool, int | None]]) -> Counts:
    """Counts (whether it is found, the place of the right finding) of each fault."""
    results = list(found)
    places = [rank for is_found, rank in results if is_found and rank is not None]
    return Counts(
        total=len(results),
        found=sum(is_found for is_found, _ in results),
        first=places.count(1),
        third=sum(place <= 3 for place in places),
    )


def format_counts(tool: str, which: str, counts: Counts, seconds: float) -> str:
    return (
        f"{tool}: finds {counts.found} of the {counts.total} faults {which}; the right place first for {counts.first}, "
        f"among the first three for {counts.third} ({seconds:.1f} s)"
    )


def describe_lint(row: dict[str, Any]) -> tuple[str, str]:
    if not row["codes"]:
        return "-", ""
    codes = join_codes(finding["code"] for finding in row["findings"])
    return codes if row["found"] else f"NOT FOUND {codes}", format_place(row["rank"])


def describe_check(row: dict[str, Any], outcome: Outcome | None) -> tuple[str, str]:
    if outcome is None:
        return f"({row['target']})" if row["wrong_values"] else "-", ""
    codes = join_codes(finding.code for finding in outcome.findings)
    return codes or "NOT FOUND", format_place(outcome.rank)


def join_codes(codes: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(codes))


def format_place(rank: int | None) -> str:
    return "no" if rank is None else str(rank)


if __name__ == "__main__":
    main()
