"""Data flows one way: snippet -> child -> Capture -> view. These rules keep it so."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from vmapdbg.commands.cli import COMMANDS

ROOT = Path(__file__).parent.parent.parent
PACKAGE, OVERLAY = ROOT / "vmapdbg", ROOT / "tinygrad"
# in order: a folder imports only from the folders before it, and from itself
ORDER = (
    "model",
    "values",
    "reference",
    "install",
    "patched",
    "check",
    "diff",
    "lint",
    "suite",
    "bisect",
    "tune",
    "child",
    "page",
    "commands",
    "pytest_plugin",
    "__main__",
)
# the child's process has no use for these, and the parent's none for the child's
APART = {"child": {"bisect", "tune"}, "page": {"child"}, "commands": {"child"}}


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


def room_of(file: Path) -> str:
    if file.parent.name == "bootstrap":
        # the files that run first in a child process
        return "child"
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=place_of)
def test_only_the_child_imports_tinygrad_and_imports_go_one_way(file: Path) -> None:
    room = room_of(file)
    if room == "__init__":
        return
    may = {*ORDER[: ORDER.index(room) + 1]} - APART.get(room, set())
    for name in imported(file):
        if name.startswith("vmapdbg."):
            assert name.split(".")[1] in may, (place_of(file), name)
        assert room == "child" or name.split(".")[0] != "tinygrad"


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_at_load(file: Path, modules: set[str]) -> set[str]:
    """The modules of `modules` that are loaded with a file: not what only a function or a type checker imports."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules or {str(node.module)}
    return found & modules


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = {module_of(file): file for file in PACKAGE.rglob("*.py")}
    modules = set(files)
    graph = {module: imports_at_load(file, modules) for module, file in files.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("these modules import each other: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize("file", sorted(OVERLAY.rglob("*.py")), ids=lambda file: file.relative_to(OVERLAY).as_posix())
def test_overlay_never_imports_the_tool(file: Path) -> None:
    assert not {name for name in imported(file) if name.split(".")[0] == "vmapdbg"}


def test_the_recorder_has_each_report_of_the_overlay() -> None:
    """Without a recorder, the overlay accepts any name of a report, also a misspelt one."""
    assert not (OVERLAY / "__init__.py").exists(), "the folder would shadow the installed package"
    tree = ast.parse((PACKAGE / "child" / "listen" / "recorder.py").read_text(encoding="utf-8"))
    methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    sources = (file.read_text(encoding="utf-8") for file in OVERLAY.rglob("*.py"))
    reports = {report for source in sources for report in re.findall(r"\bobserver\.(\w+)\(", source)}
    assert len(reports) > 5
    assert reports <= methods


EVERY_COMMAND = ", ".join(f"vmapdbg.commands.{name}" for name in COMMANDS)


def test_parent_runs_without_tinygrad() -> None:
    """Two saved captures can be read where tinygrad is not installed, and --help is quick."""
    code = (
        "import sys\nsys.modules['tinygrad'] = None\n"
        f"import {EVERY_COMMAND}, vmapdbg.page.text.run\n"
        "print([name for name in sys.modules if name.startswith('numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


# what is imported -> a part that it has no use for, and that takes time
NOT_IMPORTED = (
    ("vmapdbg.commands.cli", "vmapdbg.commands.show"),
    (EVERY_COMMAND, "rich"),
    (EVERY_COMMAND, "vmapdbg.diff"),
    ("vmapdbg.commands.show", "hashlib"),
    ("vmapdbg.child.run_snippet", "vmapdbg.child.capture"),
    ("vmapdbg.child.run_snippet", "vmapdbg.child.evidence"),
    ("vmapdbg.lint", "vmapdbg.diff"),
)


@pytest.mark.parametrize(("started", "part"), NOT_IMPORTED)
def test_start_is_quick(started: str, part: str) -> None:
    code = f"import sys, {started}; print([name for name in sys.modules if f'{{name}}.'.startswith('{part}.')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
