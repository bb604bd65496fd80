"""The programs, the states of tinygrad that they run on, and the commands whose output is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
_MOST_FOUND = 20
_TIMEOUT = 60
"""Seconds. An output of what is stopped is not kept: it depends on how busy the machine is."""
STOPPED = "did not end within"

STATES = {
    "all": "--patches all",
    "none": "--patches none",
    # a link in the working folder to the packages of this Python
    "stock": "--tinygrad ./installed",
    "0.12.0": "--tinygrad 0.12.0",
    "0.13.0": "--tinygrad 0.13.0",
    "0.14.0": "--tinygrad 0.14.0",
}
BEFORE = {
    "all": ("none", "stock"),
    "none": ("stock",),
    "0.12.0": ("none",),
    "0.13.0": ("stock",),
    "0.14.0": ("0.13.0",),
}
"""The states that a state is compared with by `diff`, `lint --baseline` and `graph --diff`."""

RUN = "show.run"
"""The view that runs the program and saves the capture that other views read."""

RUNS = {RUN: "show {run} --save {saved} --width 80", "check.80": "check {run} --width 80"}
"""Commands that run the program."""

FEW_RUNS = {"check.json": "check {run} --json", "why.value.80": "why --value {run} --width 80"}
"""The same, for FEW_STATES alone: runs are nearly all of the time that the net takes."""
FEW_STATES = ("all", "0.14.0")

PATCHED_RUNS = {
    "check.160": "check {run} --width 160",
    "why.value.json": "why --value {run} --json",
    "diff.run": "diff {run} --baseline=none --width 80",
    "lint.run": "lint {run} --width 80",
}
"""The same, for the state `all` alone."""

SAVED = {
    "show.80": "show {saved} --width 80",
    "show.160": "show {saved} --width 160",
    "show.all.80": "show {saved} --all --width 80",
    "show.all.160": "show {saved} --all --width 160",
    "show.kernel": "show {saved} --kernel 0 --width 80",
    "show.json": "show {saved} --json",
    "why.80": "why {saved} --width 80",
    "why.160": "why {saved} --width 160",
    "why.kernel": "why {kernel} {saved} --width 80",
    "why.line.80": "why {line} {saved} --width 80",
    "why.line.160": "why {line} {saved} --width 160",
    "why.node": "why {node} {saved} --width 80",
    "lint.80": "lint {saved} --width 80",
    "lint.160": "lint {saved} --width 160",
    "lint.concise": "lint {saved} --format concise --width 80",
    "lint.json": "lint {saved} --format json",
    "lint.github": "lint {saved} --format github",
    "lint.sarif": "lint {saved} --format sarif",
    "graph.tensor.dot": "graph {saved} --stage tensor -o out.dot",
    "graph.ranges.dot": "graph {saved} --stage ranges -o out.dot",
    "graph.kernels.dot": "graph {saved} --stage kernels -o out.dot",
    "graph.unfolded.dot": "graph {saved} --fold 0 -o out.dot",
    "graph.json": "graph {saved} -o out.json",
    "graph.svg": "graph {saved} --stage kernels -o out.svg",
    "report.html": "report {saved} -o out.html",
}
"""Commands that read a saved capture."""

PAIRS = {
    "diff.{before}.80": "diff {before}.json {saved} --width 80",
    "diff.{before}.160": "diff {before}.json {saved} --width 160",
    "diff.{before}.all": "diff {before}.json {saved} --all --schedule all --width 160",
    "diff.{before}.json": "diff {before}.json {saved} --json",
    "diff.{before}.html": "diff {before}.json {saved} -o out.html",
    "graph.diff.{before}": "graph {saved} --diff --baseline {before}.json -o out.dot",
    "lint.{before}": "lint {saved} --baseline {before}.json --width 80",
}
"""Commands that read two saved captures; the first is of a state in BEFORE."""


@dataclass(frozen=True)
class View:
    """A command whose output is kept; `before` is the other state whose capture it reads."""

    name: str
    command: str
    before: str = ""

    @property
    def reads_capture(self) -> bool:
        return "{saved}" in self.command

    def fill(self, program: str, state: str) -> list[str]:
        """Returns the arguments of the tool, for a program in a state."""
        words = {
            "run": f"{program} {STATES[state]} --timeout {_TIMEOUT}",
            "saved": f"{state}.json",
            "before": self.before,
        }
        subjects = find_subjects(Path(f"{state}.json")) if self.name.startswith("why.") else {}
        return self.command.format(**words, **subjects).split()


def list_views(state: str, wanted: Sequence[str]) -> list[View]:
    """Returns the views of a state whose names, or the beginnings of their names (`show`, `diff.none`), are wanted; all
    if `wanted` is empty."""
    single = {**RUNS, **SAVED}
    if state in FEW_STATES:
        single |= FEW_RUNS
    if state == "all":
        single |= PATCHED_RUNS
    views = [View(name, command) for name, command in single.items()]
    for before in BEFORE.get(state, ()):
        views += [View(name.format(before=before), command, before) for name, command in PAIRS.items()]
    return [view for view in views if not wanted or any(f"{view.name}.".startswith(f"{name}.") for name in wanted)]


def list_programs(only: Sequence[str] = ("",)) -> list[Path]:
    """Returns the samples, and the first of the programs that were found, with a string of `only` in their names.

    A program that hangs on any release is left out: what it was doing when it was stopped depends on time.
    """
    found = [
        file
        for file in sorted((ROOT / "tests" / "found" / "programs").glob("*.py"))
        if ": hang" not in file.read_text(encoding="utf-8")
    ]
    programs = [*sorted((ROOT / "samples").glob("*.py")), *found[:_MOST_FOUND]]
    return [file for file in programs if any(part in file.stem for part in only)]


def find_subjects(file: Path) -> dict[str, str]:
    """Returns what `why` is asked about: the last kernel of a capture, the line of that, and a node that it writes."""
    subjects = {"kernel": "no_kernel", "line": "no_line.py:1", "node": "0"}
    capture: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for schedule in capture.get("schedules", ()):
        for kernel in schedule["kernels"]:
            subjects["kernel"] = kernel["name"] or subjects["kernel"]
            subjects["line"] = next(iter(kernel["lines"]), subjects["line"])
            subjects["node"] = str(next(iter(kernel["outputs"]), subjects["node"]))
    return subjects
