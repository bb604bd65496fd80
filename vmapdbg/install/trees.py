"""Any tinygrad: by the name that `--tinygrad` or `--baseline` takes, or the tinygrad that Python imports.

0.14.0             a release, from the package index
../tinygrad        a checkout, or a folder that contains the package, as it is now
../tinygrad@v0.13  a commit, branch or tag of that checkout
@master            a commit, branch or tag of the checkout in the working directory

A cache entry (a release from the package index, a commit of a checkout by `git archive`) is complete or absent. Each
copy is made in a temporary folder next to the entry, and renamed when it is complete. If two processes make the same
entry at the same time, both use the copy that was renamed first. The installer compares a release with the hash in the
package index; an entry whose files no longer have the sizes that they were fetched with (`SIZES`) is refused."""

import contextlib
import functools
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from vmapdbg.install.overlay import TINYGRAD_VERSION, find_editable
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, write_atomically
from vmapdbg.model.wording import shorten_commit

OLDEST = (0, 12)  # the first release that can be observed

_RELEASE = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)?")
_VERSION_IN_SETUP = re.compile(r"""^\s*version\s*=\s*["']([^"']+)["']""", re.MULTILINE)
CACHE_VARIABLE = "VMAPDBG_CACHE"
SIZES = "vmapdbg-sizes.json"


@dataclass(frozen=True)
class Tree:
    """One tinygrad. `folder` contains the package `tinygrad`, and goes first on a child's `sys.path`. `version` is what
    its metadata says, None if unknown. `commit` is the full hash of a revision; for a checkout as it is now, a short
    hash, with `-dirty` if files are changed."""

    folder: Path
    version: str | None
    commit: str | None = None

    @property
    def title(self) -> str:
        """Version and short commit, if known: `0.13.0 (3f2a91c7d0be)`."""
        commit = "" if self.commit is None else f" ({shorten_commit(self.commit)})"
        return f"{self.version or 'of unknown version'}{commit}"


# *** by name


@dataclass(frozen=True)
class TreeName:
    """A name of a tinygrad, split: a `release`, or a `path` with or without a `revision`."""

    release: str | None = None
    path: Path = Path(".")
    revision: str | None = None


def parse_name(text: str) -> TreeName:
    """Splits a name of a tinygrad. A folder that exists is a folder, whatever its name looks like. Raises TreeError."""
    if not text:
        raise TreeError("a tinygrad has a version, a folder or FOLDER@REVISION for a name, not nothing")
    if Path(text).exists():
        return TreeName(path=Path(text))
    if _RELEASE.fullmatch(text):
        check_version(text, text)
        return TreeName(release=text)
    folder, at, revision = text.rpartition("@")
    if not at:
        raise TreeError(f"there is no folder {text}, and it is not a version of tinygrad such as 0.14.0")
    if not revision:
        raise TreeError(f"{text} names no revision after the @")
    path = Path(folder or ".")
    if not path.is_dir():
        raise TreeError(f"there is no folder {folder} (in {text})")
    return TreeName(path=path, revision=revision)


@functools.cache
def find_tree(text: str) -> Tree:
    """Returns the tree of a name, fetched on first use. Cached: a process sees no later change. Raises TreeError."""
    name = parse_name(text)
    if name.release is not None:
        return Tree(fetch_release(name.release), name.release)
    if name.revision is not None:
        top = repository_of(name.path)
        commit = commit_of(top, name.revision)
        folder = fetch_commit(top, commit)
    else:
        folder = name.path.resolve()
        if not has_package(folder):
            raise TreeError(f"{text} is not a tinygrad: there is no tinygrad/__init__.py in it")
        commit = describe_state(folder)
    version = find_version(folder)
    check_version(version, text, folder)
    return Tree(folder, version, commit)


def check_version(version: str | None, name: str, folder: Path | None = None) -> None:
    """Raises TreeError for a version too old to be observed: in a folder, one without axis letters (October 2025)."""
    if version is None or tuple(map(int, re.findall(r"\d+", version)[:2])) >= OLDEST:
        return
    ops = None if folder is None else folder / "tinygrad" / "uop" / "ops.py"
    if ops is None or not ops.exists() or "axis_letters = " not in ops.read_text(encoding="utf-8"):
        oldest = ".".join(map(str, OLDEST))
        raise TreeError(f"tinygrad {version} ({name}) is too old: vmapdbg observes {oldest} and later")


def find_version(folder: Path) -> str | None:
    """Returns the version in the metadata of the package in a folder, None without metadata."""
    for metadata in sorted(folder.glob("tinygrad-*.dist-info")):
        return metadata.name.removesuffix(".dist-info").partition("-")[2]
    for file in (folder / "pyproject.toml", folder / "setup.py"):
        if file.is_file() and (found := _VERSION_IN_SETUP.search(file.read_text(encoding="utf-8"))):
            return found[1]
    return None


def is_checkout(folder: Path) -> bool:
    """Returns whether Python imports tinygrad from a folder if it starts there: a checkout, an unpacked source."""
    return has_package(folder) and ((folder / ".git").exists() or (folder / "tinygrad.egg-info").exists())


# *** the tinygrad that Python imports


def find_imported(path: Sequence[str]) -> Tree | None:
    """Returns the tree that `import tinygrad` takes if `sys.path` is `path`, None if there is none. Imports nothing."""
    spec = PathFinder.find_spec("tinygrad", list(path))
    # without an origin it is a folder without __init__.py, such as the overlay's
    origin = None if spec is None else spec.origin
    folder = find_editable() if origin is None else Path(origin).parent.parent
    return None if folder is None else Tree(folder, find_version(folder), describe_state(folder))


