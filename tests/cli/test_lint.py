"""`vmapdbg lint`, `run --lint`: what a user sees, and with which exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from lost import LOST, OFF
from tool import ROOT, RunSample, run_tool

SAMPLE = str(ROOT / "samples" / "lost_range.py")
# a range is lost, and nothing runs


def write(folder: Path, comment: str = "", name: str = "a.py") -> None:
    (folder / name).write_text(LOST.format(comment=comment), encoding="utf-8")


def test_the_example_of_the_docs(run_sample: RunSample) -> None:
    """docs/lint.md shows the beginning of what is printed at 80 columns."""
    shown = re.search(r"<!-- vmapdbg lint samples.*?-->\n```\n(.*?)```", (ROOT / "docs/lint.md").read_text(), re.DOTALL)
    assert shown is not None
    done = run_sample("lint", "samples/lost_range.py", *OFF)
    assert done.returncode == 1
    assert done.stdout.startswith(shown[1])
    assert done.stdout.count("VD101") == 2
    # what the snippet prints is no data
    assert "reduce+index" in done.stderr
    assert "reduce+index" not in done.stdout


ORDER = """
from tinygrad import Tensor
x = Tensor([[-1.0, 2.0]]).realize()
chosen = x[[0, 0, 0]]
x.assign(x + 1)
Tensor.realize(x, chosen)
y, z = Tensor([1.0, 2.0, 3.0]).realize(), Tensor([4.0, 5.0, 6.0]).realize()
Tensor.realize(z + 1, y.detach())
"""


@pytest.mark.slow
def test_memory_that_is_read_or_written_wrongly(tmp_path: Path) -> None:
    """Faults of 0.12.0 that the patches do not change, also if the program had the same kernels before."""
    (tmp_path / "a.py").write_text(ORDER, encoding="utf-8")
    done = run_tool("lint", "a.py", "--format", "json", "--ignore", "VD104", cwd=tmp_path)
    found = [(one["code"], one["line"]) for one in json.loads(done.stdout)["findings"]]
    assert found == [("VD109", "a.py:4"), ("VD110", "a.py:8")], done.stderr
    again = ORDER.replace("import Tensor", "import Tensor\n(Tensor([4.0, 5.0, 6.0]).realize() + 1).realize()")
    (tmp_path / "b.py").write_text(again, encoding="utf-8")
    done = run_tool("run", "--lint", "b.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "VD109" in done.stderr
    assert "VD110" in done.stderr


def test_clean(tmp_path: Path) -> None:
    done = run_tool("lint", SAMPLE, cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{SAMPLE}  no finding in 5 kernels, target c"), done


def test_remembered_snippet_saved_capture_and_formats(tmp_path: Path) -> None:
    write(tmp_path)
    show = run_tool("show", "a.py", *OFF, "--save", "capture.json", "--only", "source", cwd=tmp_path)
    assert show.returncode == 0
    # under the kernel's line that stores
    assert re.search(r"\*\(data0_1\+0\) = .*\n +\^ VD101\n", show.stdout), show.stdout
    concise = run_tool("lint", "--format", "concise", "--select", "VD101,vd105", cwd=tmp_path)
    assert concise.returncode == 1
    assert re.fullmatch(r"a\.py:6: VD101 kernel .* loops over rm1 \(3, .* survives\n", concise.stdout), concise.stdout
    assert "using a.py" in concise.stderr
    saved = run_tool("lint", "capture.json", "--format", "json", cwd=tmp_path)
    document = json.loads(saved.stdout)
    assert (saved.returncode, document["findings"][0]["code"]) == (1, "VD101")
    assert json.loads((tmp_path / "capture.json").read_text())["findings"] == document["findings"]
    github = run_tool("lint", "capture.json", "--format", "github", cwd=tmp_path)
    assert github.stdout.startswith("::error file=a.py,line=6,title=VD101 overlapping stores::kernel")
    for ignored in (("--ignore", "VD101"), ("--select", "VD105")):
        assert run_tool("lint", "capture.json", *ignored, cwd=tmp_path).returncode == 0


def test_comment_takes_a_finding_out(tmp_path: Path) -> None:
    write(tmp_path, "  # vmapdbg: ignore[VD101]")
    done = run_tool("lint", "a.py", *OFF, cwd=tmp_path)
    assert done.returncode == 0
    assert "1 ignored by comments" in " ".join(done.stdout.split())
    assert "VD101" not in run_tool("show", "a.py", *OFF, cwd=tmp_path).stdout


def test_open_range_of_a_snippet_that_fails(tmp_path: Path) -> None:
    write(tmp_path)
    done = run_tool("lint", "a.py", "--patches", "none", cwd=tmp_path)
    assert done.returncode == 3
    assert "VD107 range left open" in done.stdout
    assert "RuntimeError" in done.stderr


def test_diff_shows_which_findings_disappear(tmp_path: Path) -> None:
    write(tmp_path)
    done = run_tool("diff", "a.py", "--baseline", "all,-ambient-ranges", cwd=tmp_path)
    assert re.search(r"^Findings  1 gone\n- VD101 kernel .* loops over rm1", done.stdout, re.M), done.stdout


@pytest.mark.parametrize(
    "target",
    ["metal", *(pytest.param(name, marks=pytest.mark.slow) for name in ("llvm", "cuda", "opencl", "hip", "wgsl"))],
)
def test_every_target(tmp_path: Path, target: str) -> None:
    """The fault is in the schedule: it is there for each target, whatever its threads are."""
    write(tmp_path)
    done = run_tool("lint", "a.py", *OFF, "--target", target, "--select", "VD101", "--format", "json", cwd=tmp_path)
    assert [found["line"] for found in json.loads(done.stdout)["findings"]] == ["a.py:6"]


def test_explain(tmp_path: Path) -> None:
    done = run_tool("lint", "--explain", "VD101,VD107", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("VD101  overlapping stores (error)\n")
    assert "\nVD107  range left open (error)\n" in done.stdout


REALIZES = "from tinygrad import Device\nDevice.DEFAULT = 'PYTHON'\n" + LOST.format(comment="") + "out.realize()\n"


def test_run_lints_a_whole_program(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(REALIZES + "print('ran')\n", encoding="utf-8")
    done = run_tool("run", "--lint-output", "out.json", *OFF, "a.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "ran\n"), done.stderr
    written = json.loads((tmp_path / "out.json").read_text())
    assert ([found["code"] for found in written["findings"]], written["kernels"]) == (["VD101"], 2)
    assert "a.py:8  VD101 overlapping stores" in done.stderr
    assert re.search(r"vmapdbg lint: 1 finding in 2 kernels of 1 schedules?$", done.stderr, re.M), done.stderr
    clean = run_tool("run", "--lint", "a.py", cwd=tmp_path)
    assert clean.returncode == 0
    assert "vmapdbg lint: no finding in 2 kernels" in clean.stderr


def test_run_keeps_the_programs_own_code(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(REALIZES + "raise SystemExit(7)\n", encoding="utf-8")
    done = run_tool("run", "--lint", *OFF, "a.py", cwd=tmp_path)
    assert done.returncode == 7
    assert "VD101" in done.stderr


@pytest.mark.slow
def test_run_hears_of_processes_that_the_program_starts(tmp_path: Path) -> None:
    """As pytest-xdist's workers, and they may end without exit handlers."""
    (tmp_path / "work.py").write_text(REALIZES + "import os\nos._exit(0)\n", encoding="utf-8")
    starter = "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, 'work.py'])\n"
    (tmp_path / "a.py").write_text(starter, encoding="utf-8")
    done = run_tool("run", "--lint", *OFF, "a.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("VD101") == 1
    assert "of 2 schedules" in done.stderr


@pytest.mark.slow
def test_run_changes_nothing_of_the_program(tmp_path: Path) -> None:
    """tinygrad numbers kernels of one name in a process; DEBUG prints the names."""
    text = "from tinygrad import Tensor, Device\nDevice.DEFAULT = 'PYTHON'\n"
    text += "for i in range(3): (Tensor.empty(4, 4)+i).realize()\n"
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    plain, linted = (run_tool("run", *options, "a.py", cwd=tmp_path, DEBUG="2") for options in ([], ["--lint"]))

    def names(output: str) -> list[str]:
        return re.findall(r"E_\w+", re.sub(r"\x1b\[\d+m", "", output))

    assert names(plain.stdout) == names(linted.stdout) != []


ROTARY = "samples/rotary.py"


@pytest.mark.slow
def test_the_patch_that_is_advised_takes_the_finding_away(run_sample: RunSample) -> None:
    """Stock does the same work: no patch is to be switched off for that."""
    done = run_sample("show", ROTARY, "--json", "--patches", "all,-realize-reused", "--target", "c")
    before = json.loads(done.stdout)
    (found,) = before["findings"]
    assert (found["code"], found["advice"]) == ("VD104", "turn realize-reused on (--patches all)")
    after = json.loads(run_sample("show", ROTARY, "--json", "--patches", "all", "--target", "c").stdout)
    assert after["findings"] == []
    assert count_ops(after) < count_ops(before) / 4


def count_ops(capture: dict[str, Any]) -> int:
    return sum(kernel["executed_ops"] for schedule in capture["schedules"] for kernel in schedule["kernels"])


UNGUARDED = """
from tinygrad import Tensor
x = Tensor.empty(64, 64)
y = x.softmax().softmax()
"""


def test_the_advised_guard_removes_the_finding(tmp_path: Path) -> None:
    """With and without a baseline, and for kernels with and without a partner in it."""
    (tmp_path / "a.py").write_text(UNGUARDED, encoding="utf-8")
    options = ("--target", "metal", "--select", "VD104", "--format", "json")
    done = run_tool("lint", "a.py", "--patches", "all,-fusion-guard", *options, cwd=tmp_path)
    advices = {found["advice"] for found in json.loads(done.stdout)["findings"]}
    assert advices == {"turn fusion-guard on (--patches all)"}
    done = run_tool("lint", "a.py", *options, cwd=tmp_path)
    assert json.loads(done.stdout)["findings"] == []
