"""What `check` says of each fault that changes values: plants them, compares, makes the findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmapdbg.check.result import CheckReport
from vmapdbg.model.capture import Capture, Finding
from vmapdbg.model.store import build_data
from vmapdbg.page.check_sentences import make_findings

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Outcome:
    """The result for one fault. `rank` is the place of the first finding that names its line, from 1. `stopped`: the
    program raised."""

    name: str
    findings: tuple[Finding, ...]
    stopped: bool
    rank: int | None


def check_faults(folder: Path, names: Sequence[str] = ()) -> Iterator[Outcome]:
    """Yields an outcome for each fault that changes values; with `names`, only for these.

    `folder` is an empty folder for the evidence. Raises RuntimeError if a child fails.
    """
    ran = {row["name"]: row for row in run_step("run", str(folder), *names)}
    for judged in run_step("judge", str(folder)):
        row = ran[judged["name"]]
        report = build_data(CheckReport, judged["report"])
        findings = make_findings(add_crash(build_data(Capture, row["capture"]), report), report)
        lines = [(finding.line or "").rpartition(":")[2] for finding in findings]
        rank = lines.index(row["line"]) + 1 if row["line"] in lines else None
        yield Outcome(row["name"], findings, row["capture"]["error"] is not None, rank)


def add_crash(capture: Capture, report: CheckReport) -> Capture:
    """Returns the capture with the place where tinygrad raised, which the child of a snippet adds to its error."""
    crash = next((check.crash for check in report.schedules if check.crash is not None), None)
    if capture.error is None:
        return capture
    return replace(capture, error=replace(capture.error, crash=crash))


def run_step(name: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """Yields what a step of the runner prints, one JSON object a line, as it comes."""
    environment = {**os.environ, "DEV": "PYTHON", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.faults_check.runner", name, *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[1:4])} ended with exit code {process.returncode}")
