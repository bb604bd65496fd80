"""`diff`, `graph`, `why` and `report` as they are typed, after a `show` and with a snippet named."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tool import ROOT, run_command, run_tool, write

LOST = str(ROOT / "samples" / "lost_range.py")
UNCLOSED = str(ROOT / "samples" / "unclosed_range.py")
XSUM = str(ROOT / "samples" / "xsum.py")
SMALL = "from tinygrad import Tensor\nx = Tensor.empty(4) + 1\n"


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two captures of a sample: without-ambient.json has the fault."""
    folder = tmp_path_factory.mktemp("captures")
    without = ("--patches", "all,-fuse-broadcast,-ambient-ranges")
    run_tool("show", LOST, "--save", "without-ambient.json", *without, cwd=folder)
    run_tool("show", LOST, "--save", "all.json", cwd=folder)
    return folder


@pytest.mark.slow
def test_the_three_lines_work_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(Path(LOST).read_text(encoding="utf-8"), encoding="utf-8")
    assert run_tool("show", "snippet.py", cwd=tmp_path).returncode == 0
    done = run_tool("diff", "--baseline", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "using snippet.py" in done.stderr
    assert "rm1" in done.stdout
    done = run_tool("graph", "-o", "out.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    root = ElementTree.parse(tmp_path / "out.svg").getroot()
    assert root.tag.endswith("svg")
    done = run_tool("why", "--patches=all,-fuse-broadcast", cwd=tmp_path)
    assert "not fused with" in done.stdout


@pytest.mark.slow
def test_baseline_may_stand_on_either_side_of_the_snippet(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL, encoding="utf-8")
    left = run_tool("diff", "small.py", "--baseline", "--json", cwd=tmp_path)
    right = run_tool("diff", "--baseline", "small.py", "--json", cwd=tmp_path)
    assert left.returncode == right.returncode == 0, left.stderr
    assert left.stdout == right.stdout
    assert json.loads(left.stdout)


def test_diff_finds_the_lost_range_and_the_wrong_values(tmp_path: Path) -> None:
    unfused = "--patches=all,-fuse-broadcast"  # a value that is fused with its reader has no buffer
    baseline = "--baseline=all,-fuse-broadcast,-ambient-ranges"
    done = run_tool("diff", LOST, unfused, baseline, "--exit-code", cwd=tmp_path, COLUMNS="100")
    assert done.returncode == 1, done.stderr
    assert "values different" in " ".join(done.stdout.split())
    assert "data0_6" in done.stdout
    assert "data0_2" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "\x1b" not in done.stdout


PLAIN = """
from tinygrad import Tensor
x = Tensor.ones(4, 8).contiguous().realize()
y = x.exp()
print(y.sum(1).numpy())
"""


@pytest.mark.slow
def test_two_edits_of_a_program_are_compared(tmp_path: Path) -> None:
    """The line numbers differ, and only one side stores a value."""
    (tmp_path / "old.py").write_text(PLAIN, encoding="utf-8")
    (tmp_path / "new.py").write_text("# stored\n" + PLAIN.replace("exp()", "exp().contiguous()"), encoding="utf-8")
    done = run_tool("diff", "old.py", "new.py", "--exit-code", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "values equal" in " ".join(done.stdout.split())
    assert "before  old.py" in done.stdout
    assert "after   new.py" in done.stdout
    assert "1 only after, outputs first" in done.stdout
    # the line that both have is one
    assert "  new.py:6 =" in done.stdout


PRODUCT = """
from tinygrad import Tensor
a = Tensor.arange(64).reshape(8, 8).float().contiguous().realize()
c = a @ a
print(c.numpy())
"""


def test_an_edit_that_changes_every_node_of_a_line_is_compared(tmp_path: Path) -> None:
    """Only the inputs were compared, and "values equal" printed."""
    write(tmp_path, PRODUCT, "old.py")
    write(tmp_path, PRODUCT.replace("a @ a", "(a.half() @ a.half()).float()"), "new.py")
    done = run_tool("diff", "old.py", "new.py", "--json", cwd=tmp_path)
    pairs = [(item["line_before"], item["paired_by"], item["values"]) for item in json.loads(done.stdout)["schedules"]]
    assert pairs[:2] == [("old.py:3", "line", "equal"), ("old.py:5", "line", "different")]


RANDOM = """
import random, time
import numpy as np
from tinygrad import Tensor
Tensor(np.random.rand(4)).realize()
Tensor(np.random.default_rng().random(4)).realize()
Tensor.rand(4).realize()
Tensor([random.random()]).realize()
Tensor([float(ord(letter)) for letter in {"a", "b", "c", "d", "e"}]).realize()
"""


def test_a_program_has_the_same_random_numbers_on_both_sides(tmp_path: Path) -> None:
    write(tmp_path, RANDOM)
    done = run_tool("diff", "snippet.py", "--baseline=stock", "--json", cwd=tmp_path)
    pairs = json.loads(done.stdout)["schedules"]
    assert [item["values"] for item in pairs if item["outputs"]] == ["equal"] * 5, done.stderr
    # the order of sets is the user's, if the user asks for one; numpy is not imported for a program without it
    write(tmp_path, "import os, sys\nprint('numpy' in sys.modules, os.environ['PYTHONHASHSEED'])\n")
    for given, seed in (({}, "0"), ({"PYTHONHASHSEED": "7"}, "7")):
        done = run_tool("diff", "snippet.py", "--baseline=stock", cwd=tmp_path, **given)
        assert done.stderr == f"False {seed}\n"


def test_what_depends_on_the_clock_is_not_deterministic(tmp_path: Path) -> None:
    write(tmp_path, "import time\nfrom tinygrad import Tensor\nTensor([time.time_ns() % 10**6 * 1.0]).realize()\n")
    done = run_tool("diff", "snippet.py", "--baseline=stock", "--exit-code", cwd=tmp_path)
    said = " ".join(done.stdout.split())
    assert "1 not compared: 1 output (not deterministic" in said
    assert "values different" not in said
    assert done.returncode == 0


@pytest.mark.slow
def test_diff_without_a_difference_says_so_and_exits_zero(tmp_path: Path) -> None:
    vmap = "--patches=ambient-ranges,nested-ranges,close-ranges"  # there is no vmap scope in it
    done = run_tool("diff", XSUM, vmap, "--baseline=stock", "--exit-code", cwd=tmp_path)
    kernels = run_tool("diff", XSUM, vmap, "--baseline=none", "--exit-code", cwd=tmp_path)
    assert kernels.returncode == 0, kernels.stdout
    assert done.returncode in (0, 1)
    assert "values equal" in done.stdout


def test_a_before_that_fails_is_an_ordinary_before(tmp_path: Path) -> None:
    done = run_tool("diff", UNCLOSED, "--baseline=all,-close-ranges", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "input to kernel must be AFTER or BUFFER" in " ".join(done.stdout.split())


def test_an_after_that_fails_is_the_snippets_failure(tmp_path: Path) -> None:
    done = run_tool("diff", UNCLOSED, "--patches=all,-close-ranges", "--baseline=all", cwd=tmp_path)
    assert done.returncode == 3


@pytest.mark.slow
def test_a_before_that_hangs_or_dies_is_shown(tmp_path: Path) -> None:
    text = SMALL + "import os, time\nif 'close-ranges' not in os.environ.get('VMAPDBG_PATCHES', ''): {}\n"
    # within 20 seconds the other side ends on a busy machine too
    endings = (
        ("time.sleep(600)", ["--timeout", "20"], "did not end within"),
        ("os.kill(os.getpid(), 11)", [], "SIGSEGV"),
    )
    for action, options, word in endings:
        (tmp_path / "s.py").write_text(text.format(action), encoding="utf-8")
        done = run_tool("diff", "s.py", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert word in " ".join(done.stdout.split())


def test_saved_captures_are_compared_where_tinygrad_is_not_installed(captures: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['tinygrad'] = None; from vmapdbg.commands.cli import main; main()"
    done = run_command(sys.executable, "-c", code, "diff", "without-ambient.json", "all.json", cwd=captures)
    assert done.returncode == 0, done.stderr
    assert "data0_6" in done.stdout
    done = run_tool("graph", str(captures / "all.json"), "-o", "all.json.dot", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "all.json.dot").read_text(encoding="utf-8").startswith("digraph")


# *** times

RUNS = "from tinygrad import Tensor\nx = Tensor.ones(64, 64).contiguous().realize()\ny = (x @ x).softmax().realize()\n"


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


# *** report


def test_a_run_becomes_a_page(tmp_path: Path) -> None:
    """The line of the fault has its code and its finding, and the kernel is there."""
    write(tmp_path, Path(LOST).read_text("utf-8"), "lost.py")
    broken = "all,-fuse-broadcast,-ambient-ranges"
    done = run_tool("report", "lost.py", "-o", "one.html", "--patches", broken, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    page = (tmp_path / "one.html").read_text("utf-8")
    row = next(part for part in page.split("<tr") if "reduce_index = " in part)
    assert "VD101" in row
    assert ">r_3_2_2_2<" in page


@pytest.mark.slow
def test_the_last_snippet_is_run_again(tmp_path: Path) -> None:
    write(tmp_path, Path(LOST).read_text("utf-8"), "lost.py")
    run_tool("report", "lost.py", "-o", "one.html", "--patches", "all,-ambient-ranges", cwd=tmp_path)
    again = run_tool("report", "-o", "two.html", cwd=tmp_path)
    assert "using lost.py, from the last show" in again.stderr
    assert "reduce_index" in (tmp_path / "two.html").read_text("utf-8")
