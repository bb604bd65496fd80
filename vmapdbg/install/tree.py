"""What `--tinygrad` and `--baseline` name: a release, a folder, or a revision of a checkout.

0.14.0             a release, from the package index
../tinygrad        a checkout, or a folder that holds one, as it is now
../tinygrad@v0.13  a commit, branch or tag of that checkout
@master            the same of the checkout in the working directory
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vmapdbg.model.failure import Failure
from vmapdbg.model.wording import shorten_commit

OLDEST = (0, 12)
"""The first release with what is observed: `run_rangeify` and its `realize_map`."""

_RELEASE = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)?")
_VERSION_IN_SETUP = re.compile(r"""^\s*version\s*=\s*["']([^"']+)["']""", re.MULTILINE)


class TreeError(Failure):
    """There is no such tinygrad, or it cannot be had; the message is one line for the user."""


@dataclass(frozen=True)
class Tree:
    """One tinygrad. `folder` holds the package `tinygrad`, and goes first on a child's `sys.path`.

    `name` is how the user named it, `version` what it calls itself (None where that cannot be told). `commit` is its
    full hash where it is a revision; for a checkout as it is now it is a short one, with `-dirty` where files are
    changed.
    """

    name: str
    folder: Path
    version: str | None
    commit: str | None = None

    @property
    def title(self) -> str:
        """Version and short commit, as far as they are known: `0.13.0 (3f2a91c7d0be)`."""
        version = self.version or "of unknown version"
        if self.commit is None:
            return version
        return f"{version} ({shorten_commit(self.commit)})"


@dataclass(frozen=True)
class TreeName:
    """What the user named, taken apart: a `release`, or a `path` with or without a `revision`."""

    release: str | None = None
    path: Path = Path(".")
    revision: str | None = None


def parse_name(text: str) -> TreeName:
    """Takes apart what `--tinygrad` names. A folder that exists is a folder, whatever its name looks like. Raises
    TreeError."""
    if not text:
        raise TreeError("a tinygrad has a version, a folder or FOLDER@REVISION for a name, not nothing")
    if Path(text).exists():
        return TreeName(path=Path(text))
    if _RELEASE.fullmatch(text):
        check_version(text, text)
        return TreeName(release=text)
    folder, at, revision = text.rpartition("@")
    if not at:
        raise TreeError(f"there is no folder {text}, and it is no version of tinygrad such as 0.14.0")
    if not revision:
        raise TreeError(f"{text} names no revision after the @")
    path = Path(folder or ".")
    if not path.is_dir():
        raise TreeError(f"there is no folder {folder} (in {text})")
    return TreeName(path=path, revision=revision)


def check_version(version: str | None, name: str) -> None:
    """Raises TreeError where a version is too old to be observed."""
    if version is None:
        return
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise TreeError(f"tinygrad {version} ({name}) is too old: vmapdbg observes {oldest} and later")


def find_package(path: Path, name: str) -> Path:
    """Returns the folder that holds the package: `path`, or its parent where `path` is the package itself. Raises
    TreeError."""
    if path.is_file():
        raise TreeError(f"{name} is a file: name the folder of a checkout")
    if has_package(path):
        return path.resolve()
    if (path / "__init__.py").is_file() and (path / "tensor.py").is_file() and path.resolve().name == "tinygrad":
        return path.resolve().parent
    raise TreeError(f"{name} is no tinygrad: there is no tinygrad/__init__.py in it")


def has_package(folder: Path) -> bool:
    """Tells whether a folder holds a tinygrad."""
    return (folder / "tinygrad" / "__init__.py").is_file()


def find_version(folder: Path) -> str | None:
    """Returns the version that the package in a folder has by its own metadata, None where it has none."""
    for metadata in sorted(folder.glob("tinygrad-*.dist-info")):
        return metadata.name.removesuffix(".dist-info").partition("-")[2]
    for name in ("pyproject.toml", "setup.py"):
        file = folder / name
        if file.is_file() and (found := _VERSION_IN_SETUP.search(file.read_text(encoding="utf-8"))):
            return found[1]
    return None


def is_checkout(folder: Path) -> bool:
    """Tells whether a folder is a checkout or an unpacked source release of tinygrad: a program that is started there
    imports that tinygrad."""
    return has_package(folder) and ((folder / ".git").exists() or (folder / "tinygrad.egg-info").exists())