def is_release(tree: Tree) -> bool:
    """Returns whether the overlay can patch a tree: it was installed from the release's package, or is the checkout
    that tinygrad is installed from (`pip install -e`), unchanged at the tag: the version alone does not say that."""
    if (tree.folder / f"tinygrad-{TINYGRAD_VERSION}.dist-info").is_dir():
        return True
    if tree.commit is None or find_editable() != tree.folder.resolve():
        return False
    tag = f"v{TINYGRAD_VERSION}"
    return run_git(tree.folder, "describe", "--tags", "--dirty", f"--match={tag}") == f"{tag}\n".encode()


class TreeError(Failure):
    """A tinygrad does not exist or cannot be fetched; the message is one line for the user."""


def has_package(folder: Path) -> bool:
    """Returns whether a folder contains the package tinygrad."""
    return (folder / "tinygrad" / "__init__.py").is_file()


# *** the cache


def cache_folder() -> Path:
    """Returns the cache: `VMAPDBG_CACHE`, else `vmapdbg` in the user's cache folder (XDG_CACHE_HOME, ~/.cache)."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vmapdbg")


def read_kept(name: str) -> bytes:
    """Returns what `keep` kept in a file of the cache; nothing if there is none, or if it cannot be read."""
    with contextlib.suppress(OSError, RuntimeError):
        return (cache_folder() / name).read_bytes()
    return b""


def keep(name: str, content: str | bytes) -> None:
    """Writes a file of the cache, if that is possible."""
    # RuntimeError: the user has no home
    with contextlib.suppress(OSError, RuntimeError, StoreError):
        file = cache_folder() / name
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)


def cache_entry(kind: str, name: str, fill: Callable[[Path], None]) -> Path:
    """Returns a cache entry's folder; `fill` fills a new one. Raises TreeError if it changed or cannot be written."""
    entry = cache_folder() / kind / name
    if entry.exists():
        check_whole(entry)
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
        sizes = {str(file.relative_to(attempt)): file.stat().st_size for file in attempt.rglob("*") if file.is_file()}
        (attempt / SIZES).write_text(json.dumps(sizes), encoding="utf-8")
        with contextlib.suppress(OSError):
            attempt.rename(entry)
        if not has_package(entry):
            raise TreeError(f"cannot write the cache {entry}")
    finally:
        shutil.rmtree(attempt, ignore_errors=True)
    return entry


def check_whole(entry: Path) -> None:
    """Raises TreeError if a cache entry lacks the package, or a file with its size."""
    sizes: dict[str, int | None] = {"tinygrad/__init__.py": None}
    # without it an older vmapdbg has made the entry
    if (kept := entry / SIZES).exists():
        sizes |= json.loads(kept.read_text(encoding="utf-8"))
    for name, size in sizes.items():
        file = entry / name
        if not file.is_file() or size not in (None, file.stat().st_size):
            changed = f"{name} is missing, or is not what was fetched"
            raise TreeError(f"the copy of tinygrad in {entry} has changed: {changed}. Delete it to fetch it again")


# *** releases


def fetch_release(version: str) -> Path:
    """Returns a release's folder, fetched on first use by pip or uv. Raises TreeError with their last line."""

    def install(folder: Path) -> None:
        command = [*installer_command(), "--target", str(folder), f"tinygrad=={version}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = done.stderr.strip() or "it said nothing"
            raise TreeError(f"cannot fetch tinygrad {version}: {said.splitlines()[-1]}")

    return cache_entry("releases", version, install)


def installer_command() -> list[str]:
    """Returns the command that installs without dependencies and without questions. Raises TreeError."""
    quiet = ["--quiet", "--no-deps"]
    if importlib.util.find_spec("pip") is not None:
        plain = ["--disable-pip-version-check", "--no-input", "--no-compile"]
        return [sys.executable, "-m", "pip", "install", *quiet, *plain]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", *quiet, "--python", sys.executable]
    raise TreeError("a release is fetched with pip or uv, and neither is here: --tinygrad FOLDER works without")


# *** commits of a checkout; the checkout itself is never changed


def fetch_commit(top: Path, commit: str) -> Path:
    """Returns the folder with the package and its version files as they were at a commit. Raises TreeError."""

    def extract(folder: Path) -> None:
        files = ("pyproject.toml", "setup.py")
        kept = [file for file in files if run_git(top, "cat-file", "-e", f"{commit}:{file}") is not None]
        archive = run_git(top, "archive", "--format=tar", commit, "tinygrad", *kept)
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
    """Returns the short commit of a checkout, `-dirty` if it is changed. None without a checkout or git."""
    if not (folder / ".git").exists() or shutil.which("git") is None:
        return None
    found = run_git(folder, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")
    return None if found is None else found.decode().strip()


def list_commits(top: Path, good: str, bad: str) -> list[str]:
    """Returns the first parents after `good` up to `bad` that change the package, oldest first. Raises TreeError."""
    first, last = commit_of(top, good), commit_of(top, bad)
    if run_git(top, "merge-base", "--is-ancestor", first, last) is None:
        raise TreeError(f"{good} is not an ancestor of {bad} in {top}")
    found = run_git(top, "rev-list", "--first-parent", "--reverse", f"{first}..{last}", "--", "tinygrad")
    return (found or b"").decode().split()


def describe_commit(top: Path, commit: str) -> str:
    """Returns a commit in one line: short hash, date, subject."""
    found = run_git(top, "show", "--no-patch", "--format=%h %cs %s", commit) or commit.encode()
    return found.decode("utf-8", "replace").strip()


def run_git(folder: Path, *arguments: str) -> bytes | None:
    """Returns what a git command prints, None if it fails. Raises TreeError if git is missing."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        raise TreeError("revisions need git, and there is none on PATH") from None
    return None if done.returncode != 0 else done.stdout
