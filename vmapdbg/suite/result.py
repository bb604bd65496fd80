"""The result of comparing two saved runs: the JSON document of `vmapdbg diff DIR DIR --json`.

Costs are in nanoseconds of a made-up machine (`vmapdbg.suite.kinds`): they rank changes, they predict nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vmapdbg.model.capture import Versions
from vmapdbg.model.vocabulary import SuiteChangeKind


@dataclass(frozen=True)
class SuiteSide:
    """One saved run, with sums over all of its tests. `status` is the exit code of its program, None if the run did not
    end. `failed` counts schedules that could not be rendered."""

    folder: str
    versions: Versions
    target: str
    patches: dict[str, bool]
    program: tuple[str, ...]
    status: int | None
    tests: int
    schedules: int
    kernels: int
    cost: int
    failed: int


@dataclass(frozen=True)
class SuiteExample:
    """One place of a change: the test, the user's line, the names of the kernels on both sides."""

    test: str
    line: str | None
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class SuiteGroup:
    """One change in all tests that have it; the test with the largest added cost is the first.

    `count` is how often it was found. Each time `kernels_before` kernels became `kernels_after`; `form` has the first
    parts of their names (`r, E -> r`: a reduce and an elementwise kernel became one reduce). `causes` are realize
    points that are gone (`-REDUCE_AXIS: ending-ranges`) or new (`+`). `ratios` are the smallest and the largest ratio
    of after to before, if any. `cost_before` and `cost_after` are sums.
    """

    kind: SuiteChangeKind
    kernels_before: int
    kernels_after: int
    form: str
    causes: tuple[str, ...]
    ratios: tuple[float, ...]
    count: int
    cost_before: int
    cost_after: int
    tests: tuple[str, ...]
    example: SuiteExample

    @property
    def added(self) -> int:
        """The added cost; negative if the change saves time."""
        return self.cost_after - self.cost_before


@dataclass(frozen=True)
class SuiteTest:
    """A test whose kernels changed."""

    test: str
    kernels_before: int
    kernels_after: int
    cost_before: int
    cost_after: int


@dataclass(frozen=True)
class SuiteDiff:
    """Two saved runs compared.

    `groups` are the changes, the largest added cost first. `left_out` are tests that cannot be compared because of a
    damaged file; `damaged` has a line for each such file.
    """

    schema: Literal[1]
    kind: Literal["suite-diff"]
    before: SuiteSide
    after: SuiteSide
    unchanged: int
    changed: tuple[SuiteTest, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    groups: tuple[SuiteGroup, ...]
    left_out: tuple[str, ...]
    damaged: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no kernel changed in the tests that both runs have."""
        return not self.changed
