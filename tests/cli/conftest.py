"""Runs of the tool on samples that several tests look at: each is made once, for all workers of pytest-xdist."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tool import ROOT, RunSample, run_tool, wait_until, write

from vmapdbg.model.store import write_atomically


@pytest.fixture(scope="session")
def run_sample(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> RunSample:
    """Returns a function that runs `vmapdbg ARGUMENTS`, with a text in `snippet.py`. If an earlier test ran the same on
    that text or on `samples/NAME.py`, it returns that output."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent

    def run(*arguments: str, text: str = "") -> CompletedProcess[str]:
        name = hashlib.sha256("\0".join([*arguments, text]).encode()).hexdigest()[:16]
        folder, result = shared / f"sample-{name}", shared / f"sample-{name}.json"
        try:
            folder.mkdir()
        except FileExistsError:
            wait_until(result.exists, "the other worker did not finish")
        else:
            write(folder, text)
            run_first(folder, result, arguments)
        return CompletedProcess(arguments, *json.loads(result.read_text(encoding="utf-8")))

    return run


def run_first(folder: Path, result: Path, arguments: tuple[str, ...]) -> None:
    """Runs the tool and keeps its exit code, stdout and stderr in a file."""
    (folder / "samples").symlink_to(ROOT / "samples")
    found: tuple[int, str, str] = (-1, "", "it did not run to its end")
    try:
        done = run_tool(*arguments, cwd=folder)
        found = (done.returncode, done.stdout, done.stderr)
    finally:
        # the tests that wait for the file go on
        write_atomically(result, json.dumps(found))
