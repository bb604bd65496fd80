"""The folder that fetched trees are kept in. An entry is there whole, or not at all.

An entry is made in a folder of its own beside it and renamed when it is complete. Two processes that make the same one
at once both succeed: the second finds the name taken, and uses what is there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from vmapdbg.install.tree import TreeError, has_package

CACHE_VARIABLE = "VMAPDBG_CACHE"


def cache_folder() -> Path:
    """Returns the cache: `VMAPDBG_CACHE`, else `vmapdbg` in the user's cache folder (XDG_CACHE_HOME, ~/.cache)."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "vmapdbg")


def find_entry(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """Returns the folder of an entry, and has `make` fill an empty folder where it is not there yet.

    What `make` raises goes on to the caller, and nothing is left of the attempt. Raises TreeError where the cache
    cannot be written.
    """
    entry = cache_folder() / kind / name
    if has_package(entry):
        return entry
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        attempt = Path(tempfile.mkdtemp(dir=entry.parent, prefix=f".{name}."))
    except OSError as error:
        raise TreeError(f"cannot write the cache {cache_folder()}: {error.strerror} ({CACHE_VARIABLE})") from error
    try:
        make(attempt)
        if not has_package(attempt):
            raise TreeError(f"{name} holds no package tinygrad")
        _put(attempt, entry)
    finally:
        shutil.rmtree(attempt, ignore_errors=True)
    return entry


def _put(attempt: Path, entry: Path) -> None:
    # a folder without the package was not made here: somebody emptied it, or an older version died in the middle
    if entry.exists() and not has_package(entry):
        shutil.rmtree(entry, ignore_errors=True)
    with contextlib.suppress(OSError):
        attempt.rename(entry)
    if not has_package(entry):
        raise TreeError(f"cannot write the cache {entry}")
