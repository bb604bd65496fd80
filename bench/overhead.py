"""What the tool costs: `python -m bench.overhead [--runs N]`.

 1. `vmapdbg show` against `DEBUG=4 python` on the same program with the same patches (at most 1.3)
 2. our rangeify pass with the observer off against stock's `run_rangeify`, on every graph of the program; ours has
    several, one for each attempt of the fusion guard (no limit)
 3. `vmapdbg diff` against `vmapdbg show` on the same program, on two cores (at most 1.3)
 4. `vmapdbg show --tinygrad RELEASE` against `DEBUG=4 python` on that release (at most 1.3)
 5. `vmapdbg diff` of two releases against the slower `vmapdbg show` of them, on two cores (at most 1.3)

Each figure is a ratio of medians; the two sides take turns in one run, so that a machine that slows down slows both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vmapdbg.install.overlay import child_environment
from vmapdbg.install.patches import SWITCHABLE
from vmapdbg.install.trees import find_tree

ROOT = Path(__file__).parent.parent
RELEASES = ("0.12.0", "0.13.0", "0.14.0")
ALL = ",".join(SWITCHABLE)
PROGRAMS = {"softmax sample": ROOT / "samples/softmax.py", "24-layer transformer": ROOT / "bench/transformer.py"}


def time_command(command: list[str], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def compare(left: list[float], right: list[float]) -> str:
    a, b = statistics.median(left), statistics.median(right)
    ratios = [x / y for x, y in zip(left, right, strict=True)]
    return f"{a:7.3f} s / {b:7.3f} s = {a / b:5.2f}   (pairs {min(ratios):.2f}..{max(ratios):.2f})"


def measure_show(program: Path, runs: int, release: str | None = None) -> str:
    """`show` on the program with its last Tensor realized, against DEBUG=4 on the same; with the patches, or on a
    release that is observed."""
    with tempfile.TemporaryDirectory() as folder:
        snippet = Path(folder) / "snippet.py"
        # DEBUG=4 shows only what runs, so the lazy result is realized for both
        snippet.write_text(program.read_text(encoding="utf-8") + "\nout.realize()\n", encoding="utf-8")
        base = {**os.environ, "PYTHONPATH": str(ROOT)}
        show = [sys.executable, "-m", "vmapdbg", "show", str(snippet), *choose(release)]
        plain = [sys.executable, str(snippet)]
        tinygrad = child_environment(ALL, base)
        if release is not None:
            tinygrad = child_environment(None, base, str(find_tree(release).folder))
        debug = {**tinygrad, "DEBUG": "4"}
        # the first run fills tinygrad's compile cache
        time_command(show, base)
        time_command(plain, debug)
        pairs = [(time_command(show, base), time_command(plain, debug)) for _ in range(runs)]
    return compare([a for a, _ in pairs], [b for _, b in pairs])


def choose(release: str | None) -> list[str]:
    return [] if release is None else ["--tinygrad", release]


def measure_trees(program: Path, runs: int) -> str:
    """`diff` of the last two releases, against the slower `show` of the two: the one of each pair of runs."""
    base = {**os.environ, "PYTHONPATH": str(ROOT)}
    before, after = RELEASES[-2:]
    tool = [sys.executable, "-m", "vmapdbg"]
    diff = [*tool, "diff", str(program), *choose(after), f"--baseline={before}"]
    shows = [[*tool, "show", str(program), *choose(release)] for release in (before, after)]
    for command in (diff, *shows):
        time_command(command, base)
    pairs = [(time_command(diff, base), max(time_command(show, base) for show in shows)) for _ in range(runs)]
    return compare([a for a, _ in pairs], [b for _, b in pairs])


def measure_diff(program: Path, runs: int) -> str:
    base = {**os.environ, "PYTHONPATH": str(ROOT)}
    diff, show = ([sys.executable, "-m", "vmapdbg", command, str(program)] for command in ("diff", "show"))
    time_command(diff, base)
    time_command(show, base)
    pairs = [(time_command(diff, base), time_command(show, base)) for _ in range(runs)]
    return compare([a for a, _ in pairs], [b for _, b in pairs])


PASS_TIMER = """
import runpy, statistics, sys, time
import tinygrad.schedule.rangeify as rangeify, tinygrad.schedule.indexing as indexing
run, graphs = rangeify.run_rangeify, []
def keep(tsink, debug=False):
  graphs.append(tsink)
  return run(tsink, debug)
rangeify.run_rangeify = keep
globals_ = runpy.run_path(sys.argv[1])
globals_["out"].schedule()
times = []
while len(times) < 5 or sum(times) < 0.5:  # a pass of a millisecond is timed hundreds of times
  indexing.apply_movement_op.cache_clear(), indexing._apply_reshape.cache_clear()
  started = time.perf_counter()
  for graph in graphs: run(graph)
  times.append(time.perf_counter() - started)
print(statistics.median(times))
"""


def time_pass(program: Path, patches: str | None) -> float:
    environment = child_environment(patches, {**os.environ, "PYTHONPATH": str(ROOT), "NULL": "1"})
    command = [sys.executable, "-c", PASS_TIMER, str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def measure_pass(program: Path, runs: int) -> str:
    pairs = [(time_pass(program, ALL), time_pass(program, None)) for _ in range(runs)]
    return compare([a for a, _ in pairs], [b for _, b in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="pairs a figure")
    runs = parser.parse_args().runs
    for name, program in PROGRAMS.items():
        print(f"show / DEBUG=4           {name:22s} {measure_show(program, runs)}")
    for name, program in PROGRAMS.items():
        print(f"diff / show              {name:22s} {measure_diff(program, runs)}")
    for name, program in PROGRAMS.items():
        print(f"our pass / run_rangeify  {name:22s} {measure_pass(program, runs)}")
    for release in RELEASES:
        for name, program in PROGRAMS.items():
            print(f"observe / DEBUG=4 {release:6s} {name:22s} {measure_show(program, runs, release)}")
    for name, program in PROGRAMS.items():
        print(f"diff of two / show       {name:22s} {measure_trees(program, runs)}")


if __name__ == "__main__":
    main()
