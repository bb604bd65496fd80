"""One side of a comparison: a process on the CPU device, under one state of the patches. Sides take turns."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from vmapdbg.install.overlay import child_environment
from vmapdbg.install.patches import format_patches, parse_patches

ROOT = Path(__file__).parent.parent

FUSION = ("fuse-broadcast", "local-budget", "fusion-guard", "realize-reused")
"""The patches that choose which values are stored."""

UNFUSED = ",".join(["all", *(f"-{patch}" for patch in FUSION)])
"""Programs with vmap scopes need the other patches to be right; for a graph without a scope this is stock."""


def side_environment(spec: str) -> dict[str, str]:
    """Returns the environment of a process that runs modules of `bench` with the patches of a `--patches` SPEC."""
    environment = child_environment(format_patches(parse_patches(spec)), {**os.environ, "DEV": "CPU"})
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(ROOT)])
    return environment


class Side:
    """A process that runs a module, which answers requests as `bench.answers` says."""

    def __init__(self, module: str, environment: Mapping[str, str], python: str = sys.executable):
        self.process = subprocess.Popen(
            [python, "-m", module], env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, request: str, name: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(request, name, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{request} {name!r}: the process ended with status {self.process.wait()}")
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def measure(sides: Mapping[str, Side], name: str, rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each side, one figure a round. The order of the sides turns with each round."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    order = list(sides)
    for _ in range(rounds):
        for side in order:
            times[side].append(float(sides[side].ask("time", name)))
        order.append(order.pop(0))
    return times


def close(sides: Mapping[str, Side]) -> None:
    for side in sides.values():
        side.close()
