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


def test_the_right_place_is_named_first_for_nine_of_ten(outcomes: list[dict[str, Any]]) -> None:
    wrong = {row["name"]: [f.message for f in row["findings"]] for row in outcomes if not row["right"]}
    assert len(wrong) * 10 <= len(outcomes), wrong


def test_a_right_buffer_that_is_read_at_other_steps_is_told(outcomes: list[dict[str, Any]]) -> None:
    for name in ("ambient-wrong-order", "ambient-wrong-order-square"):
        (finding,) = next(row["findings"] for row in outcomes if row["name"] == name)
        assert "at step (0, 1) it gets what belongs to (1, 0)" in finding.message
        assert finding.number == 1, "the kernel is the one that reads"
    others = [row for row in outcomes if not row["name"].startswith("ambient-wrong-order")]
    assert [row["name"] for row in others if "gets what belongs to" in str(row["findings"])] == []
