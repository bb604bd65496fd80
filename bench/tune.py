"""What `vmapdbg tune` finds: `python -m bench.tune [--budget S] [--tinygrad VERSION ...] [NAME ...]`.

Runs `tune --write` on copies of the programs of `bench/tune_programs` and of a sample, on tinygrad as it is, and prints
a table: the time before and after in turns, the noise, executed ops, the peak of the memory, and the edits. `applied`
are the executed ops of the file as it was written, by `show`. Five programs have something to find. For three there is
nothing: a proposal for one of these is a fault, and so is an applied file with other ops than the proposal's: exit
status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.sides import ROOT
from vmapdbg.page.format import format_bytes, format_ratio, format_seconds, round_count

PROGRAMS = {file.stem: file for file in (Path(__file__).parent / "tune_programs").glob("*.py")}
PROGRAMS["rotary"] = ROOT / "samples" / "tune_rotary.py"
NAMES = ("rotary", "mamba", "gpt", "resnet", "masked_attention", "matmul", "chain", "total")
NOTHING_TO_FIND = ("matmul", "chain", "total")
RELEASES = ("0.12.0", "0.13.0", "0.14.0")


def run_tool(folder: Path, *arguments: str) -> dict[str, Any]:
    """Returns the JSON document that a command prints. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "vmapdbg", *arguments, "--json"]
    environment = {**os.environ, "DEV": "CPU"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


def count_ops(capture: dict[str, Any]) -> int:
    return sum(kernel["executed_ops"] for schedule in capture["schedules"] for kernel in schedule["kernels"])


def tune(name: str, release: str, budget: float) -> tuple[str, list[str]]:
    """Returns the row of a program, and what is wrong about it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, file = Path(temporary), f"{name}.py"
        (folder / file).write_bytes(PROGRAMS[name].read_bytes())
        job = (file, "--tinygrad", release)
        found = run_tool(folder, "tune", *job, "--budget", str(budget), "--write")
        edits = [one for one in found["proposals"] if one["diff"]]
        applied = count_ops(run_tool(folder, "show", *job)) if edits else None
    faults: list[str] = []
    if found["proposals"] and name in NOTHING_TO_FIND:
        faults.append(f"{name} on {release}: proposed {found['proposals'][0]['edits']}")
    rows = [f"| {name} | {release} | {describe_none(found)} |"] if not found["proposals"] else []
    for one in found["proposals"]:
        before, after = median(one["before"]), median(one["after"])
        ops = one["executed_ops"]
        if one["diff"] and applied != ops[1]:
            faults.append(f"{name} on {release}: {applied} ops after --write, not {ops[1]}")
        labels = "; ".join(f"{edit['line'].rpartition(':')[2]} `{edit['label']}`" for edit in one["edits"])
        cells = [
            f"{format_seconds(before)} -> {format_seconds(after)}{format_ratio(before, after)}",
            format_seconds(one["noise"]),
            f"{round_count(ops[0])} -> {round_count(ops[1])}",
            "-" if not one["diff"] else round_count(applied or 0),
            " -> ".join(format_bytes(size) for size in one["peak_bytes"]),
            labels.strip(),
        ]
        rows.append(f"| {name} | {release} | {' | '.join(cells)} |")
    return "\n".join(rows), faults


def describe_none(found: dict[str, Any]) -> str:
    """Returns the cells of a program without a proposal: what was measured, and what its time is made of."""
    kernel, tried = found["longest"], len(found["tried"])
    speed = kernel["executed_ops"] / kernel["launches"] / kernel["measured"]["median"] / 1e9
    share = f"{found['share']:.0%} in {kernel['name']} ({kernel['title']}), {speed:.2f} Gop/s"
    return f"{format_seconds(found['number'])}, nothing proposed | | | | | {tried} tries; {share}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(NAMES))
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tries for each program")
    parser.add_argument("--tinygrad", nargs="*", default=list(RELEASES), metavar="VERSION")
    arguments = parser.parse_args()
    print("| program | tinygrad | time | noise | executed ops | applied | peak | edits (line, what) |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    faults: list[str] = []
    for name in arguments.names:
        for release in arguments.tinygrad:
            row, wrong = tune(name, release, arguments.budget)
            print(row, flush=True)
            faults += wrong
    for fault in faults:
        print("fault:", fault, file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
