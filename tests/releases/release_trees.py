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
def load_captures(version: str, **settings: str) -> dict[str, str]:
    """Returns what captured.py says of the programs on a release, by their names, with switches of tinygrad set."""
    return json.loads(run_on(version, HERE / "captured.py", *map(str, PROGRAMS), **NULL, **settings))


@cache
def load_observed(version: str, name: str, **settings: str) -> Capture:
    """Returns the capture of a program on a release."""
    return parse_capture(load_captures(version, **settings)[name], name)


def run_snippet(tree: Path, folder: Path, text: str, *command: str, **settings: str) -> CompletedProcess[str]:
    """Runs `vmapdbg COMMAND` on a snippet on a tree as it is."""
    (folder / "snippet.py").write_text(text, encoding="utf-8")
    name, *options = command
    return run_tool(name, "snippet.py", "--tinygrad", str(tree), *options, cwd=folder, **settings)


def run_on(version: str, script: Path, *arguments: str, **settings: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{find_tree(version)}{os.pathsep}{ROOT}", **settings}
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
