"""`vmapdbg run`: any program, and the processes it starts, on patched tinygrad."""

from __future__ import annotations

from pathlib import Path

from tool import ROOT, run_tool

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
