"""pytest --vmapdbg observes the tinygrad that the tests import, whichever release that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from release_trees import ROOT

TESTS = """
from tinygrad import Tensor


def test_a_block(capture, assert_kernels, assert_no_findings):
    x = Tensor([[1.0, 2.0], [3.0, 5.0]]).realize()
    x.sum(1).realize()
    with capture() as c:
        x.sum(1).realize()
    assert_kernels(1)
    assert_no_findings()
    assert c.capture.mode == "observe"
    assert c.schedules[0].line == "test_blocks.py:9"
    assert [node.op for node in c.schedules[0].nodes if node.realized]
    with capture() as c:
        pass
    assert_kernels(0)


def test_nothing_captured():
    assert Tensor([1, 2]).sum().item() == 3
"""


def run_tests(tree: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs TESTS on a tree in a folder that has no metadata of a release, so that it is observed, 0.12.0 too."""
    (folder / "test_blocks.py").write_text(TESTS, encoding="utf-8")
    (folder / "tree").mkdir()
    (folder / "tree" / "tinygrad").symlink_to(tree / "tinygrad")
    path = os.pathsep.join([str(folder / "tree"), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--vmapdbg", "test_blocks.py"]
    environment = {**os.environ, "PYTHONPATH": path, "DEV": "PYTHON"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_blocks_are_captured(tree: Path, release: str, tmp_path: Path) -> None:
    done = run_tests(tree, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
