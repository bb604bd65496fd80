"""The branch of tinygrad's next scheduler, on which no function is known: kernels and reasons are still there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CLONE = os.environ.get("TINYGRAD_CLONE", "")
PROGRAM = """
from tinygrad import Tensor
x = Tensor([[float(i * j % 7) for i in range(16)] for j in range(8)]).realize()
print(x.softmax(1).sum().item())
"""
pytestmark = pytest.mark.skipif(not CLONE, reason="TINYGRAD_CLONE names no clone of tinygrad")


def test_kernels_and_reasons_come_from_rewrites_and_rules(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    tree = ["--tinygrad", f"{CLONE}@c80cac1f26"]
    command = [sys.executable, "-m", "vmapdbg", "show", "program.py", *tree, "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    capture = json.loads(done.stdout)
    assert capture["missing"] == []
    computing = capture["schedules"][1]
    assert len(computing["kernels"]) == 4
    assert all(kernel["outputs"] for kernel in computing["kernels"]), "each kernel has its node"
    realized = [n["realized"]["reasons"][0]["at"] for n in computing["nodes"] if n["realized"]]
    assert [at["file"] for at in realized] == ["schedule/rangeify2.py"] * 4
    # the three values that are used more than once, and the output
    used = [value for at in realized for c in at["conditions"] for k, value in c["values"].items() if "consumes" in k]
    assert used == ["16", "2", "16"]
    assert [(b["outcome"], len(b["closed_ranges"])) for b in computing["bufferizes"]] == [
        ("kept", n) for n in (1, 2, 1)
    ]
    assert all(node["out_ranges"] is not None for node in computing["nodes"] if node["op"] in ("MUL", "EXP2"))
