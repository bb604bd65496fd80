"""The upstream lane of fusion: fewer kernels are listed with both counts, and nothing else may differ."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.upstream import __main__ as lane
from tests.upstream.compare import SideResult, TableError, TestResult
from tests.upstream.fusion import Counts, compare_counts, find_counts, format_counts, read_counts
from tests.upstream.sides import Bench, Side

COUNTED, ALIKE = "test/test_schedule.py::T::test_counted", "test/test_schedule.py::T::test_alike"
VALUES = "test/test_ops.py::T::test_values"
FEWER = "test_schedule.py:36: test_schedule.KernelCountException: 1 != 2"


def side(**tests: TestResult) -> SideResult:
    names = {"counted": COUNTED, "alike": ALIKE, "values": VALUES}
    return SideResult({names[name]: test for name, test in tests.items()})


def test_a_count_that_a_test_names_is_taken_from_its_message() -> None:
    stock = side(counted=TestResult("passed", "", 1, 2, "a"), values=TestResult("passed", "", 1, 2, "a"))
    fused = side(counted=TestResult("failed", FEWER, 1, 1, "b"), values=TestResult("passed", "", 1, 1, "b"))
    assert find_counts(stock, fused) == ([Counts(COUNTED, 2, 1)], [])


def test_a_test_that_ends_alike_is_counted_by_its_schedules() -> None:
    stock, fused = (side(alike=TestResult("passed", "", 1, kernels, str(kernels))) for kernels in (5, 3))
    assert find_counts(stock, fused) == ([Counts(ALIKE, 5, 3)], [])


@pytest.mark.parametrize("name", ["counted", "values"])
def test_any_other_failure_is_a_difference(name: str) -> None:
    stock, fused = side(**{name: TestResult("passed")}), side(**{name: TestResult("failed", "RuntimeError: shape")})
    counts, (other,) = find_counts(stock, fused)
    assert counts == []
    assert other.overlay == "failed"


def test_a_difference_from_the_list_is_reported() -> None:
    listed = [Counts(COUNTED, 2, 1), Counts(ALIKE, 5, 3)]
    assert compare_counts(listed, listed) == []
    assert compare_counts([Counts(COUNTED, 3, 1)], listed) == [
        f"{ALIKE}: kernels alike, listed 5 -> 3",
        f"{COUNTED}: kernels 3 -> 1, listed 2 -> 1",
    ]


def test_the_table_is_read_back_and_refuses_more_kernels(tmp_path: Path) -> None:
    table = tmp_path / "fewer_kernels.toml"
    table.write_text(format_counts([Counts(COUNTED, 2, 1), Counts(ALIKE, 5, 5)]))
    assert sorted(read_counts(table), key=str) == sorted([Counts(COUNTED, 2, 1), Counts(ALIKE, 5, 5)], key=str)
    table.write_text(format_counts([Counts(COUNTED, 1, 2)]))
    with pytest.raises(TableError, match="has more kernels than stock"):
        read_counts(table)


class RecordedBench(Bench):
    """Runs nothing: notes what it is asked for, and every file has one test that passes."""

    def run(self, side: Side, tests: Sequence[str], workers: int | None = None) -> SideResult:
        self.asked.append(list(tests))
        return SideResult({f"{file}::test": TestResult("passed") for file in tests}, 6.0)

    def stock_cache_file(self, tests: Sequence[str]) -> Path:
        (file,) = tests
        return self.cache_dir / file.replace("/", "-")

    @functools.cached_property
    def asked(self) -> list[list[str]]:
        return []


def test_stocks_outcome_of_a_file_is_kept_for_every_lane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both lanes run test_ops.py, which takes minutes: the second one takes over the outcome of the first."""
    monkeypatch.setattr(lane, "ROOT", tmp_path)
    bench = RecordedBench(tmp_path, tmp_path, 2, 60)
    first = lane.run_stock(bench, ["test/a.py", "test/b.py"], fresh=False)
    assert list(first.tests) == ["test/a.py::test", "test/b.py::test"]
    second = lane.run_stock(bench, ["test/b.py", "test/c.py"], fresh=False)
    assert list(second.tests) == ["test/b.py::test", "test/c.py::test"]
    lane.run_stock(bench, ["test/b.py"], fresh=True)
    assert bench.asked == [["test/a.py", "test/b.py"], ["test/c.py"], ["test/b.py"]]
