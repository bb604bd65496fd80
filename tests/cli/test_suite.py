"""`vmapdbg run --save DIR`, then `vmapdbg diff DIR DIR`: a test-suite on two schedulers."""

from __future__ import annotations

import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tool import run_tool, start_tool, wait_until

TESTS = """
import pytest, subprocess, sys
from tinygrad import Tensor

@pytest.mark.parametrize("name", ["a", "../b|<i>\\u00e9 (call)"])
def test_rows(name): (Tensor.rand(64, 64).realize() * Tensor.rand(64, 64).realize().sum(1, keepdim=True)).realize()
def test_add(): assert (Tensor.ones(4).contiguous() + 1).tolist() == [2] * 4
def test_again(): assert (Tensor.ones(4).contiguous() + 1).tolist() == [2] * 4
CHILD = "from tinygrad import Tensor; Tensor.ones(7).contiguous().sum().item()"
def test_child(): subprocess.run([sys.executable, "-c", CHILD], check=True)
def test_none(): assert True
"""
ROWS = "test_a.py::test_rows[a]"
STRANGE = "test_a.py::test_rows[../b|<i>\\xe9 (call)]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test suite on stock schedules, and with all patches in two workers."""
    path = tmp_path_factory.mktemp("suite")
    (path / "test_a.py").write_text(TESTS, encoding="utf-8")
    (path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    for name, options in (("none", ()), ("all", ("-n", "2"))):
        done = run_tool("run", "--save", name, "--patches", name, "-m", "pytest", "-q", *options, "test_a.py", cwd=path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "vmapdbg: saved 5 tests, " in done.stderr
    return path


def read_tests(folder: Path) -> list[list[dict[str, str]]]:
    """What each file of a saved run says that a test asked for."""
    return [list(map(json.loads, file.read_text().splitlines())) for file in folder.glob("run-*/tests/*")]


@pytest.mark.slow
def test_changes_of_a_suite(folder: Path) -> None:
    done = run_tool("diff", "none", "all", "--exit-code", cwd=folder)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 of 5 tests changed, kernels ")
    assert "2 kernels fused into 1 (r, E -> r)  2 times in 2 tests" in done.stdout
    assert "no longer realized: REDUCE_AXIS (ending-ranges)" in done.stdout
    assert f"{ROWS} and 1 other" in done.stdout or f"{STRANGE} and 1 other" in done.stdout
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_document_of_a_suite(folder: Path) -> None:
    found = json.loads(run_tool("diff", "none", "all", "--json", cwd=folder).stdout)
    schema = json.loads(run_tool("schema", "suite-diff", cwd=folder).stdout)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(found)] == []
    assert {test["test"] for test in found["changed"]} == {ROWS, STRANGE}
    assert (found["unchanged"], found["only_before"], found["only_after"]) == (3, [], [])
    assert found["before"]["patches"]["fuse-broadcast"] is False


@pytest.mark.slow
def test_a_schedule_from_the_cache_belongs_to_each_test_that_asks(folder: Path) -> None:
    """The second of two equal tests makes no schedule, and another order of tests must not look like a change."""
    found = json.loads(run_tool("diff", "none", "none", "--json", cwd=folder).stdout)
    assert (found["unchanged"], found["changed"], found["groups"]) == (5, [], [])
    parts = read_tests(folder / "none")
    asked = {part[0]["test"]: [one["schedule"] for one in part] for part in parts}
    assert asked["test_a.py::test_add"]
    assert asked["test_a.py::test_add"] == asked["test_a.py::test_again"]


@pytest.mark.slow
def test_process_of_a_test_is_that_test(folder: Path) -> None:
    parts = read_tests(folder / "none")
    assert [len(part) for part in parts if part[0]["test"] == "test_a.py::test_child"] == [1]
    assert "test_a.py::test_none" not in {part[0]["test"] for part in parts}


@pytest.mark.slow
def test_one_test_in_full(folder: Path) -> None:
    done = run_tool("diff", "none", "all", "--test", "rows[a]", cwd=folder)
    assert ROWS in done.stdout
    assert "fused from" in done.stdout
    assert "for (int Ridx0 = 0;" in done.stdout
    for asked, message in (
        ("rows", "'rows' is in the ids of 2 tests"),
        ("nix", "no test of the runs has 'nix' in its id"),
    ):
        refused = run_tool("diff", "none", "all", "--test", asked, cwd=folder)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert message in refused.stderr


@pytest.mark.slow
def test_damaged_file_is_left_out_and_no_exit_code_hides_it(folder: Path) -> None:
    shutil.copytree(folder / "none", folder / "damaged")
    damaged = next((folder / "damaged").glob("run-*/tests/test_add-*"))
    damaged.write_bytes(damaged.read_bytes()[:20])
    done = run_tool("diff", "none", "damaged", "--width", "300", cwd=folder)
    assert done.returncode == 0
    assert "no kernel changed in 4 tests" in done.stdout
    assert f"{damaged.name} is damaged" in done.stdout
    assert run_tool("diff", "none", "damaged", "--exit-code", cwd=folder).returncode == 2


# *** other programs

PROGRAM = "from tinygrad import Tensor\nprint((Tensor.ones(4).contiguous() + 1).sum().item())\n"


@pytest.mark.slow
def test_a_program_is_saved_under_its_name_and_stays_as_it_is(tmp_path: Path) -> None:
    """Kernels are counted in their names, and what is printed at DEBUG=2 and 4 is the program's own."""
    (tmp_path / "a.py").write_text(PROGRAM, encoding="utf-8")
    plain = run_tool("run", "a.py", cwd=tmp_path, DEBUG="4", CACHELEVEL="0")
    saved = run_tool("run", "--save", "x/y", "a.py", cwd=tmp_path, DEBUG="4", CACHELEVEL="0")
    assert saved.returncode == 0, saved.stderr
    assert drop_times(saved.stdout) == drop_times(plain.stdout)
    (part,) = read_tests(tmp_path / "x/y")
    assert part[0]["test"] == "a.py"
    # a later run takes its place
    (tmp_path / "b.py").write_text(PROGRAM + "raise SystemExit(3)\n", encoding="utf-8")
    assert run_tool("run", "--save", "x/y", "b.py", cwd=tmp_path).returncode == 3
    (part,) = read_tests(tmp_path / "x/y")
    assert part[0]["test"] == "b.py"
    assert json.loads((tmp_path / "x/y/run.json").read_bytes())["status"] == 3


def drop_times(printed: str) -> list[str]:
    """What is printed about times, the process, and the UOps that tinygrad's caches have, is another in each run."""
    others = (" tm ", "pid:", "uops in cache")
    return [line for line in printed.splitlines() if not any(word in line for word in others)]


def test_program_that_schedules_nothing_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('hello')\n", encoding="utf-8")
    done = run_tool("run", "--save", "x", "a.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert done.stderr == "vmapdbg: the program made no schedule: nothing was saved\n"
    assert not (tmp_path / "x").exists()


def test_folder_that_cannot_be_used_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('ran')\n", encoding="utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x", encoding="utf-8")
    for name in ("mine", "a.py", "a.py/x", "/proc/x"):
        done = run_tool("run", "--save", name, "a.py", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert f"cannot save into {name}" in done.stderr
    assert not (tmp_path / "x").exists()


def test_disk_that_is_full_does_not_fail_the_program(tmp_path: Path) -> None:
    """No file may grow: as on a full disk, each write fails."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
    (tmp_path / "a.py").write_text(limit + PROGRAM, encoding="utf-8")
    done = run_tool("run", "--save", "x", "a.py", cwd=tmp_path, DEV="NULL", CACHELEVEL="0")
    assert done.returncode == 2, done.stderr
    assert "nothing more of this process is saved" in done.stderr
    assert "does not have everything" in done.stderr


def test_killed_run_keeps_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(PROGRAM + "import time\ntime.sleep(600)\n", encoding="utf-8")
    process = start_tool("run", "--save", "x", "a.py", cwd=tmp_path)
    try:
        # the file is there before its line is
        saved = partial(tmp_path.glob, "x/run-*/tests/a_py-*")
        wait_until(lambda: [b"\n" in one.read_bytes() for one in saved()] == [True], "nothing was saved")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = run_tool("diff", "x", "x", cwd=tmp_path)
    assert "no kernel changed in 1 test" in done.stdout
    assert "its run did not end" in " ".join(done.stdout.split())
