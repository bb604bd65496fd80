"""`python -m tests.upstream` is strict: it fails for a difference that is not listed, and for a listed difference that
is gone.

If one of these fails, CI may pass although the overlay breaks programs that work on stock tinygrad.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.upstream import compare, fetch

UPSTREAM = Path(__file__).parents[1] / "upstream"
TEST = "test/test_schedule.py::TestSchedule::test_one"
OTHER = "test/test_schedule.py::TestSchedule::test_two"


def side(**tests: tuple[str, str | None]) -> compare.SideResult:
    names = {"one": TEST, "two": OTHER}
    results = {names[name]: compare.TestResult(outcome, "", 1, 2, key) for name, (outcome, key) in tests.items()}
    return compare.SideResult(results)


def judge(stock: compare.SideResult, overlay: compare.SideResult, *listed: compare.Listed) -> compare.Verdict:
    return compare.judge(compare.find_differences(stock, overlay), listed, ["test_schedule.py"])


PASSED, FAILED = side(one=("passed", "k")), side(one=("failed", "k"))
LISTED = compare.Listed(TEST, "outcome", "meant", "passed", "failed")


def test_equal_sides_pass() -> None:
    assert judge(PASSED, PASSED).failed == 0
    assert judge(FAILED, FAILED).failed == 0  # no network, on either side


def test_unlisted_outcome_fails() -> None:
    verdict = judge(PASSED, FAILED)
    assert [(found.test, found.stock, found.overlay) for found in verdict.unlisted] == [(TEST, "passed", "failed")]


def test_fixed_test_is_a_difference_too() -> None:
    assert judge(FAILED, PASSED).failed == 1


@pytest.mark.parametrize("present", ["stock", "overlay"])
def test_missing_test_fails(present: str) -> None:
    both, one = side(one=("passed", "k"), two=("passed", "k")), PASSED
    verdict = judge(both, one) if present == "stock" else judge(one, both)
    assert [found.test for found in verdict.unlisted] == [OTHER]


def test_other_kernels_fail_although_the_test_passes() -> None:
    verdict = judge(PASSED, side(one=("passed", "other")))
    assert [found.kind for found in verdict.unlisted] == ["schedules"]


def test_listed_difference_passes() -> None:
    verdict = judge(PASSED, FAILED, LISTED)
    assert verdict.failed == 0
    assert len(verdict.listed) == 1


def test_listed_with_another_outcome_fails_twice() -> None:
    verdict = judge(PASSED, side(one=("skipped", None)), LISTED)
    assert (len(verdict.unlisted), len(verdict.stale)) == (1, 1)


def test_stale_entry_fails() -> None:
    assert judge(PASSED, PASSED, LISTED).stale == [LISTED]


def test_entry_of_a_file_that_did_not_run_is_not_stale() -> None:
    entry = compare.Listed("test/test_ops.py::TestOps::test_add", "outcome", "meant", "passed", "failed")
    assert judge(PASSED, PASSED, entry).failed == 0


@pytest.mark.parametrize(
    "text",
    [
        f'[[outcome]]\ntest = "{TEST}"\nstock = "passed"\noverlay = "failed"\n',
        f'[[outcome]]\ntest = "{TEST}"\nstock = "passed"\noverlay = "failed"\nreason = " "\n',
        f'[[schedules]]\ntest = "{TEST}"\nreason = "meant"\nstock = "passed"\n',
        '[[other]]\ntest = "x"\n',
        "[[outcome\n",
    ],
)
def test_table_without_reason_or_with_more_is_refused(tmp_path: Path, text: str) -> None:
    table = tmp_path / "differences.toml"
    table.write_text(text)
    with pytest.raises(compare.TableError, match=r"differences\.toml"):
        compare.read_listed(table)


def test_table_in_the_repository_is_readable() -> None:
    compare.read_listed(UPSTREAM / "differences.toml")


def test_result_survives_the_cache() -> None:
    result = compare.SideResult({TEST: compare.TestResult("failed", "message", 1, 2, "k")}, 3.0)
    assert compare.SideResult.from_json(result.to_json()) == result


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
    into = tmp_path / "a" / "unpacked"
    fetch.unpack_tests(sdist, into)
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == ["a/unpacked/pytest.ini", "a/unpacked/test/test_a.py", "sdist.tar.gz"]
