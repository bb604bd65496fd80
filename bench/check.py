"""What `vmapdbg check` costs: `python -m bench.check [--runs N] [--tinygrad VERSION] [--limit SECONDS] [PROGRAM...]`.

For each program of `bench/checked/`: the time of `vmapdbg check` over that of the program alone, both with what
tinygrad has compiled before. The two take turns, so that a machine that slows down slows both. What check adds to the
program is the start of two processes, the program looked at while it runs, and its report. The reference computes
beside the program: it takes time of its own on one core, and where it has more to compute than tinygrad. What a program
leaves lazy in its globals `check` runs, too: of the block and the convolutions it runs more than is run alone.
What takes longer than the limit is said, and the next program is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from vmapdbg.install.overlay import child_environment
from vmapdbg.install.trees import find_tree

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "bench" / "checked"


def time_command(command: list[str], environment: dict[str, str], limit: float) -> float:
    """Returns the seconds of a command. Raises TimeoutExpired."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        # the tool ends its own children, where it is not killed
        process.terminate()
        process.wait()
        raise
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{errors.decode()[-2000:]}")
    return time.perf_counter() - began


def measure(program: Path, release: str, runs: int, limit: float) -> str:
    """Returns the row of a program: median seconds alone and checked, and the median of the ratios of two runs that
    followed each other. Raises TimeoutExpired."""
    base = {**os.environ, "PYTHONPATH": str(ROOT), "DEV": "CPU"}
    # modules are compiled once, as on a user's machine
    base.pop("PYTHONDONTWRITEBYTECODE", None)
    alone = [sys.executable, str(program)]
    on_release = child_environment(None, base, str(find_tree(release).folder))
    check = [sys.executable, "-m", "vmapdbg", "check", str(program), "--tinygrad", release]
    time_command(alone, on_release, limit)
    pairs = [(time_command(alone, on_release, limit), time_command(check, base, limit)) for _ in range(runs)]
    ran, checked = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(slow / fast for fast, slow in pairs)
    return f"{program.stem:14} {ran:7.2f} s {checked:7.2f} s {ratio:6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tinygrad", default="0.12.0")
    parser.add_argument("--limit", type=float, default=300, help="seconds that one run may take")
    parser.add_argument("programs", nargs="*", default=sorted(file.stem for file in FOLDER.glob("*.py")))
    arguments = parser.parse_args()
    print(f"{'program':14} {'alone':>9} {'checked':>9} {'ratio':>6}", flush=True)
    for name in arguments.programs:
        try:
            row = measure(FOLDER / f"{name}.py", arguments.tinygrad, arguments.runs, arguments.limit)
        except subprocess.TimeoutExpired as ended:
            row = f"{name:14} {' '.join(ended.cmd[1:4])} takes longer than {arguments.limit:.0f} s"
        print(row, flush=True)


if __name__ == "__main__":
    main()
