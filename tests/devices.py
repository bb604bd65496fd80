"""The device that the tests compute on."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def choose_device() -> str:
    """Returns CPU if a clang is on PATH or, as the `test` extra installs it, next to the interpreter; else PYTHON."""
    compiler = os.environ.get("CC", "clang")
    beside = Path(sys.executable).parent
    if shutil.which(compiler) is None and (beside / "clang").exists():
        os.environ["PATH"] = os.pathsep.join([str(beside), os.environ.get("PATH", "")])
    if shutil.which(compiler) is None:
        return "PYTHON"
    return "CPU"
