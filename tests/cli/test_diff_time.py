"""`diff --time` as it is typed: both sides are timed, and what cannot be timed is refused or said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tool import run_tool

RUNS = "from tinygrad import Tensor\nx = Tensor.ones(64, 64).contiguous().realize()\ny = (x @ x).softmax().realize()\n"
SAVED = "save them with show --time --save"


@pytest.mark.slow
def test_the_kernels_of_both_sides_are_timed(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(RUNS, "utf-8")
    (tmp_path / "new.py").write_text(RUNS.replace("softmax()", "softmax().contiguous().exp()"), "utf-8")
    done = run_tool("diff", "old.py", "new.py", "--time", "--json", "-o", "change.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "vmapdbg: running old.py and new.py, 3 times each, in turns"
    found = json.loads(done.stdout)
    assert all(0 < found[side]["totals"]["seconds"] < 10 for side in ("before", "after"))
    kernels = [
        side["kernel"] for item in found["schedules"] for c in item["kernels"] for side in (*c["before"], *c["after"])
    ]
    assert {kernel["measured"]["runs"] for kernel in kernels} == {3}
    assert "in kernels" in (tmp_path / "change.html").read_text("utf-8")


@pytest.mark.slow
def test_another_target_is_not_what_runs(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from tinygrad import Tensor\nx = Tensor.ones(9).contiguous() + 1\n", "utf-8")
    said = "vmapdbg: no kernel was timed: what ran is not the source for wgsl that is shown"
    done = run_tool("diff", "net.py", "--time", "--target", "wgsl", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, said)
    assert "time in kernels" not in done.stdout
    done = run_tool("show", "net.py", "--time", "--target", "wgsl", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, said)
    done = run_tool("show", "net.py", "--time", cwd=tmp_path)
    assert "no kernel was timed" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.json", "b.json"], f"--time runs both sides, and a.json is a saved capture: {SAVED}"),
        (["net.py", "--baseline=a.json"], f"--time runs both sides, and a.json is a saved capture: {SAVED}"),
        (["a.json", "net.py"], f"--time runs both sides, and a.json is a saved capture: {SAVED}"),
        (["one", "two"], "two saved runs take only --test, --all, --json and --exit-code"),
    ],
)
def test_what_does_not_run_is_not_timed(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("print('ran')\n", "utf-8")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    done = run_tool("diff", *arguments, "--time", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"vmapdbg: {said}\n")
