"""Compares two runs of the same tests. Knows neither pytest nor tinygrad."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OUTCOME, SCHEDULES = "outcome", "schedules"


class TableError(Exception):
    """differences.toml is not what it should be; the message is one line for the user."""


@dataclass(frozen=True)
class TestResult:
    """What one test did on one side. `digest` is None if it never ran: skipped, or crashed."""

    outcome: str
    message: str = ""
    schedules: int = 0
    kernels: int = 0
    digest: str | None = None

    __test__ = False  # no test class for pytest


@dataclass(frozen=True)
class SideResult:
    """What a whole run did: test id -> result."""

    tests: dict[str, TestResult]
    seconds: float = 0.0

    def count_outcomes(self) -> Counter[str]:
        return Counter(test.outcome for test in self.tests.values())

    def replaced(self, tests: dict[str, TestResult]) -> SideResult:
        return SideResult({**self.tests, **tests}, self.seconds)

    def joined(self, other: SideResult) -> SideResult:
        return SideResult({**self.tests, **other.tests}, self.seconds + other.seconds)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SideResult:
        return cls({name: TestResult(**test) for name, test in data["tests"].items()}, data["seconds"])


@dataclass(frozen=True)
class Difference:
    """One test that is not the same on both sides. `kind` is OUTCOME or SCHEDULES."""

    test: str
    kind: str
    stock: str
    overlay: str
    message: str = ""


@dataclass(frozen=True)
class Listed:
    """One entry of differences.toml: a difference that is meant."""

    test: str
    kind: str
    reason: str
    stock: str | None = None
    overlay: str | None = None

    def covers(self, difference: Difference) -> bool:
        if (self.test, self.kind) != (difference.test, difference.kind):
            return False
        # an outcome entry names both outcomes: passed -> failed is not covered by passed -> skipped
        return self.kind == SCHEDULES or (self.stock, self.overlay) == (difference.stock, difference.overlay)


@dataclass(frozen=True)
class Verdict:
    """`unlisted` and `stale` fail the run: a difference that is not listed, and a listed difference that is gone."""

    unlisted: list[Difference] = field(default_factory=list)
    listed: list[Difference] = field(default_factory=list)
    stale: list[Listed] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return len(self.unlisted) + len(self.stale)


def find_differences(stock: SideResult, overlay: SideResult) -> list[Difference]:
    """Returns the tests whose outcome differs, and the tests that end alike but scheduled other kernels."""
    missing = TestResult("missing")
    differences = []
    for test in sorted(stock.tests.keys() | overlay.tests.keys()):
        left, right = stock.tests.get(test, missing), overlay.tests.get(test, missing)
        if left.outcome != right.outcome:
            message = right.message or left.message
            differences.append(Difference(test, OUTCOME, left.outcome, right.outcome, message))
        elif left.digest != right.digest:
            differences.append(Difference(test, SCHEDULES, describe_kernels(left), describe_kernels(right)))
    return differences


def describe_kernels(test: TestResult) -> str:
    return f"{test.schedules} schedules, {test.kernels} kernels, {(test.digest or 'none')[:12]}"


def judge(differences: list[Difference], listed: Iterable[Listed], files: Iterable[str]) -> Verdict:
    """Sorts the differences. An entry about a file that is not in `files` did not run: it is not stale."""
    ran = set(files)
    entries = [entry for entry in listed if entry.test.split("::")[0].rsplit("/", 1)[-1] in ran]
    met = [difference for difference in differences if any(entry.covers(difference) for entry in entries)]
    return Verdict(
        unlisted=[difference for difference in differences if difference not in met],
        listed=met,
        stale=[entry for entry in entries if not any(entry.covers(difference) for difference in met)],
    )


def read_listed(path: Path) -> list[Listed]:
    """Reads differences.toml. Every entry has a reason. Raises TableError."""
    try:
        table = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise TableError(f"{path.name}: {error}") from None
    unknown = set(table) - {OUTCOME, SCHEDULES}
    if unknown:
        raise TableError(f"{path.name}: unknown table {sorted(unknown)[0]!r}")
    return [read_entry(path, kind, entry) for kind in (OUTCOME, SCHEDULES) for entry in table.get(kind, [])]


def read_entry(path: Path, kind: str, entry: dict[str, str]) -> Listed:
    required = {"test", "reason"} | ({"stock", "overlay"} if kind == OUTCOME else set())
    filled = all(isinstance(value, str) and value.strip() for value in entry.values())
    if set(entry) != required or not filled:
        raise TableError(f"{path.name}: a [[{kind}]] entry has {', '.join(sorted(required))}, not {entry}")
    return Listed(kind=kind, **entry)
