"""Every fault that changes values is found by `check`, or stops the program, and is named at the right place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vmapdbg.check.blame import make_findings
from vmapdbg.check.result import CheckReport
from vmapdbg.model import build_data, from_data

ROOT = Path(__file__).parent.parent.parent


def run_module(name: str, *arguments: str) -> list[dict[str, Any]]:
    environment = {**os.environ, "DEV": "PYTHON", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", f"tests.faults_check.{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """One row a fault: whether it was found or stopped the program, and whether the right place was named."""
    folder = tmp_path_factory.mktemp("faults")
    ran = run_module("runner", str(folder))
    judged = {row["name"]: row["report"] for row in run_module("judge", str(folder))}
    rows = []
    for row in ran:
        capture = from_data(row["capture"])
        report = build_data(CheckReport, judged[row["name"]])
        findings = make_findings(capture, report)
        lines = [(f.line or "").rpartition(":")[2] for f in findings]
        stopped = capture.error is not None
        rows.append(row | {"findings": findings, "stopped": stopped, "right": bool(lines) and lines[0] == row["line"]})
    return rows


def test_every_fault_that_changes_values_is_found(outcomes: list[dict[str, Any]]) -> None:
    missed = [row["name"] for row in outcomes if not row["findings"] and not row["stopped"]]
    assert missed == []
    assert len(outcomes) > 20


# The buffer on the line of the fault is right, and is read at the wrong place: what is wrong first is the buffer of the
# kernel that reads it. Only lint sees where the INDEX comes from.
READ_WRONG = {"ambient-not-indexed", "ambient-wrong-order", "ambient-wrong-order-square"}


def test_the_right_place_is_named_first_for_nine_of_ten(outcomes: list[dict[str, Any]]) -> None:
    named = [row for row in outcomes if row["findings"] and not row["stopped"] and row["name"] not in READ_WRONG]
    wrong = {row["name"]: [f.message for f in row["findings"]] for row in named if not row["right"]}
    assert len(wrong) * 10 <= len(named), wrong
