"""`report`: a snippet is run, and becomes a page with its own source."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from captures import lost_range
from click.testing import CliRunner
from tool import ROOT, run_tool

from vmapdbg.commands.cli import main
from vmapdbg.commands.shared import runs
from vmapdbg.install.job import Job, Run
from vmapdbg.install.patches import SWITCHABLE, list_states


def test_a_run_becomes_a_page(tmp_path: Path) -> None:
    """The line of the fault has its code and its finding, and the kernel is there."""
    snippet = tmp_path / "lost.py"
    snippet.write_text((ROOT / "samples" / "lost_range.py").read_text("utf-8"), "utf-8")
    broken = "all,-fuse-broadcast,-ambient-ranges"
    done = run_tool("report", "lost.py", "-o", "one.html", "--patches", broken, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    page = (tmp_path / "one.html").read_text("utf-8")
    row = next(part for part in page.split("<tr") if "reduce_index = " in part)
    assert "VD101" in row
    assert ">r_3_2_2_2<" in page


@pytest.mark.slow
def test_the_last_snippet_is_run_again(tmp_path: Path) -> None:
    snippet = tmp_path / "lost.py"
    snippet.write_text((ROOT / "samples" / "lost_range.py").read_text("utf-8"), "utf-8")
    run_tool("report", "lost.py", "-o", "one.html", "--patches", "all,-ambient-ranges", cwd=tmp_path)
    again = run_tool("report", "-o", "two.html", cwd=tmp_path)
    assert "using lost.py, from the last show" in again.stderr
    assert "reduce_index" in (tmp_path / "two.html").read_text("utf-8")


def test_the_snippet_is_never_written_over(tmp_path: Path) -> None:
    snippet = tmp_path / "lost.html"
    snippet.write_text("print('ran')\n")
    (tmp_path / "link.html").symlink_to(snippet)
    done = run_tool("report", "lost.html", "-o", "link.html", cwd=tmp_path)
    assert done.returncode == 2
    assert "it is the snippet" in done.stderr
    assert snippet.read_text() == "print('ran')\n"


def read_states(page: Path) -> list[list[Any]]:
    """For each state the number of its page, what is said of it, and which switches are on."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text("utf-8"), flags=re.S)
    assert found is not None
    return json.loads(found[1])["states"]


@pytest.mark.slow
def test_each_state_of_the_patches_is_run(tmp_path: Path) -> None:
    """The snippet fails without one patch and dies without another: one line for each; the other states are there."""
    (tmp_path / "net.py").write_text(
        """import os
from tinygrad import Tensor
print("with", os.environ["VMAPDBG_PATCHES"])
x = Tensor.empty(256, 256).softmax()
on = os.environ["VMAPDBG_PATCHES"].split(",")
if "none" not in on and "nested-ranges" not in on: raise ValueError("nested[red]")
if "none" not in on and "local-budget" not in on: x.realize(); os._exit(7)
"""
    )
    done = run_tool("report", "net.py", "-o", "all.html", "--patches-all", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        f"vmapdbg: running net.py {len(SWITCHABLE) + 2} times, with all that it does",
        f"with {','.join(SWITCHABLE)}",
        "vmapdbg: without nested-ranges: ValueError: nested[red]",
        "vmapdbg: without local-budget: net.py ended the process with status 7",
        "vmapdbg: wrote all.html",
    ]
    said = [words for _, words, _ in read_states(tmp_path / "all.html")]
    assert said[:2] == ["Shown: all patches on, 2 kernels", "Shown: no patch on, 3 kernels"]
    # realize-reused stores what two of three would compute
    assert "Shown: without fuse-broadcast, 4 kernels" in said
    assert "Shown: without nested-ranges, 0 kernels, ended by ValueError" in said
    assert "Shown: without local-budget, 2 kernels, ended by ChildDied" in said


@pytest.mark.slow
def test_a_training_step_with_a_switch_for_each_patch_is_a_small_page(tmp_path: Path) -> None:
    """What the states have in common is there once: ten of them are less than twice one."""
    (tmp_path / "net.py").write_text(
        """from tinygrad import Tensor, nn
layers = [nn.Linear(16, 32), nn.Linear(32, 10)]
optimizer = nn.optim.Adam(nn.state.get_parameters(layers), lr=0.001)
x, y = Tensor.rand(8, 16).realize(), Tensor.randint(8, high=10).realize()
with Tensor.train():
    loss = layers[1](layers[0](x).relu()).sparse_categorical_crossentropy(y).backward()
    loss.realize(*optimizer.schedule_step())
"""
    )
    for output, options in (("one.html", []), ("all.html", ["--patches-all"])):
        done = run_tool("report", "net.py", "-o", output, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, all_states = ((tmp_path / name).stat().st_size for name in ("one.html", "all.html"))
    assert len(read_states(tmp_path / "all.html")) == len(SWITCHABLE) + 2
    assert all_states < 1.7 * one


@pytest.mark.slow
def test_a_failure_with_all_patches_is_that_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from tinygrad import Tensor\nTensor.empty(3).reshape(4)\n")
    done = run_tool("report", "net.py", "-o", "all.html", "--patches-all", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.count("Traceback") == 1
    assert "ended by ValueError" in read_states(tmp_path / "all.html")[0][1]


@pytest.mark.parametrize("times", [False, True])
def test_two_children_run_at_once_and_timed_ones_take_turns(
    times: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[Job]] = []

    def run_many(jobs: Sequence[Job], done: object, most: int, shadow: bool) -> list[Run]:
        assert (most, shadow, times) == (2, True, False)
        return run_timed(jobs)

    def run_timed(jobs: Sequence[Job], name: str = "") -> list[Run]:
        asked.append(jobs)
        return [Run(lost_range(), stdout=b"printed\n") for _ in jobs]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "run_many", run_many)
    monkeypatch.setattr(runs, "run_timed", run_timed)
    (tmp_path / "net.py").write_text("print('ran')\n")
    more = ["--time"] if times else []
    done = CliRunner().invoke(
        main, ["report", "net.py", "-o", "all.html", "--patches-all", *more, "--", "--steps", "1"]
    )
    assert done.exit_code == 0, done.output
    assert done.output.count("printed") == 1
    assert ("no kernel was timed" in done.output) == times
    (jobs,) = asked
    assert [job.patches for job in jobs] == [state.patches for state in list_states()]
    assert {(job.times, job.arguments) for job in jobs} == {(times, ("--steps", "1"))}
    assert len(read_states(tmp_path / "all.html")) == len(SWITCHABLE) + 2


def test_a_tree_of_another_release_has_no_switches(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("print('ran')\n")
    package = tmp_path / "tree" / "tinygrad"
    package.mkdir(parents=True)
    for name in ("__init__.py", "tensor.py"):
        (package / name).write_text("")
    (tmp_path / "tree" / "pyproject.toml").write_text('[project]\nname = "tinygrad"\nversion = "0.13.0"\n')
    done = run_tool("report", "net.py", "--tinygrad", "tree", "-o", "all.html", "--patches-all", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("vmapdbg: the patches need tinygrad 0.12.0 beside vmapdbg: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "all.html").exists()
