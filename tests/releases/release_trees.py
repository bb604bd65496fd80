"""Trees of tinygrad releases: in .cache/trees/VERSION, put there by pip on first use. Without a network tests skip."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tool import run_tool

from vmapdbg.model.capture import Capture
from vmapdbg.model.store import parse_capture

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
TREES = ROOT / ".cache" / "trees"
NULL = {"DEV": "NULL", "NULL": "1"}
RELEASES = ("0.12.0", "0.13.0", "0.14.0")
PROGRAMS = sorted((HERE / "programs").glob("*.py"))


def find_tree(version: str) -> Path:
    place = TREES / version
    if (place / "tinygrad" / "__init__.py").exists():
        return place
    TREES.mkdir(parents=True, exist_ok=True)
    # half a tree must not be taken for one: it is moved to its place when it is whole
    half = TREES / f"{version}.{os.getpid()}"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(half), f"tinygrad=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(half, ignore_errors=True)
        pytest.skip(f"tinygrad {version} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
    try:
        half.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(half, ignore_errors=True)
    return place


@cache
def load_captures(version: str, target: str, **settings: str) -> dict[str, str]:
    """Returns the captures of the programs on a release, by their names, with switches of tinygrad set."""
    return json.loads(run_on(version, HERE / "observed.py", target, *PROGRAMS, **NULL, **settings))


@cache
def load_observed(version: str, name: str, target: str = "c", **settings: str) -> Capture:
    """Returns the capture of a program on a release."""
    return parse_capture(load_captures(version, target, **settings)[name], name)


def run_snippet(tree: Path, folder: Path, text: str, *command: str, **settings: str) -> CompletedProcess[str]:
    """Runs `vmapdbg COMMAND` on a snippet on a tree as it is."""
    (folder / "snippet.py").write_text(text, encoding="utf-8")
    name, *options = command
    return run_tool(name, "snippet.py", "--tinygrad", str(tree), *options, cwd=folder, **settings)


def run_on(version: str, *arguments: str | Path, **settings: str) -> str:
    """Runs Python with these arguments on a release: a script, or `-c` with code. Returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": f"{find_tree(version)}{os.pathsep}{ROOT}", **settings}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_observed(version: str, code: str, *arguments: str) -> str:
    """Runs code on a release that is observed by `recorder`. Returns what it prints."""
    start = (
        "from vmapdbg.child.listen import hooks\nfrom vmapdbg.child.listen.recorder import Recorder\n"
        "recorder = Recorder()\nhooks.start(recorder)\n"
    )
    return run_on(version, "-c", start + code, *arguments, **NULL)
