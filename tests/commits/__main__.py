"""Tries the tool on many commits of tinygrad:

    python -m tests.commits --clone DIR [--shard I/N] [--count 100] [COMMIT...]

The commits are spread evenly from the first one that can be observed (October 2025) to the clone's newest, and the
branch of the next scheduler is one of them. On each commit a program (plain, a training step,
Variables, TinyJit, a custom kernel, several devices) runs alone, on the CPU and with DEV=NULL, and then under the
commands. It must hold that

- the program prints the same and ends in the same way as alone;
- each part shows as many kernels and copies as it ran by tinygrad's own counter (on several devices a kernel runs once
  for each);
- no error of ours is anywhere in the output.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from vmapdbg.commands.cli import main as main_command
from vmapdbg.install.trees import TreeError, find_tree

PROGRAM = Path(__file__).parent / "programs" / "parts.py"
NEXT = "origin/rewrite_rangeify2"
FIRST = "907499b02c"
_RAN = re.compile(r"ran (\w+) (\d+)")
# an exception with a frame of ours, and what the guard says of one
_OURS = re.compile(r'File ".*/vmapdbg/|File ".*/_patching\.py|Internal error|[^\n]*was a bug')
_LEFT_OUT = re.compile(r"(?:vmapdbg: )?(.* could not be observed on this tinygrad: .*|.*: this tinygrad has no .*)")
NULL = {"DEV": "NULL", "NULL": "1"}
# a graph of kernels is one launch: JIT=2 captures without graphs
SETTINGS = {"PYTHONHASHSEED": "0", "NO_COLOR": "1", "JIT": "2"}


def pick_commits(clone: str, count: int) -> list[str]:
    """Returns commits of a clone that can be observed, the newest first, evenly spread, and the next scheduler."""
    command = ["git", "-C", clone, "log", "--first-parent", "--format=%h", f"{FIRST}~..origin/HEAD"]
    known = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    picked = [known[number * (len(known) - 1) // max(count - 2, 1)] for number in range(count - 1)]
    found = subprocess.run(["git", "-C", clone, "rev-parse", NEXT], capture_output=True, text=True, check=False)
    return [found.stdout.strip(), *picked] if found.returncode == 0 else picked


def run(command: list[str], tree: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **SETTINGS, **settings}
    if tree:
        environment["PYTHONPATH"] = tree
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def list_counts(capture: dict[str, object]) -> Counter[str]:
    """Returns how many launches the schedules of each part of the program show."""
    functions = ast.parse(PROGRAM.read_text(encoding="utf-8")).body
    shown: Counter[str] = Counter()
    schedules: list[dict[str, object]] = capture["schedules"]  # type: ignore[assignment]
    for schedule in schedules:
        line = int(str(schedule["line"] or ":0").rpartition(":")[2])
        part = "nowhere"
        for one in functions:
            if isinstance(one, ast.FunctionDef) and one.lineno <= line <= (one.end_lineno or 0):
                part = one.name
        kernels: list[dict[str, int]] = schedule["kernels"]  # type: ignore[assignment]
        shown[part] += int(str(schedule["copies"])) + sum(kernel["launches"] for kernel in kernels)
    # `show` is called by all parts: its own realizes are of the part before
    return shown


def compare_counts(printed: str, capture: dict[str, object]) -> Iterator[str]:
    shown = list_counts(capture)
    ran = {name: int(count) for name, count in _RAN.findall(printed)}
    for name, count in ran.items():
        low = count
        if name == "devices":
            # the copies to each device are one copy of the schedule, and its kernels one kernel
            low = -(-count // 2)
        if not low <= shown[name] <= count:
            yield f"{name}: {shown[name]} shown, {count} ran"


def try_commit(commit: str, clone: str) -> Iterator[str]:
    """Yields what does not hold on a commit."""
    tree = str(find_tree(f"{clone}@{commit}").folder)
    option = ["--tinygrad", f"{clone}@{commit}"]
    tool = [sys.executable, "-m", "vmapdbg"]
    for device in ({}, NULL):
        name = device.get("DEV", "CPU")
        alone = run([sys.executable, str(PROGRAM)], tree, **device)
        with tempfile.TemporaryDirectory() as folder:
            saved = str(Path(folder) / "saved.json")
            shown = run([*tool, "show", str(PROGRAM), *option, "--json", "--save", saved], "", **device)
            yield from look(f"{name} show", shown.stderr)
            yield from compare_program(f"{name} show", alone, shown.stderr, shown.returncode)
            try:
                capture = json.loads(Path(saved).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                yield f"{name} show: no capture, exit {shown.returncode}: {shown.stderr.strip()[-300:]}"
                continue
            yield from (f"{name} {line}" for line in compare_counts(alone.stdout, capture))
            yield from (f"{name} missing {line}" for line in capture["missing"])
            yield from (
                f"{name} kernel without a program: {k['failed']['message'][:150]}"
                for s in capture["schedules"]
                for k in s["kernels"]
                if k["failed"]
            )
            if not device:
                yield from read_saved(saved, folder)
        checked = run([*tool, "check", str(PROGRAM), *option], "", **device)
        yield from look(f"{name} check", checked.stdout + checked.stderr)
        yield from compare_program(f"{name} check", alone, checked.stderr, 0)
        if checked.returncode not in (0, 1):
            yield f"{name} check: exit {checked.returncode}"
        if checked.returncode == 1 and not device:
            yield f"{name} check finds: {' '.join(checked.stdout.split())[:300]}"


def read_saved(saved: str, folder: str) -> Iterator[str]:
    """Yields what does not hold for the commands that read a saved capture."""
    page = str(Path(folder) / "page.html")
    for arguments in (
        ["why", "0", saved],
        ["why", saved],
        ["lint", saved],
        ["diff", saved, saved],
        ["report", saved, "-o", page],
        ["show", saved, "--schedule", "all"],
    ):
        done = CliRunner().invoke(main_command, arguments)
        yield from look(arguments[0], done.output)
        if done.exit_code not in (0, 1) or (done.exception and not isinstance(done.exception, SystemExit)):
            yield f"{' '.join(arguments[:2])}: exit {done.exit_code}, {done.exception!r}: {done.output.strip()[-200:]}"


def compare_program(name: str, alone: subprocess.CompletedProcess[str], printed: str, status: int) -> Iterator[str]:
    """Compares what the program printed with what it prints alone."""
    lines = [line for line in printed.splitlines() if not line.startswith("vmapdbg")]
    missed = [line for line in alone.stdout.splitlines() if line not in lines]
    if missed:
        yield f"{name}: {len(missed)} lines are not printed, first {missed[0][:120]!r}"
    if (alone.returncode == 0) != (status == 0):
        yield f"{name}: the program ends with {alone.returncode} alone, the command with {status}"


def look(name: str, text: str) -> Iterator[str]:
    """Yields signs of an error of ours."""
    for found in dict.fromkeys(_OURS.findall(text)):
        yield f"{name}: error of ours: {found} {text[text.find(found) :][-400:]}"
    for line in dict.fromkeys(_LEFT_OUT.findall(text)):
        yield f"{name}: {line}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.commits", description=__doc__)
    parser.add_argument("commits", nargs="*")
    parser.add_argument("--clone", required=True)
    parser.add_argument("--shard", default="1/1", help="I/N: every N-th commit")
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    shard, shards = map(int, options.shard.split("/"))
    commits = options.commits or pick_commits(options.clone, options.count)[shard - 1 :: shards]
    clean = 0
    for commit in commits:
        began = time.monotonic()
        try:
            troubles = list(dict.fromkeys(try_commit(commit, options.clone)))
        except TreeError as refused:
            troubles = [str(refused)]
        except subprocess.TimeoutExpired as late:
            troubles = [f"{late.cmd[3:5]} did not end in {late.timeout:.0f} s"]
        clean += not troubles
        print(f"{commit[:10]} {time.monotonic() - began:4.0f} s  {'clean' if not troubles else ''}", flush=True)
        for trouble in troubles:
            print(f"  {trouble}", flush=True)
    print(f"{clean} of {len(commits)} commits are clean")
    return clean < len(commits)


if __name__ == "__main__":
    sys.exit(main())
