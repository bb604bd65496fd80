"""What scheduling costs with the patches: `python -m bench.schedule [--rounds N] [PROGRAM ...]`.

For each program: the nodes of its tensor graph, its kernels without and with the patches, how often the stages from
tensor graph to kernels are run for all of it and how many nodes have the parts of it that they are run for to see which
fusions pay, and the time of that over the time with no patch. Each side is a process; they take turns. A figure is a
ratio of the least times: what else runs only ever adds to a time.

Exit status 1: a program does not settle before the last attempt that is allowed, has more kernels than without, or
takes longer than it may.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.sides import side_environment


def transformer(layers: int) -> Any:
    from tinygrad import Tensor

    from bench import transformer as program

    start = Tensor.empty(program.BATCH, program.TOKENS, program.WIDTH)
    return program.forward(start, [program.make_layer() for _ in range(layers)])


def random_graph(nodes: int, seed: int) -> Any:
    """A graph of at least so many nodes: sums, softmaxes, norms, matmuls and elementwise ops of what was made last."""
    from tinygrad import Tensor

    draw = random.Random(seed)
    made = [Tensor.empty(32, 48) for _ in range(4)]
    steps: list[Callable[[Any, Any], Any]] = [
        lambda x, y: x * y,
        lambda x, y: (x + y).relu(),
        lambda x, y: x.exp() * 0.5 + y,
        lambda x, y: x.softmax() + y,
        lambda x, y: x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt() * y,
        lambda x, y: x.layernorm() + y,
        lambda x, y: x - y.max(1, keepdim=True),
        lambda x, y: x / (y.abs().sum(0, keepdim=True) + 1),
        lambda x, y: x @ Tensor.empty(48, 48) + y,
        lambda x, y: x @ (y.T @ x),
    ]
    while len(Tensor.stack(*made[-4:]).uop.toposort()) < nodes:
        for _ in range(20):
            x, y = draw.sample(made[-5:], 2)
            made.append(draw.choice(steps)(x, y))
    return Tensor.stack(*made[-4:])


MOST = {"transformer, 24 layers": 1.25, "random, 10,000 nodes": 1.5}
"""The time of scheduling with all patches over that without."""

PROGRAMS: dict[str, Callable[[], Any]] = {
    "transformer, 24 layers": lambda: transformer(24),
    "transformer, 54 layers": lambda: transformer(54),
    "random, 2,000 nodes": lambda: random_graph(2000, 1),
    "random, 10,000 nodes": lambda: random_graph(10000, 2),
}


@dataclass(frozen=True)
class Scheduled:
    """What scheduling a program took and made.

    `keys` are those of its kernels' ASTs; `runs` says how often the stages were run for all of it, `most` how often
    they may be; `tried` counts the nodes of the parts that they were run for.
    """

    seconds: float
    nodes: int
    keys: list[bytes]
    runs: int
    most: int
    tried: int


def schedule(make: Callable[[], Any]) -> Scheduled:
    """Schedules what `make` leaves lazy. Once in a process: it counts by a change of the overlay."""
    from tinygrad.uop.ops import Ops

    sinks: list[Any] = []
    most = 1
    if "tinygrad_overlay" in sys.modules:
        from tinygrad_overlay.schedule import _fusion, rangeify

        run_stages, most = rangeify.stock_get_rangeify_map, _fusion.MAX_ATTEMPTS

        def note_run(sink: Any) -> Any:
            sinks.append(sink)
            return run_stages(sink)

        rangeify.stock_get_rangeify_map = note_run
    # what running a schedule needs is there: to import it is no part of scheduling
    from tinygrad import Device, codegen  # noqa: F401

    _ = Device[Device.DEFAULT].renderer
    out = make()
    nodes, started = len(out.uop.toposort()), time.perf_counter()
    items = out.schedule()
    seconds = time.perf_counter() - started
    keys = [item.ast.key for item in items if item.ast.op is Ops.SINK]
    # the first run is for all of it; within it the parts are
    runs = sum(sink is sinks[0] for sink in sinks)
    tried = sum(len(part.toposort()) for part in set(sinks[1:]) - {sinks[0]}) if sinks else 0
    return Scheduled(seconds, nodes, keys, runs, most, tried)


def run_side(name: str) -> None:
    """In the process of one side: schedules the program once, prints what it took."""
    done = schedule(PROGRAMS[name])
    print(json.dumps([done.seconds, done.nodes, len(done.keys), done.runs, done.runs > done.most, done.tried]))


def ask(spec: str, name: str) -> tuple[float, int, int, int, bool, int]:
    command = [sys.executable, "-m", "bench.schedule", "--side", name]
    # decisions of an earlier process are in tinygrad's cache
    environment = {**side_environment(spec), "CACHELEVEL": "0"}
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS), metavar="PROGRAM", help="default: all of them")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side is not None:
        run_side(arguments.side)
        return 0
    failed = []
    print(
        f"{'program':24s} {'nodes':>7s} {'kernels':>11s} {'stages run':>10s} {'of parts':>8s} {'s, none':>8s}"
        f" {'time / none':>11s}"
    )
    for name in arguments.programs:
        rounds = [(ask("none", name), ask("all", name)) for _ in range(arguments.rounds)]
        (_, nodes, kernels, *_), (_, _, fewer, runs, unsettled, tried) = rounds[0]
        none, ratio = min(a[0] for a, _ in rounds), min(b[0] for _, b in rounds) / min(a[0] for a, _ in rounds)
        print(
            f"{name:24s} {nodes:7,} {kernels:5,} {fewer:5,} {runs:10} {tried:8,} {none:8.2f} {ratio:11.2f}", flush=True
        )
        if unsettled or fewer > kernels:
            failed.append(f"{name}: {runs} runs of the stages, {kernels} -> {fewer} kernels")
        if ratio > MOST.get(name, ratio):
            failed.append(f"{name}: {ratio:.2f} times as long, at most {MOST[name]}")
    for line in failed:
        print("not settled, more kernels, or too slow:", line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
