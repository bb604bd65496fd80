"""`pytest --vmapdbg` in a test-suite of the user's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tool import run_command, run_tool

TESTS = """
from tinygrad import Tensor

def test_kernels(capture, assert_kernels, assert_no_findings):
    with capture() as c:
        Tensor.empty(4, 4).softmax().realize()
    assert_kernels(1)
    assert_no_findings()
    assert_no_findings("VD101")
    assert [k.lines for k in c.kernels] and c.schedules[0].line.endswith("test_a.py:6")
    # the same again is no cached blank
    with capture() as again:
        Tensor.empty(4, 4).softmax().realize()
    assert [k.key for k in again.kernels] == [k.key for k in c.kernels]
"""
LOST = """
from tinygrad import Tensor, UOp, dtypes
from tinygrad.uop.ops import AxisType

def test_lost(capture, assert_kernels, assert_no_findings):
    keep, batch = UOp.const(dtypes.index, 0), UOp.range(3, -1, AxisType.LOOP)
    with capture():
        y = (Tensor.empty(3, 4).vmapin((batch, keep)).sum() + 1).contiguous().expand(5)
        (y * 2).vmapout((batch, keep)).schedule()
    {check}
"""


SETTINGS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "DEV": "PYTHON"}


def run_pytest(folder: Path, *arguments: str, plugin: bool = True) -> subprocess.CompletedProcess[str]:
    # an installed vmapdbg brings the plugin by its entry point; a checkout on the path does not
    load = ["-p", "vmapdbg.pytest_plugin"] if plugin else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *load, *arguments]
    return run_command(*command, cwd=folder, **SETTINGS)


OUTSIDE = """
import math
from tinygrad import Tensor
from tinygrad.func import vmap

def make(*shape):
    return Tensor([math.sin(n) for n in range(math.prod(shape))]).reshape(shape)

def test_fused():
    a, b = make(16, 16), make(16, 16)
    print("attention", ((a @ b).softmax() @ b).realize().tolist())

def test_vmapped():
    print("rows", vmap(lambda v: v.sum())(make(4, 8)).realize().tolist())
    print("norm", vmap(lambda v: v.softmax().sum() + v)(make(4, 64)).realize().tolist())
"""


@pytest.mark.slow
def test_schedules_outside_of_a_block_are_computed_as_without_the_plugin(tmp_path: Path) -> None:
    """Without the fixture and without a block, no report is kept, not even the attempts of the fusion guard."""
    (tmp_path / "test_a.py").write_text(OUTSIDE, encoding="utf-8")
    with_plugin = run_pytest(tmp_path, "-s", "--vmapdbg")
    pytest_options = ("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider")
    without = run_tool("run", *pytest_options, cwd=tmp_path, **SETTINGS)
    assert (with_plugin.returncode, without.returncode) == (0, 0), with_plugin.stdout + without.stdout
    printed = [[x for x in done.stdout.splitlines() if "[" in x] for done in (with_plugin, without)]
    assert len(printed[0]) == 3
    assert printed[0] == printed[1]


def test_off_means_off(tmp_path: Path) -> None:
    """No overlay, no tinygrad, and the tests that need the fixtures are skipped."""
    text = (
        "import sys\ndef test_off(): assert not [m for m in sys.modules if m.startswith(('tinygrad', 'vmapdbg.'))"
        " or m == 'rich'] or list(m for m in sys.modules if m.startswith('vmapdbg.')) == ['vmapdbg.pytest_plugin']\n"
        "def test_skipped(capture): raise AssertionError\n"
    )
    (tmp_path / "test_a.py").write_text(text, encoding="utf-8")
    done = run_pytest(tmp_path, "-rs")
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    assert "needs pytest --vmapdbg" in done.stdout


WORKERS = ["-p", "xdist.plugin", "-n", "2"]


@pytest.mark.parametrize("options", [[], pytest.param(WORKERS, marks=pytest.mark.slow, id="xdist")])
def test_counts_and_findings(tmp_path: Path, options: list[str]) -> None:
    """A worker of xdist has its own process, and other kernels before."""
    (tmp_path / "test_a.py").write_text(TESTS, encoding="utf-8")
    done = run_pytest(tmp_path, "--vmapdbg", *options)
    assert done.returncode == 0, done.stdout


LEFT = """
from tinygrad import Tensor

def test_left(capture):
    item = Tensor.ones(3).contiguous().schedule()[-1]
    with capture():
        item.run()

def test_shown(capture):
    with capture():
        (Tensor.ones(3).contiguous() + 1).realize()
