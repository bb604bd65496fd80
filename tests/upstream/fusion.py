"""What fuse-broadcast changes in upstream's tests: `python -m tests.upstream --fusion`.

test_ops.py ends on the overlay as on stock: the values are right. test_schedule.py differs by fewer kernels and by
nothing else: its tests say how many kernels they allow, and fail for another number. fewer_kernels.toml lists
each of them with both counts. A test that differs and is not listed fails the run, and so does an entry that is no
longer so.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.upstream.compare import OUTCOME, Difference, SideResult, find_differences

PATCHES = "fuse-broadcast"
VALUES, COUNTS = "test_ops.py", "test_schedule.py"
# how a test of test_schedule.py says that it found another number of kernels: found != allowed
COUNT_MESSAGE = re.compile(r"(?:KernelCountException|AssertionError): (\d+) != (\d+)")


class TableError(Exception):
    """fewer_kernels.toml is not what it should be; the message is one line for the user."""


@dataclass(frozen=True)
class Counts:
    """A test whose kernels differ: how many there are in stock's schedules and with fuse-broadcast."""

    test: str
    stock: int
    fused: int


def read_counts(path: Path) -> list[Counts]:
    """Reads fewer_kernels.toml. Raises TableError for an entry with more kernels than stock."""
    entries = [Counts(test, *counts) for test, counts in tomllib.loads(path.read_text()).items()]
    for entry in entries:
        if entry.fused > entry.stock:
            raise TableError(f"{path.name}: {entry.test} has more kernels than stock ({entry.stock} -> {entry.fused})")
    return entries


def find_counts(stock: SideResult, fused: SideResult) -> tuple[list[Counts], list[Difference]]:
    """Returns the tests of test_schedule.py that differ in their kernels, and what differs otherwise."""
    counts, others = [], []
    for difference in find_differences(stock, fused):
        in_counts = f"/{COUNTS}::" in difference.test
        found = COUNT_MESSAGE.search(difference.message)
        if difference.kind != OUTCOME:
            if in_counts:  # the values of test_ops.py are compared, not its kernels
                left, right = stock.tests[difference.test], fused.tests[difference.test]
                counts.append(Counts(difference.test, left.kernels, right.kernels))
        elif in_counts and found and (difference.stock, difference.overlay) == ("passed", "failed"):
            counts.append(Counts(difference.test, int(found[2]), int(found[1])))
        else:
            others.append(difference)
    return counts, others


def compare_counts(found: Iterable[Counts], listed: Iterable[Counts]) -> list[str]:
    """Returns a line for each test whose counts are not the listed counts."""
    now, known = {entry.test: entry for entry in found}, {entry.test: entry for entry in listed}
    lines = []
    for test in sorted(now.keys() | known.keys()):
        if now.get(test) != known.get(test):
            lines.append(f"{test}: kernels {describe(now.get(test))}, listed {describe(known.get(test))}")
    return lines


def describe(entry: Counts | None) -> str:
    return "alike" if entry is None else f"{entry.stock} -> {entry.fused}"


def format_counts(found: Iterable[Counts]) -> str:
    """Returns the text of fewer_kernels.toml for these tests."""
    head = "# Tests of tinygrad 0.12.0 whose kernels fuse-broadcast changes: [kernels of stock, kernels with it].\n"
    lines = [f'"{entry.test}" = [{entry.stock}, {entry.fused}]' for entry in sorted(found, key=lambda e: e.test)]
    return head + "\n".join(lines) + "\n"
