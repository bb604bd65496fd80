"""What the tool costs on large programs: `python -m bench.scale [CASE...] [--commands show,lint] [--json FILE]`.

Each case is a program of a size: nodes, kernels, schedules, replays of TinyJit, bytes of tensors. Each command runs on
it once, and so does the program itself, plain and with DEBUG=4:

- CPU time of all processes; in brackets over the time with DEBUG=4, or over the plain time, if that is longer
- the largest resident set of a process
- what the command prints or writes
- `grows`: the exponent of the time against the size, between each size and the next. 1 is linear

Python's and tinygrad's start, a second, is in every figure: the ratios of small cases say little. The last case starts
20 commands at once in one folder. The exit status is 1 if a command fails, or grows faster than linear and than
tinygrad.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent
NETWORK = """\
import sys
from tinygrad import Tensor
x = Tensor.empty(8, 16)
total = None
for i in range(int(sys.argv[1])):
    h = (x @ Tensor.empty(16, 16) + Tensor.empty(16)).relu()
    h = (h - h.mean(-1, keepdim=True)) * ((h - h.mean(-1, keepdim=True)).square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    h = h.softmax() + x * float(i % 5)
    total = h if total is None else total + h
    if i % 50 == 49:
        # a kernel of tinygrad 0.12.0 with a thousand buffers does not end
        total = total.contiguous()
total.realize()
"""
KERNELS = """\
import sys
from tinygrad import Tensor
x = Tensor.empty(64, 64)
for i in range(int(sys.argv[1])):
    x = (x * 2 + i % 7).contiguous()
x.realize()
"""
SCHEDULES = """\
import sys
from tinygrad import Tensor
x = Tensor.ones(32, 32).contiguous().realize()
for i in range(int(sys.argv[1])):
    x = ((x @ x) * 0.01 + i).softmax().realize()
"""
REPLAYS = """\
import sys
from tinygrad import Tensor, TinyJit
w = Tensor.ones(32, 32).contiguous().realize()

@TinyJit
def step(x):
    return (x @ w).relu().softmax().realize()

for i in range(int(sys.argv[1])):
    step(Tensor.full((32, 32), float(i)).contiguous().realize())
"""
BYTES = """\
import sys
from tinygrad import Tensor
kept = []
for i in range(int(sys.argv[1])):
    # 64 MiB
    kept.append(Tensor.full((4096, 4096), float(i)).contiguous().realize())
print(sum(kept[1:], kept[0]).mean().item())
"""
PROGRAMS = {"network": NETWORK, "kernels": KERNELS, "schedules": SCHEDULES, "replays": REPLAYS, "bytes": BYTES}
SIZES = {
    # branches: about 42 nodes and 6 kernels each
    "network": (24, 120, 1200),
    "kernels": (100, 1000),
    "schedules": (10, 100),
    "replays": (100, 1000),
    # 64 MiB each
    "bytes": (2, 16),
}
COMMANDS = {
    "show": ["show"],
    "show --json": ["show", "--json"],
    "why": ["why"],
    "lint": ["lint"],
    "check": ["check"],
    "graph": ["graph", "-o", "out.svg"],
    "report": ["report", "-o", "out.html"],
}
AT_ONCE = 20
LINEAR = 1.15
"""An exponent up to here is linear: one run of each size, on a machine with noise."""


@dataclass(frozen=True)
class Cost:
    """CPU `seconds`, the largest resident set in `bytes`, and `output` in bytes; `failed` if the status was not 0."""

    seconds: float
    bytes: int
    output: int
    failed: bool


def measure(command: Sequence[str], folder: Path, **variables: str) -> Cost:
    """Runs a command in a folder, and returns what it cost with all its processes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    for file in ("out.svg", "out.html"):
        (folder / file).unlink(missing_ok=True)
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=stdout, stderr=stderr)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    written = sum(
        (folder / file).stat().st_size for file in ("stdout", "out.svg", "out.html") if (folder / file).exists()
    )
    # lint and check end with 1 if they find something
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, written, process.returncode not in (0, 1))


def measure_case(kind: str, size: int, commands: Sequence[str], tree: Sequence[str]) -> dict[str, Cost]:
    """Returns the cost of the program, plain and with DEBUG=4, and of each command on it."""
    tool = [sys.executable, "-P", "-m", "vmapdbg"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAMS[kind], encoding="utf-8")
        plain = [sys.executable, "program.py", str(size)]
        # fills tinygrad's cache of compiled kernels
        measure(plain, folder)
        costs = {"plain": measure(plain, folder), "DEBUG=4": measure(plain, folder, DEBUG="4")}
        for command in commands:
            costs[command] = measure([*tool, *COMMANDS[command], "program.py", *tree, "--", str(size)], folder)
            print(f"{kind} {size} {command}: {costs[command].seconds:.1f} s", file=sys.stderr)
    return costs


