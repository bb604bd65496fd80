"""The revisions of a checkout, by `git archive`. Nothing in the checkout is touched."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from vmapdbg.install.cache import find_entry
from vmapdbg.install.tree import Tree, TreeError, check_version, find_version


def find_revision(name: str, path: Path, revision: str) -> Tree:
    """Returns the tree of a revision of the checkout that `path` is in. Raises TreeError."""
    top = find_top(path)
    commit = find_commit(top, revision)
    folder = find_entry("commits", commit, lambda target: extract_commit(top, commit, target))
    version = find_version(folder)
    check_version(version, name)
    return Tree(name, folder, version, commit)


def find_top(path: Path) -> Path:
    """Returns the root of the repository that a folder is in. Raises TreeError."""
    # a bare repository has no work tree
    found = run_git(path, "rev-parse", "--show-toplevel") or run_git(path, "rev-parse", "--absolute-git-dir")
    if found is None:
        raise TreeError(f"{path} is in no git repository: it has no revisions")
    return Path(found.decode().strip())


def find_commit(top: Path, revision: str) -> str:
    """Returns the full hash of a commit, branch or tag. Raises TreeError."""
    found = run_git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found is None:
        raise TreeError(f"there is no revision {revision} in {top}")
    return found.decode().strip()


def describe_state(folder: Path) -> str | None:
    """Returns the commit that a checkout is at, in short, with `-dirty` where tracked files are changed; None for a
    folder that is no checkout, or where there is no git."""
    if not (folder / ".git").exists() or shutil.which("git") is None:
        return None
    found = run_git(folder, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")
    return None if found is None else found.decode().strip()


def list_commits(top: Path, good: str, bad: str) -> list[str]:
    """Returns the commits that lead from `good` to `bad`, the oldest first, `good` itself left out: along the first
    parents, and only those that touch the package. Raises TreeError."""
    first, last = find_commit(top, good), find_commit(top, bad)
    if run_git(top, "merge-base", "--is-ancestor", first, last) is None:
        raise TreeError(f"{good} is no ancestor of {bad} in {top}")
    found = run_git(top, "rev-list", "--first-parent", "--reverse", f"{first}..{last}", "--", "tinygrad")
    return (found or b"").decode().split()


def describe_commit(top: Path, commit: str) -> str:
    """Returns a commit in one line: short hash, date, subject."""
    found = run_git(top, "show", "--no-patch", "--format=%h %cs %s", commit)
    if found is None:
        return commit
    return found.decode("utf-8", "replace").strip()


def extract_commit(top: Path, commit: str, target: Path) -> None:
    """Writes the package as it was at a commit, with the files that tell its version. Raises TreeError."""
    kept = ["tinygrad"]
    for file in ("pyproject.toml", "setup.py"):
        if run_git(top, "cat-file", "-e", f"{commit}:{file}") is not None:
            kept.append(file)
    archive = run_git(top, "archive", "--format=tar", commit, *kept)
    if archive is None:
        raise TreeError(f"{commit[:12]} of {top} is no tinygrad: it has no folder tinygrad")
    # Python has it from 3.11.4 on; it wants to be asked for until 3.14
    careful: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        # a link may lead out of the folder
        files = [member for member in packed if member.isfile() or member.isdir()]
        packed.extractall(target, files, **careful)


def run_git(folder: Path, *arguments: str) -> bytes | None:
    """Returns what a git command prints, None where it fails. Raises TreeError where there is no git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise TreeError("revisions need git, and there is none on PATH") from None
    if done.returncode != 0:
        return None
    return done.stdout
