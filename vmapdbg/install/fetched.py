"""Copies of tinygrad in the cache: releases from the package index, commits of a checkout by `git archive`.

A cache entry is complete or absent. Each copy is made in a temporary folder beside the entry, and renamed when it is
complete. If two processes make the same entry at the same time, both use the copy that was renamed first.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmapdbg.model.failure import Failure

CACHE_VARIABLE = "VMAPDBG_CACHE"


class TreeError(Failure):
    """A tinygrad does not exist or cannot be fetched; the message is one line for the user."""


def has_package(folder: Path) -> bool:
    """Tells whether a folder contains the package tinygrad."""
    return (folder / "tinygrad" / "__init__.py").is_file()


# *** the cache


def cache_folder() -> Path:
    """Returns the cache: `VMAPDBG_CACHE`, else `vmapdbg` in the user's cache folder (XDG_CACHE_HOME, ~/.cache)."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vmapdbg")


def cache_entry(kind: str, name: str, fill: Callable[[Path], None]) -> Path:
    """Returns the folder of a cache entry. If it does not exist yet, `fill` writes it to an empty folder.

    If `fill` raises, its error goes to the caller and the folder is removed. Raises TreeError if the cache cannot be
    written.
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
        fill(attempt)
        if not has_package(attempt):
            raise TreeError(f"{name} holds no package tinygrad")
        # an entry without the package was emptied, or an older version died while it made the entry
        if entry.exists() and not has_package(entry):
            shutil.rmtree(entry, ignore_errors=True)
        with contextlib.suppress(OSError):
            attempt.rename(entry)
        if not has_package(entry):
            raise TreeError(f"cannot write the cache {entry}")
    finally:
        shutil.rmtree(attempt, ignore_errors=True)
    return entry


# *** releases


def fetch_release(version: str) -> Path:
    """Returns the folder of a release. Fetches it on first use without its dependencies, with pip, or with uv if there
    is no pip. Raises TreeError with the installer's last line."""

    def install(folder: Path) -> None:
        command = [*installer_command(), "--target", str(folder), f"tinygrad=={version}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TreeError(f"cannot fetch tinygrad {version}: {explain_failure(done.stderr)}")

    return cache_entry("releases", version, install)


def installer_command() -> list[str]:
    """Returns the command that installs without dependencies and without questions. Raises TreeError."""
    quiet = ["--quiet", "--no-deps"]
    if importlib.util.find_spec("pip") is not None:
        plain = ["--disable-pip-version-check", "--no-input", "--no-compile"]
        return [sys.executable, "-m", "pip", "install", *quiet, *plain]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", *quiet, "--python", sys.executable]
    raise TreeError("a release is fetched with pip or uv, and neither is here: --tinygrad FOLDER works without")


def explain_failure(stderr: str) -> str:
    """Returns in a few words why an installer failed, from what it printed."""
    known = re.search(r"from versions: ([^)]*)\)", stderr)
    if known is not None and known[1] not in ("none", ""):
        return f"the package index has {known[1]}"
    errors = [line for line in stderr.splitlines() if "error" in line.lower()]
    words = (errors or stderr.splitlines() or ["it said nothing"])[-1]
    return re.sub(r"^(ERROR|error)\s*:?\s*", "", words.strip())


# *** commits of a checkout; the checkout itself is never changed


def fetch_commit(top: Path, commit: str) -> Path:
    """Returns the folder with the package as it was at a commit of a repository, with the files that contain its
    version. Raises TreeError."""

    def extract(folder: Path) -> None:
        kept = ["tinygrad"]
        for file in ("pyproject.toml", "setup.py"):
            if run_git(top, "cat-file", "-e", f"{commit}:{file}") is not None:
                kept.append(file)
        archive = run_git(top, "archive", "--format=tar", commit, *kept)
        if archive is None:
            raise TreeError(f"{commit[:12]} of {top} is not a tinygrad: it has no folder tinygrad")
        # Python has this filter since 3.11.4, and uses it by default since 3.14
        careful: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            # links are left out: a link may lead out of the folder
            files = [member for member in packed if member.isfile() or member.isdir()]
            packed.extractall(folder, files, **careful)

    return cache_entry("commits", commit, extract)


def repository_of(path: Path) -> Path:
    """Returns the root of the git repository that contains a folder. Raises TreeError."""
    # a bare repository has no work tree
    found = run_git(path, "rev-parse", "--show-toplevel") or run_git(path, "rev-parse", "--absolute-git-dir")
    if found is None:
        raise TreeError(f"{path} is in no git repository: it has no revisions")
    return Path(found.decode().strip())


def commit_of(top: Path, revision: str) -> str:
    """Returns the full hash of a commit, branch or tag. Raises TreeError."""
    found = run_git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found is None:
        raise TreeError(f"there is no revision {revision} in {top}")
    return found.decode().strip()


def describe_state(folder: Path) -> str | None:
    """Returns the short commit of a checkout, with `-dirty` if tracked files are changed. Returns None if the folder is
    no checkout or git is missing."""
    if not (folder / ".git").exists() or shutil.which("git") is None:
        return None
    found = run_git(folder, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")
    return None if found is None else found.decode().strip()


def list_commits(top: Path, good: str, bad: str) -> list[str]:
    """Returns the commits after `good` up to `bad`, oldest first: along first parents, and only commits that change the
    package. Raises TreeError."""
    first, last = commit_of(top, good), commit_of(top, bad)
    if run_git(top, "merge-base", "--is-ancestor", first, last) is None:
        raise TreeError(f"{good} is not an ancestor of {bad} in {top}")
    found = run_git(top, "rev-list", "--first-parent", "--reverse", f"{first}..{last}", "--", "tinygrad")
    return (found or b"").decode().split()


def describe_commit(top: Path, commit: str) -> str:
    """Returns a commit in one line: short hash, date, subject."""
    found = run_git(top, "show", "--no-patch", "--format=%h %cs %s", commit)
    if found is None:
        return commit
    return found.decode("utf-8", "replace").strip()


def run_git(folder: Path, *arguments: str) -> bytes | None:
    """Returns what a git command prints, None if it fails. Raises TreeError if git is missing."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        raise TreeError("revisions need git, and there is none on PATH") from None
    if done.returncode != 0:
        return None
    return done.stdout