def measure_at_once(tree: Sequence[str]) -> tuple[float, float, int]:
    """Runs `show` many times at once in one folder, and the program as often with DEBUG=4. Returns the seconds of
    each, and how many `show` failed or printed something else than the first."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(NETWORK, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}

        def run(command: list[str], **variables: str) -> tuple[float, list[bytes]]:
            begun = time.perf_counter()
            running = [
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env={**environment, **variables},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
                for _ in range(AT_ONCE)
            ]
            outputs = [process.communicate()[0] for process in running]
            printed = [
                text if process.returncode == 0 else b"failed" for process, text in zip(running, outputs, strict=True)
            ]
            return time.perf_counter() - begun, printed

        plain = [sys.executable, "program.py", "20"]
        subprocess.run(plain, cwd=folder, env=environment, check=True)
        debug, _ = run(plain, DEBUG="4")
        show, printed = run([sys.executable, "-P", "-m", "vmapdbg", "show", "program.py", *tree, "--", "20"])
    return show, debug, sum(one != printed[0] or one == b"failed" for one in printed)


def print_kind(kind: str, costs: dict[int, dict[str, Cost]]) -> bool:
    """Prints the table of one kind of program. Returns whether a command failed, or grew faster than it may."""
    is_bad, sizes = False, sorted(costs)
    print(f"\n| {kind} |", " | ".join(f"{size:,}" for size in sizes), "| grows |")
    print("|---" * (len(sizes) + 2) + "|")
    for command in costs[sizes[0]]:
        cells: list[str] = []
        for size in sizes:
            cost, plain = costs[size][command], costs[size]["plain"]
            slower = max(plain.seconds, costs[size]["DEBUG=4"].seconds)
            ratios = "" if command == "plain" else f" ({cost.seconds / slower:.1f}x)"
            memory = f"{cost.bytes / 2**20:,.0f} MiB"
            failed = " FAILED" if cost.failed else ""
            cells.append(f"{cost.seconds:.1f} s{ratios}, {memory}, {cost.output / 1e3:,.0f} kB{failed}")
            is_bad |= cost.failed
        grows = [find_growth(costs, pair, command) for pair in pairwise(sizes)]
        stock = [find_growth(costs, pair, "DEBUG=4") for pair in pairwise(sizes)]
        if command in COMMANDS:
            is_bad |= any(one > max(LINEAR, other * 1.1) for one, other in zip(grows, stock, strict=True))
        print(f"| {command} |", " | ".join(cells), "|", ", ".join(f"{one:.2f}" for one in grows), "|", flush=True)
    return is_bad


def find_growth(costs: dict[int, dict[str, Cost]], sizes: tuple[int, int], command: str) -> float:
    """Returns how the time of a command grows between two sizes: 1 is linear, 2 quadratic."""
    before, after = (costs[size][command].seconds for size in sizes)
    return math.log(after / before) / math.log(sizes[1] / sizes[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(PROGRAMS)}, at-once; default: all")
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--most", type=int, default=10**9, help="leave out larger sizes")
    parser.add_argument("--tinygrad", help="observe this tinygrad; default: the overlay with all patches")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    tree = ["--tinygrad", chosen.tinygrad] if chosen.tinygrad else []
    is_bad = False
    measured: dict[str, dict[int, dict[str, Cost]]] = {}
    for kind in [kind for kind in PROGRAMS if not chosen.cases or kind in chosen.cases]:
        sizes = [size for size in SIZES[kind] if size <= chosen.most]
        measured[kind] = {size: measure_case(kind, size, chosen.commands.split(","), tree) for size in sizes}
        is_bad |= print_kind(kind, measured[kind])
    if not chosen.cases or "at-once" in chosen.cases:
        show, debug, others = measure_at_once(tree)
        is_bad |= others > 0
        print(f"\n{AT_ONCE} x show at once: {show:.1f} s, with DEBUG=4 {debug:.1f} s; {others} printed something else")
    if chosen.json:
        chosen.json.write_text(json.dumps(measured, default=asdict, indent=1), encoding="utf-8")
    sys.exit(int(is_bad))


if __name__ == "__main__":
    main()
