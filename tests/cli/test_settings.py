"""`[tool.vmapdbg]` in effect: the command line counts more, and a mistake ends the tool before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lost import LOST, OFF
from tool import run_tool

TABLE = '[tool.vmapdbg]\ntarget = "metal"\nignore = ["VD101"]\npatches = "all,-ambient-ranges"\n'


def write(folder: Path, table: str) -> None:
    (folder / "src").mkdir()
    (folder / "pyproject.toml").write_text(table, encoding="utf-8")
    (folder / "src" / "a.py").write_text(LOST.format(comment=""), encoding="utf-8")


@pytest.mark.slow
def test_settings_come_from_the_folder_of_the_snippet(tmp_path: Path) -> None:
    write(tmp_path, TABLE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    snippet = "../src/a.py"
    done = run_tool("lint", snippet, "--format", "json", cwd=elsewhere)
    found = json.loads(done.stdout)
    assert (done.returncode, found["target"], found["findings"]) == (0, "metal", [])
    assert found["patches"]["ambient-ranges"] is False
    # show prints it, too
    assert "VD101" not in run_tool("show", snippet, cwd=elsewhere).stdout
    # the command line counts more
    done = run_tool("lint", snippet, "--select", "VD101", "--ignore", "VD104", "--target", "c", cwd=elsewhere)
    assert (done.returncode, "VD101" in done.stdout, "target c" in done.stdout) == (1, True, True)
    assert run_tool("lint", snippet, "--patches", "all", "--ignore", "VD104", cwd=elsewhere).returncode == 0


def test_run_has_settings(tmp_path: Path) -> None:
    write(tmp_path, TABLE)
    (tmp_path / "src" / "a.py").write_text(LOST.format(comment="") + "out.realize()\n", encoding="utf-8")
    assert run_tool("run", "--lint", "src/a.py", cwd=tmp_path, DEV="PYTHON").returncode == 0
    (tmp_path / "pyproject.toml").write_text("[tool.vmapdbg]\nignore = []\n", encoding="utf-8")
    assert run_tool("run", "--lint", *OFF, "src/a.py", cwd=tmp_path, DEV="PYTHON").returncode == 1


@pytest.mark.parametrize(
    "command", [["show"], ["lint"], ["check"], ["bisect"], ["diff", "--baseline"], ["run", "--lint"]]
)
def test_a_mistake_ends_the_tool(command: list[str], tmp_path: Path) -> None:
    write(tmp_path, "[tool.vmapdbg]\ntagret = 'metal'\n")
    (tmp_path / "src" / "a.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    done = run_tool(*command, "src/a.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown key 'tagret' in [tool.vmapdbg]" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "ran").exists()
