"""`python -m tests.upstream` is strict: it fails for any difference. The lane of fusion lists fewer kernels with both
counts.

If one of these fails, CI may pass although the overlay breaks programs that work on stock tinygrad.
"""

from __future__ import annotations

import functools
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.upstream import __main__ as lane
from tests.upstream import check, compare, fetch
from tests.upstream.compare import SideResult, TestResult
from tests.upstream.fusion import Counts, TableError, compare_counts, find_counts, format_counts, read_counts
from tests.upstream.sides import Bench, RunError, Side

ONE, TWO = (f"test/test_schedule.py::TestSchedule::test_{name}" for name in ("one", "two"))


def side(outcome: str = "passed", key: str | None = "k", test: str = ONE) -> SideResult:
    return SideResult({test: TestResult(outcome, "", 1, 2, key)})


PASSED, FAILED = side(), side("failed")
BOTH = SideResult({**PASSED.tests, **side(test=TWO).tests})

# stock, overlay -> the differences: kind and test
DIFFERENCES: dict[str, tuple[SideResult, SideResult, list[tuple[str, str]]]] = {
    "equal": (PASSED, PASSED, []),
    "no network, on either side": (FAILED, FAILED, []),
    "another outcome": (PASSED, FAILED, [("outcome", ONE)]),
    "a fixed test": (FAILED, PASSED, [("outcome", ONE)]),
    "missing on the overlay": (BOTH, PASSED, [("outcome", TWO)]),
    "missing on stock": (PASSED, BOTH, [("outcome", TWO)]),
    "other kernels": (PASSED, side(key="other"), [("schedules", ONE)]),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_another_outcome_and_other_kernels_are_differences(case: str) -> None:
    stock, overlay, expected = DIFFERENCES[case]
    assert [(found.kind, found.test) for found in compare.find_differences(stock, overlay)] == expected


def test_result_survives_the_cache() -> None:
    result = SideResult({ONE: TestResult("failed", "message", 1, 2, "k")}, 3.0)
    assert SideResult.from_json(result.to_json()) == result


def test_unpacking_takes_only_regular_files_of_the_test_folder(tmp_path: Path) -> None:
    """An archive from an index must not write elsewhere on the user's machine."""
    sdist = tmp_path / "sdist.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("top/test/test_a.py", "top/setup.py", "top/test/../../escaped.py", "/top/test/absolute.py"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"text"))
        link = tarfile.TarInfo("top/test/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    fetch.unpack_tests(sdist, tmp_path / "a" / "unpacked")
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == ["a/unpacked/pytest.ini", "a/unpacked/test/test_a.py", "sdist.tar.gz"]


# *** the lane of check


def test_only_a_proved_finding_of_a_test_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    (code, test), *_ = check.TRUE_FINDINGS
    known = {"code": code, "line": "a.py:1", "times": 1, "message": "wrong", "tests": [f"test/unit/{test}"]}
    document: dict[str, Any] = {"findings": [known], "endless": [], "numbers": []}
    assert check.print_findings(document, check.TRUE_FINDINGS) == 0
    number = {**known, "code": "VD302", "message": "1 output with 0 right digits left"}
    assert check.print_findings(document | {"numbers": [number]}, check.TRUE_FINDINGS) == 1
    numbers = [{**number, "code": "VD301"}, {**number, "code": "VD303", "message": "(Tensor.empty)"}]
    assert check.print_findings(document | {"numbers": numbers}, check.TRUE_FINDINGS) == 0
    for other in ({**known, "code": "VD201"}, {**known, "tests": [*known["tests"], ONE]}):
        assert check.print_findings(document | {"endless": [other]}, check.TRUE_FINDINGS) == 1
    assert capsys.readouterr().out.count("  FINDING ") == 3


@pytest.mark.parametrize(("still_there", "claimed"), [((), 0), (("a.py::test_drawn",), 1)])
def test_a_finding_that_is_gone_with_draws_at_once_is_proved(
    still_there: Sequence[str], claimed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def find(*tests: str) -> dict[str, Any]:
        found = [{"code": "VD209", "line": "a.py:1", "times": 1, "message": "wrong", "tests": list(tests)}]
        return {**dict.fromkeys(check.COUNTED, 1), "unchecked": {}, "findings": found, "endless": [], "numbers": []}

    def run_check(*given: object) -> dict[str, Any]:
        return find(*still_there) if check.DRAWS_PLUGIN in given else find("test/a.py::test_drawn")

    monkeypatch.setattr(check, "fetch_tests", lambda *_: tmp_path)
    monkeypatch.setattr(check, "find_tests", lambda *_: ["test/a.py"])
    monkeypatch.setattr(check, "run_check", run_check)
    assert check.check_tests(tmp_path, "CLONE@v0.13.0", "none", (), 1) == claimed


def test_the_tests_of_every_release_are_found(tmp_path: Path) -> None:
    for name in ("test_jit.py", "unit/test_assign.py", "backend/test_jit.py", "null/test_jit.py", "unit/test_other.py"):
        file = tmp_path / "test" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    found = ["test/unit/test_assign.py", "test/test_jit.py", "test/backend/test_jit.py"]
    assert check.find_tests(tmp_path, []) == found
    assert check.find_tests(tmp_path, ["test_other.py"]) == ["test/unit/test_other.py"]
    with pytest.raises(RunError):
        check.find_tests(tmp_path, ["test_gone.py"])


# *** the lane of fusion

FEWER = "test_schedule.py:36: test_schedule.KernelCountException: 1 != 2"
VALUES = "test/test_ops.py::T::test_values"
LESS = [Counts(ONE, 2, 1), Counts(TWO, 5, 3)]


def test_fewer_kernels_are_counted() -> None:
    """A count that a test names is taken from its message, else it is the number of kernels in its schedules."""
    stock = SideResult({ONE: TestResult("passed", "", 1, 2, "a"), VALUES: TestResult("passed", "", 1, 2, "a")})
    fused = SideResult({ONE: TestResult("failed", FEWER, 1, 1, "b"), VALUES: TestResult("passed", "", 1, 1, "b")})
    assert find_counts(stock, fused) == ([Counts(ONE, 2, 1)], [])
    stock, fused = (SideResult({TWO: TestResult("passed", "", 1, count, str(count))}) for count in (5, 3))
    assert find_counts(stock, fused) == ([Counts(TWO, 5, 3)], [])


@pytest.mark.parametrize("name", [ONE, VALUES])
def test_any_other_failure_is_a_difference(name: str) -> None:
    fused = SideResult({name: TestResult("failed", "RuntimeError: shape")})
    counts, (other,) = find_counts(SideResult({name: TestResult("passed")}), fused)
    assert counts == []
    assert other.overlay == "failed"


def test_a_difference_from_the_list_is_reported() -> None:
    assert compare_counts(LESS, LESS) == []
    assert compare_counts([Counts(ONE, 3, 1)], LESS) == [
        f"{ONE}: kernels 3 -> 1, listed 2 -> 1",
        f"{TWO}: kernels alike, listed 5 -> 3",
    ]


def test_the_table_is_read_back_and_refuses_more_kernels(tmp_path: Path) -> None:
    table = tmp_path / "fewer_kernels.toml"
    table.write_text(format_counts([Counts(ONE, 2, 1), Counts(TWO, 5, 5)]))
    assert sorted(read_counts(table), key=str) == [Counts(ONE, 2, 1), Counts(TWO, 5, 5)]
    table.write_text(format_counts([Counts(ONE, 1, 2)]))
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
    bench = RecordedBench(tmp_path, tmp_path, 2)
    first = lane.run_stock(bench, ["test/a.py", "test/b.py"])
    assert list(first.tests) == ["test/a.py::test", "test/b.py::test"]
    second = lane.run_stock(bench, ["test/b.py", "test/c.py"])
    assert list(second.tests) == ["test/b.py::test", "test/c.py::test"]
    assert bench.asked == [["test/a.py", "test/b.py"], ["test/c.py"]]
