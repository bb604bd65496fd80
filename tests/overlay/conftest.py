"""Installs the overlay, all patches on, before a test of this folder imports tinygrad.

pytest loads this file in each xdist worker. Only the tests of this folder import tinygrad in the process of the tests.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from vmapdbg.overlay import install
from vmapdbg.patches import format_patches, parse_patches

sys.path.insert(0, str(Path(__file__).parent))  # `scopes`, which importlib mode would not find

if shutil.which(os.environ.get("CC", "clang")) is None:
    # the `test` extra puts a clang beside the interpreter, which is not on PATH unless the venv is activated
    beside = Path(sys.executable).parent
    if (beside / "clang").exists():
        os.environ["PATH"] = f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"
    else:
        os.environ.setdefault("DEV", "PYTHON")
else:
    os.environ.setdefault("DEV", "CPU")

install(format_patches(parse_patches("all")))
