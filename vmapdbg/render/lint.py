"""Findings on the terminal: a block for each, grouped by place, and the line that sums them up."""

from __future__ import annotations
from rich.console import Console


def print_summary(linted, console: Console) -> None:
    for f in linted.findings:
        console.print(f"{f.code} {f.line} {f.message}")
    console.print(f"{linted.schedules} schedules {linted.kernels} kernels, undecided {linted.undecided}, {len(linted.findings)} findings, failed {linted.failed}")
