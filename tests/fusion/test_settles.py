"""The guard's attempts end, and end in the same kernels each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

PROGRAM = """
import hashlib, json
from bench.schedule import random_graph, schedule

done = schedule(lambda: random_graph(500, 1))
print(json.dumps([len(done.keys), hashlib.sha1(b"".join(done.keys)).hexdigest(), done.runs, done.most]))
"""


def schedule(folder: Path, patches: str, hash_seed: int) -> tuple[int, str, int, int]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEV": "NULL", "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-m", "vmapdbg", "run", "--patches", patches, str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return tuple(json.loads(done.stdout))


@pytest.mark.slow
def test_a_random_graph_settles_in_the_same_kernels_each_time(tmp_path: Path) -> None:
    kernels, digest, runs, most = schedule(tmp_path, "all", 1)
    assert schedule(tmp_path, "all", 2) == (kernels, digest, runs, most)
    assert runs <= most, "an attempt for each round, one of them stock's, and the last is the one that is given up"
    assert kernels < schedule(tmp_path, "none", 1)[0]
