"""Data flows one way: snippet -> child -> Capture -> view. These rules keep it so."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE, OVERLAY = ROOT / "vmapdbg", ROOT / "tinygrad"
# the child's side, which may import tinygrad
CHILD_SIDE = {
    "capture/child.py",
    "capture/extract.py",
    "capture/programs.py",
    "capture/recorder.py",
    "capture/replays.py",
    "capture/lines.py",
    "capture/snippet_data.py",
    "capture/snippet_forms.py",
    "capture/snippet_outline.py",
    "capture/snippet_writer.py",
    "capture/stock.py",
    "capture/unroll.py",
    "capture/values.py",
    "capture/walk.py",
    "capture/widen.py",
    "capture/evidence.py",
    "capture/oracle.py",
    "capture/reducer.py",
    "capture/shrink.py",
    "capture/trial.py",
    "capture/accesses.py",
    "capture/bounds.py",
    "capture/dependence.py",
    "capture/expressions.py",
    "capture/memory_sets.py",
    "capture/live.py",
    "capture/running.py",
}
# who may be imported by whom: model <- store, render <- cli
ALLOWED = {
    "model.py": set(),
    "patches.py": set(),
    "store.py": {"model"},
    "ambient.py": {"model"},
    "why.py": {"ambient", "model"},
    "lint": {"ambient", "model", "lint"},
    "diff": {"ambient", "model", "diff"},
    "check": {"ambient", "model", "check"},
    "bisect": {"bisect", "diff", "model"},
    "render": {"ambient", "model", "patches", "render", "store", "diff", "why", "check", "bisect"},
    "overlay.py": set(),
    "memory.py": {"capture.launcher", "patches", "store"},
    "capture/launcher.py": {"model", "overlay", "patches", "store"},
}


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
    return names


def place_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=place_of)
def test_only_the_child_imports_tinygrad(file: Path) -> None:
    if place_of(file) not in CHILD_SIDE:
        assert not {name for name in imported(file) if name.split(".")[0].startswith("tinygrad")}


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=place_of)
def test_imports_go_one_way(file: Path) -> None:
    rule = next((rule for rule in ALLOWED if place_of(file) == rule or place_of(file).startswith(rule + "/")), None)
    if rule is None:
        return
    own = {name.removeprefix("vmapdbg.") for name in imported(file) if name.startswith("vmapdbg.")}
    for name in own:
        assert any(name == allowed or name.startswith(allowed + ".") for allowed in ALLOWED[rule]), (
            place_of(file),
            name,
        )


@pytest.mark.parametrize("file", sorted(OVERLAY.rglob("*.py")), ids=lambda file: file.relative_to(OVERLAY).as_posix())
def test_overlay_never_imports_the_tool(file: Path) -> None:
    assert not {name for name in imported(file) if name.split(".")[0] == "vmapdbg"}


def test_overlay_folder_does_not_shadow_the_installed_package() -> None:
    assert not (OVERLAY / "__init__.py").exists()


def test_parent_runs_without_tinygrad() -> None:
    """Two saved captures can be read where tinygrad is not installed, and --help is quick."""
    code = (
        "import sys\nsys.modules['tinygrad'] = None\n"
        "import vmapdbg.cli, vmapdbg.render.text, vmapdbg.store, vmapdbg.memory\n"
        "print([name for name in sys.modules if name.startswith('numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_help_imports_no_rich() -> None:
    code = "import sys, vmapdbg.cli; print([name for name in sys.modules if name.split('.')[0] == 'rich'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