"""


def test_strict_fails_if_something_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(LEFT, encoding="utf-8")
    assert run_pytest(tmp_path, "--vmapdbg").returncode == 0
    done = run_pytest(tmp_path, "--vmapdbg", "--vmapdbg-strict")
    assert (done.returncode, "1 failed, 1 passed" in done.stdout) == (1, True), done.stdout
    assert "1 not shown: 1 launch (no schedule that was recorded has them)" in done.stdout


def test_failures_say_what_and_where(tmp_path: Path) -> None:
    checks = {
        "assert_no_findings()": ["1 finding:", "VD101", "test_0.py:8", "only one of 3 iterations survives"],
        "assert_kernels(1)": ["2 kernels, not 1:", "test_1.py:8"],
    }
    for number, check in enumerate(checks):
        (tmp_path / f"test_{number}.py").write_text(LOST.format(check=check), encoding="utf-8")
    table = '[tool.vmapdbg]\npatches = "all,-ambient-ranges"\n[tool.pytest.ini_options]\n'
    (tmp_path / "pyproject.toml").write_text(table, encoding="utf-8")
    done = run_pytest(tmp_path, "--vmapdbg")
    assert done.returncode == 1
    _, *failures = done.stdout.partition("short test summary")[0].split("test_lost ___")
    for failure, words in zip(failures, checks.values(), strict=True):
        assert all(word in failure for word in words), failure


def test_bad_use_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n", encoding="utf-8")
    done = run_pytest(tmp_path, "--vmapdbg", "-p", "tinygrad")
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line]
    assert line.startswith("ERROR: --vmapdbg")
    assert "tinygrad is imported already" in line


FAULT = LOST.replace("{check}", "assert_no_findings()")


def write_table(folder: Path, lines: str, test: str = "tests/test_a.py", text: str = FAULT) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.vmapdbg]\n{lines}\n[tool.pytest.ini_options]\n", encoding="utf-8")
    (folder / test).parent.mkdir(parents=True, exist_ok=True)
    (folder / test).write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_the_table_of_the_project_counts(tmp_path: Path) -> None:
    """Its patches let the fault in, and what it ignores is no finding; it is found from anywhere in the project."""
    write_table(tmp_path, 'patches = "all,-ambient-ranges"')
    done = run_pytest(tmp_path, "--vmapdbg", "tests")
    assert (done.returncode, "VD101" in done.stdout) == (1, True), done.stdout
    write_table(tmp_path, 'patches = "all,-ambient-ranges"\nignore = ["VD101"]')
    done = run_pytest(tmp_path / "tests", "--vmapdbg")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_table_says_target_and_patches(tmp_path: Path) -> None:
    shows = "def test_a(capture):\n    from tinygrad import Tensor\n    with capture() as c:\n"
    shows += "        (Tensor.empty(4, 4) + 1).schedule()\n    print(c.kernels[0].target, c.capture.patches)\n"
    write_table(tmp_path, 'target = "metal"\npatches = "none"', text=shows)
    done = run_pytest(tmp_path, "-s", "--vmapdbg", "tests")
    assert "metal {" in done.stdout
    assert "'close-ranges': False" in done.stdout


@pytest.mark.slow
def test_the_folder_of_the_test_says_what_is_ignored(tmp_path: Path) -> None:
    """As for a snippet: the nearest table counts, here without anything that is ignored, there with a mistake."""
    write_table(tmp_path, 'patches = "all,-ambient-ranges"\nignore = ["VD101"]', "one/test_a.py")
    for folder, table in (("two", "[tool.vmapdbg]\n"), ("three", "[tool.vmapdbg]\nignore = ['VD999']\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pyproject.toml").write_text(table, encoding="utf-8")
        (tmp_path / folder / f"test_{folder}.py").write_text(FAULT, encoding="utf-8")
    done = run_pytest(tmp_path, "--vmapdbg", "one", "two", "three")
    summary = done.stdout.partition("short test summary")[2]
    assert "2 failed, 1 passed" in summary
    assert "two/test_two.py::test_lost - Failed: 1 finding:" in summary
    assert "three/pyproject.toml: ignore in [tool.vmapdbg]: unknown code 'VD999'" in done.stdout


def test_a_mistake_in_the_table_is_one_line(tmp_path: Path) -> None:
    write_table(tmp_path, "colour = 1", text="def test_a(): pass\n")
    done = run_pytest(tmp_path, "--vmapdbg", "tests")
    assert done.returncode == 4
    (said,) = [line for line in done.stderr.splitlines() if line]
    assert said.startswith("ERROR: --vmapdbg: ")
    assert "unknown key 'colour' in [tool.vmapdbg]" in said
    # without the option the table is not read
    assert run_pytest(tmp_path, "tests").returncode == 0


def test_a_check_without_a_capture(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(assert_kernels): assert_kernels(1)\n", encoding="utf-8")
    assert "nothing was captured in this test yet" in run_pytest(tmp_path, "--vmapdbg").stdout
