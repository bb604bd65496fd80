"""How far the cost model can be believed: `python -m bench.cost_model [--repeats N] [--worst N] [PROGRAM ...]`.

Each kernel of `bench.own_programs` and of the patterns of `bench.fusion_patterns`, as scheduled without the patches of
fusion and with all of them: the time that the model predicts from its AST, next to the least of some measured ones, on
the CPU device. Printed: the rank correlation (Spearman) over all kernels and over those that take longer than a launch,
by what factor the middle half of the predictions is off, and the worst of them.

Exit status 1: the rank correlation of all kernels is under 0.9.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.fusion_patterns import PATTERNS
from bench.own_programs import OWN
from bench.sides import ROOT, UNFUSED, side_environment

LEAST = 0.9


@dataclass(frozen=True)
class Measured:
    """One kernel of a program: what the model takes it to do, its predicted and its measured time in nanoseconds."""

    program: str
    name: str
    ops: int
    chain: int
    bytes: int
    threads: int
    predicted: float
    measured: float


# *** in the process of one side


class Watcher:
    """Measures each kernel when it is launched for the first time."""

    def __init__(self, program: str, repeats: int):
        from tinygrad.engine import realize

        self.program, self.repeats = program, repeats
        # source of a program -> the AST that it was made of
        self.asts: dict[str, Any] = {}
        self.found: dict[bytes, Measured] = {}
        module: Any = realize
        get_program, launch = module.get_program, module.CompiledRunner.__call__

        def get_and_note(ast: Any, renderer: Any) -> Any:
            program = get_program(ast, renderer)
            self.asts[program.src] = ast
            return program

        def launch_and_measure(runner: Any, rawbufs: Any, var_vals: Any = None, wait: bool = False) -> Any:
            ast = self.asts.get(runner.p.src)
            if ast is not None and ast.key not in self.found:
                times = [launch(runner, rawbufs, var_vals, wait=True) for _ in range(self.repeats)]
                self.note(runner, ast, min(times) * 1e9)
            return launch(runner, rawbufs, var_vals, wait)

        module.get_program, module.CompiledRunner.__call__ = get_and_note, launch_and_measure

    def note(self, runner: Any, ast: Any, measured: float) -> None:
        from tinygrad import Device
        from tinygrad_overlay.codegen._work import estimate_work, predict_ns

        renderer = Device[runner.device].renderer
        work = estimate_work(ast, renderer)
        self.found[ast.key] = Measured(
            self.program,
            runner.p.function_name,
            work.ops,
            work.chain,
            work.bytes,
            work.threads,
            predict_ns(work, renderer),
            measured,
        )


def run_side(name: str, repeats: int) -> None:
    """Prints what is found about the kernels of one program, or of all patterns, as JSON."""
    from bench import fusion_patterns, own_programs

    watcher = Watcher(name, repeats)
    if name in OWN:
        own_programs.make(OWN[name])()
    else:
        fusion_patterns.prepare(name)
    print(json.dumps([asdict(one) for one in watcher.found.values()]))


# *** in the process that compares


def measure(name: str, repeats: int) -> Iterator[Measured]:
    for spec in (UNFUSED, "all"):
        command = [sys.executable, "-m", "bench.cost_model", "--side", name, "--repeats", str(repeats)]
        done = subprocess.run(command, env=side_environment(spec), cwd=ROOT, capture_output=True, text=True, check=True)
        yield from (Measured(**one) for one in json.loads(done.stdout.splitlines()[-1]))


def rank(numbers: Sequence[float]) -> NDArray[np.float64]:
    """Returns the place of each number in their order; equal ones share the middle of their places."""
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[inverse]


def correlate(kernels: Sequence[Measured]) -> float:
    """Returns the rank correlation of predicted and measured times."""
    predicted, measured = (rank([getattr(k, which) for k in kernels]) for which in ("predicted", "measured"))
    return float(np.corrcoef(predicted, measured)[0, 1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=[*OWN, *PATTERNS], metavar="PROGRAM", help="default: all")
    parser.add_argument("--repeats", type=int, default=7, help="measurements of each kernel")
    parser.add_argument("--worst", type=int, default=10, help="how many of those that are furthest off are printed")
    parser.add_argument("--json", metavar="FILE", help="write what was measured")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side is not None:
        run_side(arguments.side, arguments.repeats)
        return 0
    kernels: list[Measured] = []
    for name in arguments.programs:
        found = list({(k.name, k.ops): k for k in measure(name, arguments.repeats)}.values())
        kernels += found
        print(f"{name:24s} {len(found):4d} kernels", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([asdict(k) for k in kernels], file)
    return report(kernels, arguments.worst)


def report(kernels: Sequence[Measured], worst: int) -> int:
    long = [k for k in kernels if k.measured > 20_000]
    correlation = correlate(kernels)
    print(f"{len(kernels)} kernels: rank correlation {correlation:.3f}")
    print(f"{len(long)} of over 20 us: {correlate(long):.3f}")
    factors = np.log2([k.predicted / k.measured for k in kernels])
    low, middle, high = np.exp2(np.percentile(factors, [25, 50, 75]))
    print(f"predicted / measured: half are between {low:.2f} and {high:.2f}, the middle is {middle:.2f}")
    print(f"{'predicted':>12s} {'measured':>12s} us   the furthest off")
    for k in sorted(kernels, key=lambda k: -abs(np.log2(k.predicted / k.measured)))[:worst]:
        print(f"{k.predicted / 1e3:12,.1f} {k.measured / 1e3:12,.1f}      {k.name}, {k.program}")
    return 0 if correlation >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
