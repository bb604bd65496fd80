"""Installs the overlay, all patches on, before a test of this folder imports tinygrad.

pytest loads this file in each xdist worker. Only the tests of this folder import tinygrad in the process of the tests.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from vmapdbg.job.patches import format_patches, parse_patches
from vmapdbg.overlay import install


def choose_device() -> str:
    """CPU where a clang is on PATH or beside the interpreter, where the `test` extra puts one; else PYTHON."""
    beside = Path(sys.executable).parent
    if shutil.which(os.environ.get("CC", "clang")) is None and (beside / "clang").exists():
        os.environ["PATH"] = os.pathsep.join([str(beside), os.environ.get("PATH", "")])
    return "PYTHON" if shutil.which(os.environ.get("CC", "clang")) is None else "CPU"


sys.path.insert(0, str(Path(__file__).parent))  # `scopes`, which importlib mode would not find
sys.path.insert(0, str(Path(__file__).parents[1]))  # `fuzz`
install(format_patches(parse_patches("all")))

from tinygrad import Device  # noqa: E402

if "DEV" not in os.environ:
    # not through the environment: the children of other tests must not see it
    Device.DEFAULT = choose_device()
