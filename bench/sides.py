"""One side of a comparison: a process on the CPU device, under one state of the patches."""

from __future__ import annotations

import os
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
