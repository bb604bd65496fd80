"""Runs of the tool on samples that several tests look at: each is made once, for all workers of pytest-xdist."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from lanes import make_once
from tool import ROOT, RunSample, run_tool, write

RESULT = ".result.json"


@pytest.fixture(scope="session")
def run_sample(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> RunSample:
    """Returns a function that runs `vmapdbg ARGUMENTS`, with a text in `snippet.py`. If an earlier test ran the same on
    that text or on `samples/NAME.py`, it returns that output."""

    def run(*arguments: str, text: str = "") -> CompletedProcess[str]:
        name = hashlib.sha256("\0".join([*arguments, text]).encode()).hexdigest()[:16]
        folder = make_once(tmp_path_factory, worker_id, f"sample-{name}", partial(run_first, arguments, text))
        return CompletedProcess(arguments, *json.loads((folder / RESULT).read_text(encoding="utf-8")))

    return run


def run_first(arguments: tuple[str, ...], text: str, folder: Path) -> None:
    """Runs the tool in a folder, and keeps its exit code, stdout and stderr there."""
    write(folder, text)
    (folder / "samples").symlink_to(ROOT / "samples")
    done = run_tool(*arguments, cwd=folder)
    (folder / RESULT).write_text(json.dumps([done.returncode, done.stdout, done.stderr]), encoding="utf-8")
