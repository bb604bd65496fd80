"""Any tinygrad: by the name that `--tinygrad` or `--baseline` takes, or the tinygrad that Python imports.

0.14.0             a release, from the package index
../tinygrad        a checkout, or a folder that contains the package, as it is now
../tinygrad@v0.13  a commit, branch or tag of that checkout
@master            a commit, branch or tag of the checkout in the working directory
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from vmapdbg.install.fetched import (
    TreeError,
    commit_of,
    describe_state,
    fetch_commit,
    fetch_release,
    has_package,
    repository_of,
)
from vmapdbg.install.overlay import TINYGRAD_SOURCE, TINYGRAD_VERSION, find_editable
from vmapdbg.model.wording import shorten_commit

OLDEST = (0, 12)
"""The first release that can be observed: it has `run_rangeify` and its `realize_map`."""

_RELEASE = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)?")
_VERSION_IN_SETUP = re.compile(r"""^\s*version\s*=\s*["']([^"']+)["']""", re.MULTILINE)
_GENERATED = "runtime/autogen/"


@dataclass(frozen=True)
class Tree:
    """One tinygrad. `folder` contains the package `tinygrad`, and goes first on a child's `sys.path`.

    `version` is what its metadata says, None if unknown. `commit` is the full hash of a revision; for a checkout as it
    is now, a short hash, with `-dirty` if files are changed.
    """

    folder: Path
    version: str | None
    commit: str | None = None

    @property
    def title(self) -> str:
        """Version and short commit, if known: `0.13.0 (3f2a91c7d0be)`."""
        version = self.version or "of unknown version"
        if self.commit is None:
            return version
        return f"{version} ({shorten_commit(self.commit)})"


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
    """Returns the tree of a name. Fetches a release or a revision into the cache on first use. Raises TreeError.

    Cached: a process sees the same tree from its start to its end, even if the folder changes.
    """
    name = parse_name(text)
    if name.release is not None:
        return Tree(fetch_release(name.release), name.release)
    if name.revision is not None:
        top = repository_of(name.path)
        commit = commit_of(top, name.revision)
        folder = fetch_commit(top, commit)
    else:
        folder = find_package(name.path, text)
        commit = describe_state(folder)
    version = find_version(folder)
    check_version(version, text)
    return Tree(folder, version, commit)


def check_version(version: str | None, name: str) -> None:
    """Raises TreeError if a version is too old to be observed."""
    if version is None:
        return
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise TreeError(f"tinygrad {version} ({name}) is too old: vmapdbg observes {oldest} and later")


def find_package(path: Path, name: str) -> Path:
    """Returns the folder that contains the package: `path`, or its parent if `path` is the package itself. Raises
    TreeError."""
    if path.is_file():
        raise TreeError(f"{name} is a file: name the folder of a checkout")
    if has_package(path):
        return path.resolve()
    if (path / "__init__.py").is_file() and (path / "tensor.py").is_file() and path.resolve().name == "tinygrad":
        return path.resolve().parent
    raise TreeError(f"{name} is not a tinygrad: there is no tinygrad/__init__.py in it")


def find_version(folder: Path) -> str | None:
    """Returns the version in the metadata of the package in a folder, None without metadata."""
    for metadata in sorted(folder.glob("tinygrad-*.dist-info")):
        return metadata.name.removesuffix(".dist-info").partition("-")[2]
    for name in ("pyproject.toml", "setup.py"):
        file = folder / name
        if file.is_file() and (found := _VERSION_IN_SETUP.search(file.read_text(encoding="utf-8"))):
            return found[1]
    return None


def is_checkout(folder: Path) -> bool:
    """Tells whether a folder is a checkout or an unpacked source release of tinygrad, so that a program started there
    imports that tinygrad."""
    return has_package(folder) and ((folder / ".git").exists() or (folder / "tinygrad.egg-info").exists())


# *** the tinygrad that Python imports


def find_imported(path: Sequence[str]) -> Tree | None:
    """Returns the tree that `import tinygrad` takes if `sys.path` is `path`, None if there is none. Imports nothing."""
    spec = PathFinder.find_spec("tinygrad", list(path))
    # without an origin it is a folder without __init__.py, such as the overlay's
    if spec is None or spec.origin is None:
        folder = find_editable()
        if folder is None:
            return None
    else:
        folder = Path(spec.origin).parent.parent
    return Tree(folder, find_version(folder), describe_state(folder))


def is_release(tree: Tree) -> bool:
    """Tells whether the overlay can patch a tree: it was installed from the package of the release, or it is the
    checkout that tinygrad is installed from (`pip install -e`), with the code of the release. The version alone does
    not say that: a checkout has the version of the release before it."""
    if (tree.folder / f"tinygrad-{TINYGRAD_VERSION}.dist-info").is_dir():
        return True
    return find_editable() == tree.folder.resolve() and hash_source(tree.folder) == TINYGRAD_SOURCE


def hash_source(folder: Path) -> str:
    """Returns the hash of the package's Python files, without the files that tinygrad generates."""
    # imported here because few users have an editable install
    import hashlib

    package = folder / "tinygrad"
    found = hashlib.sha256()
    for file in sorted(package.rglob("*.py"), key=lambda file: file.relative_to(package).as_posix()):
        name = file.relative_to(package).as_posix()
        if not name.startswith(_GENERATED):
            # git on Windows may change line ends
            found.update(name.encode() + b"\0" + file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return found.hexdigest()
