"""A release of tinygrad, fetched from the package index with pip (or uv where there is no pip) into the cache."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

from vmapdbg.install.cache import find_entry
from vmapdbg.install.tree import TreeError


def find_release(version: str) -> Path:
    """Returns the folder of a release, and fetches it on first use. Raises TreeError."""
    return find_entry("releases", version, lambda folder: install_release(version, folder))


def install_release(version: str, folder: Path) -> None:
    """Installs one release, and nothing that it depends on, into a folder. Raises TreeError with the installer's own
    last word."""
    done = subprocess.run(
        [*find_installer(), "--target", str(folder), f"tinygrad=={version}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise TreeError(f"cannot fetch tinygrad {version}: {explain_failure(done.stderr)}")


def find_installer() -> list[str]:
    """Returns the command that installs without dependencies and without questions."""
    quiet = ["--quiet", "--no-deps"]
    if importlib.util.find_spec("pip") is not None:
        plain = ["--disable-pip-version-check", "--no-input", "--no-compile"]
        return [sys.executable, "-m", "pip", "install", *quiet, *plain]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", *quiet, "--python", sys.executable]
    raise TreeError("a release is fetched with pip or uv, and neither is here: --tinygrad FOLDER works without")


def explain_failure(stderr: str) -> str:
    """Returns why an installer failed, in a few words from what it printed."""
    known = re.search(r"from versions: ([^)]*)\)", stderr)
    if known is not None and known[1] not in ("none", ""):
        return f"the package index has {known[1]}"
    errors = [line for line in stderr.splitlines() if "error" in line.lower()]
    words = (errors or stderr.splitlines() or ["it said nothing"])[-1]
    return re.sub(r"^(ERROR|error)\s*:?\s*", "", words.strip())
