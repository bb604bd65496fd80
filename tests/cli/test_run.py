"""`vmapdbg run`: any program, and the processes it starts, on patched tinygrad; and `tinygrad.func` in a program, under
`vmapdbg run` and in a snippet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tool import ROOT, run_command, run_tool, show_json, write

from vmapdbg.install.patches import format_patches, parse_patches

HAS_OPS = """
import os
from tinygrad.uop import Ops
print(hasattr(Ops, 'VMAPIN'), 'close-ranges' in os.environ['VMAPDBG_PATCHES'])
"""


def test_script_gets_the_overlay_and_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(HAS_OPS + "import sys\nprint(sys.argv)\nsys.exit(5)\n", encoding="utf-8")
    done = run_tool("run", "--patches", "all,-close-ranges", "a.py", "--json", "-x", cwd=tmp_path)
    assert done.stdout == "True False\n['a.py', '--json', '-x']\n"
    assert done.returncode == 5


def test_module_gets_the_overlay(tmp_path: Path) -> None:
    (tmp_path / "amodule.py").write_text(HAS_OPS, encoding="utf-8")
    assert run_tool("run", "-m", "amodule", cwd=tmp_path).stdout == "True True\n"


def test_spawned_processes_get_the_overlay(tmp_path: Path) -> None:
    """BEAM search and data loaders start Python processes of their own."""
    text = (
        "import multiprocessing, subprocess, sys\n"
        "def work(x):\n  from tinygrad.uop import Ops\n  return hasattr(Ops, 'VMAPIN')\n"
        "if __name__ == '__main__':\n"
        "  with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(work, [1]), flush=True)\n"
        "  subprocess.run([sys.executable, '-c', 'from tinygrad.uop import Ops; print(hasattr(Ops, \"VMAPIN\"))'])\n"
    )
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    done = run_tool("run", "a.py", cwd=tmp_path)
    assert done.stdout == "[True]\nTrue\n", done.stderr


def test_a_sitecustomize_of_the_users_still_runs(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'mine'\n", encoding="utf-8")
    (tmp_path / "a.py").write_text(HAS_OPS + "print(mine)\n", encoding="utf-8")
    done = run_tool("run", "a.py", cwd=tmp_path, PYTHONPATH=f"{site}:{ROOT}")
    assert done.stdout == "True True\nmine\n", done.stderr


def test_traceback_is_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("raise ValueError('x')\n", encoding="utf-8")
    done = run_tool("run", "a.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "vmapdbg" not in done.stderr.replace(str(tmp_path), "")


# *** tinygrad.func

PROGRAM = """
{first}
from tinygrad import Tensor
from tinygrad.func import jvp, vmap
x = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
print(vmap(lambda v: (v * v).sum())(x).tolist(), jvp(lambda v: v * v, (x[0],), (x[1],))[1].tolist())
"""
PRINTED = "[5.0, 25.0, 61.0] [6.0, 16.0]\n"


def run_plain(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program in a process without the overlay."""
    return run_command(sys.executable, write(folder, text), cwd=folder, DEV="PYTHON", **variables)


def test_one_import_patches_a_plain_program_and_the_processes_it_starts(tmp_path: Path) -> None:
    started = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import tinygrad.func; print(1)'])\n"
    done = run_plain(
        PROGRAM.format(first="import vmapdbg.patched") + "import sys; sys.stdout.flush()\n" + started, tmp_path
    )
    assert done.stdout == PRINTED + "1\n", done.stderr


STATE = "import os, vmapdbg.patched\nprint(os.environ['VMAPDBG_PATCHES'])\n"


@pytest.mark.parametrize("patches", ["all,-close-ranges", "-close-ranges", "close-ranges,-close-ranges"])
def test_the_variable_is_read_as_the_option_is(patches: str, tmp_path: Path) -> None:
    """A list that the overlay does not know switched every patch off without a word."""
    done = run_plain(STATE, tmp_path, VMAPDBG_PATCHES=patches)
    assert done.stdout == f"{format_patches(parse_patches(patches))}\n", done.stderr


def test_a_mistake_in_the_variable_is_an_error_of_one_line(tmp_path: Path) -> None:
    text = "try:\n  import vmapdbg.patched\nexcept ImportError as error:\n  print(error)\n"
    done = run_plain(text, tmp_path, VMAPDBG_PATCHES="close-rnges")
    assert done.stdout.startswith("VMAPDBG_PATCHES: unknown patch 'close-rnges': choose from all, none, "), done.stderr


def test_without_it_there_is_no_such_module(tmp_path: Path) -> None:
    done = run_plain(PROGRAM.format(first=""), tmp_path)
    assert done.returncode == 1
    assert "No module named 'tinygrad.func'" in done.stderr


def test_the_import_after_tinygrad_is_an_error_of_one_line(tmp_path: Path) -> None:
    text = "import tinygrad\ntry:\n  import vmapdbg.patched\nexcept ImportError as error:\n  print(error)\n"
    done = run_plain(text, tmp_path)
    assert done.stdout == "tinygrad is imported already: the overlay must be installed before it\n", done.stderr


def test_the_import_does_nothing_under_run_and_in_a_snippet(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(PROGRAM.format(first="import vmapdbg.patched"), encoding="utf-8")
    done = run_tool("run", "--patches", "all,-close-ranges", "a.py", cwd=tmp_path, DEV="PYTHON")
    assert done.stdout == PRINTED, done.stderr
    capture, printed = show_json(Path("a.py"), cwd=tmp_path, DEV="PYTHON")
    assert printed == PRINTED
    assert capture["schedules"]
    assert capture["error"] is None


def test_a_snippet_shows_the_users_lines_and_small_ranges(tmp_path: Path) -> None:
    """The RANGEs of vmap have ids that no other call has; the report shows the ids of the schedule."""
    text = (
        "from tinygrad import Tensor\n"
        "from tinygrad.func import vmap\n"
        "x = Tensor.ones(3, 5, 4).contiguous().realize()\n"
        "def fn(v):\n"
        "  s = v.exp().sum()\n"
        "  return v * s\n"
        "vmap(vmap(fn))(x).realize()\n"
    )
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    capture, _ = show_json(Path("a.py"), cwd=tmp_path, DEV="PYTHON")
    last = capture["schedules"][-1]
    assert last["line"] == "a.py:7"
    assert {name for entry in last["vmap_map"] for name in entry["ranges"]} == {"rm1", "rm2"}
    of_functions = {line for node in last["nodes"] if (line := node["line"]) is not None}
    assert {"a.py:5", "a.py:6"} <= of_functions
    assert all(line.startswith("a.py:") for line in of_functions)
    assert {line for kernel in last["kernels"] for line in kernel["lines"]} >= {"a.py:5", "a.py:6"}


def test_random_numbers_in_a_vmap_are_refused_under_observation_too(tmp_path: Path) -> None:
    """Otherwise the report would show kernels of a program that fails without the tool."""
    text = """
from tinygrad import Tensor
from tinygrad.func import vmap
vmap(lambda v: v + Tensor.randn(4))(Tensor.ones(3)).realize()
"""
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    done = run_tool("show", "a.py", cwd=tmp_path, DEV="PYTHON")
    assert done.returncode == 3
    assert "VmapScopeError: Tensor.randn draws random numbers of shape (4,)" in done.stderr.splitlines()[-1]
