"""Compares two runs of the same tests. Knows neither pytest nor tinygrad."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

OUTCOME, SCHEDULES = "outcome", "schedules"


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
