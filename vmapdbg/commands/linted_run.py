"""The parent's side of `vmapdbg run --lint`: runs the program, reads what its processes found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmapdbg.data import to_data
from vmapdbg.lint.ignores import split_ignored
from vmapdbg.model import SCHEMA, Finding


@dataclass(frozen=True)
class LintedRun:
    """What came of a program that ran with lint.

    `status` is its exit code (128 + the signal that killed it). `kernels` counts the different ones of each process,
    `undecided` those of them with an address that could not be told, `failed` the schedules that could not be
    looked at, by reason.
    """

    status: int
    schedules: int
    kernels: int
    undecided: int
    findings: tuple[Finding, ...]
    ignored: int
    failed: dict[str, int]


def dump_run(linted: LintedRun, target: str) -> str:
    """Returns it as one JSON document; its findings are those of the capture's contract."""
    from vmapdbg.render.lint_formats import RunDocument

    document = RunDocument(schema=SCHEMA, kind="run", target=target, **vars(linted))
    return json.dumps(to_data(document), indent=1, ensure_ascii=True) + "\n"


def run_and_lint(program: Sequence[str], environment: dict[str, str], target: str) -> LintedRun:
    """Runs `python PROGRAM` in `environment`, which has the overlay, and returns what its processes found."""
    with tempfile.TemporaryDirectory(prefix="vmapdbg-lint-") as folder:
        process = subprocess.Popen(
            [sys.executable, *program], env={**environment, "VMAPDBG_LINT": folder, "VMAPDBG_LINT_TARGET": target}
        )
        # Ctrl-C goes to the program as well, which decides what it does with it
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            status = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
            process.kill()
        return read_findings(Path(folder), status if status >= 0 else 128 - status)


def read_findings(folder: Path, status: int) -> LintedRun:
    """Sums up the files of all processes; the same finding of two of them is one."""
    lines = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in read_whole_lines(file)]
    found: dict[tuple[str, str, str | None], Finding] = {}
    for line in lines:
        for data in line["findings"]:
            finding = Finding(**data)
            found.setdefault((finding.code, finding.message, finding.line), finding)
    stay, ignored = split_ignored(found.values())
    return LintedRun(
        status=status,
        schedules=sum(line["schedules"] for line in lines),
        kernels=sum(line["kernels"] for line in lines),
        undecided=sum(line.get("undecided", 0) for line in lines),
        findings=stay,
        ignored=len(ignored),
        failed=dict(Counter(reason for line in lines for reason in line["failed"])),
    )


def read_whole_lines(file: Path) -> list[str]:
    """A process that was killed may have left half a line."""
    text = file.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()
