"""`vmapdbg run --lint`: runs the program and sums up what lint found in its processes.

`vmapdbg.child.run_lint` runs in these processes.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from vmapdbg.commands.shared.children import Program, run_program
from vmapdbg.commands.shared.console import make_console
from vmapdbg.commands.shared.jobs import report_mistakes
from vmapdbg.commands.shared.settings import find_settings
from vmapdbg.install.job import LintedSchedule
from vmapdbg.model.capture import SCHEMA, Finding
from vmapdbg.model.data import build_data, dump_document
from vmapdbg.model.store import check_output, write_output

if TYPE_CHECKING:
    from vmapdbg.page.documents import RunDocument


def run_and_lint(program: Program, output: Path | None) -> int:
    """Runs a program, prints what lint found to stderr and writes it to `output`.

    Returns the exit code: the program's own, or 1 for findings.
    """
    if output is not None:
        check_output(output)
    linted = lint_program(program)
    print_linted(linted)
    if output is not None:
        write_output(output, dump_document(linted))
    return linted.status or int(bool(linted.findings))


def print_linted(linted: RunDocument) -> None:
    from vmapdbg.lint import RULES
    from vmapdbg.page.text.lint import print_run

    report_mistakes(linted.findings)
    counts = f"{linted.kernels:,} kernels of {linted.schedules:,} schedules"
    if linted.ignored:
        counts += f", {linted.ignored} ignored by comments"
    if linted.undecided:
        counts += f" ({linted.undecided:,} kernels have an address that could not be told)"
    titles = {rule.code: rule.name for rule in RULES}
    print_run(linted.findings, counts, linted.failed, titles, make_console(stderr=True))


def lint_program(program: Program) -> RunDocument:
    """Runs a program and returns what lint found in its processes."""
    target = program.job.target
    with tempfile.TemporaryDirectory(prefix="vmapdbg-lint-") as folder:
        status = run_program(program, VMAPDBG_LINT=folder, VMAPDBG_LINT_TARGET=target)
        codes = find_settings(program.job.snippet).choose_codes()
        return sum_up(Path(folder), target, status, codes)


def sum_up(folder: Path, target: str, status: int, codes: Collection[str]) -> RunDocument:
    """Sums up the files of all processes: findings with one of `codes`, equal findings of two processes once."""
    from vmapdbg.lint.ignores import split_ignored
    from vmapdbg.page.documents import RunDocument

    schedules = [
        build_data(LintedSchedule, json.loads(line))
        for file in sorted(folder.glob("*.jsonl"))
        for line in read_whole_lines(file)
    ]
    found: dict[tuple[str, str, str | None], Finding] = {}
    for schedule in schedules:
        for finding in schedule.findings:
            if finding.code not in codes:
                continue
            found.setdefault((finding.code, finding.message, finding.line), finding)
    stay, ignored = split_ignored(found.values())
    return RunDocument(
        schema=SCHEMA,
        kind="run",
        target=target,
        status=status,
        schedules=len(schedules),
        kernels=sum(schedule.kernels for schedule in schedules),
        undecided=sum(schedule.undecided for schedule in schedules),
        findings=stay,
        ignored=len(ignored),
        failed=dict(Counter(schedule.failed for schedule in schedules if schedule.failed is not None)),
    )


def read_whole_lines(file: Path) -> list[str]:
    """Returns the lines of a file without the last one if it is incomplete: its process may have been killed."""
    text = file.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()
