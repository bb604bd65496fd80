"""Fetches tinygrad's sdist and unpacks its test folder. Nothing of upstream is kept in the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

# what upstream's tests import is in the last two. An sdist has only test/
FOLDERS = ("test", "extra", "examples")


class FetchError(Exception):
    """The sdist could not be had; the message is one line for the user."""


def fetch_upstream(cache_dir: Path, version: str) -> Path:
    """Returns the folder that holds upstream's `test/`, from the cache or from the package index."""
    return fill_folder(cache_dir / f"tinygrad-{version}", lambda work: download_sdist(work, version))


def fetch_commit(cache_dir: Path, clone: Path, commit: str) -> Path:
    """Returns the folder that holds upstream's `test/`, and what it imports, as they are at a commit of a clone."""

    def archive(work: Path) -> Path:
        file = work / f"{commit}.tar"
        command = ["git", "-C", str(clone), "archive", "--prefix=tinygrad/", "-o", str(file), commit, *FOLDERS]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise FetchError(f"{clone} has no tests at {commit}: {done.stderr.strip()}")
        return file

    return fill_folder(cache_dir / f"tinygrad-{commit[:12]}", archive)


def fill_folder(folder: Path, fetch: Callable[[Path], Path]) -> Path:
    """Returns the folder, with the tests of the archive that `fetch` gets if it does not exist yet.

    The folder appears under its name only when it is complete: an interrupted run leaves nothing half done.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as work:
        unpacked = Path(work) / "unpacked"
        unpack_tests(fetch(Path(work)), unpacked)
        try:
            unpacked.rename(folder)
        except OSError:  # another run was faster
            if not folder.is_dir():
                raise
    return folder


def download_sdist(into: Path, version: str) -> Path:
    """Returns the path of the downloaded sdist. Raises FetchError."""
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-binary", ":all:"]
    command += ["--no-deps", "--dest", str(into), f"tinygrad=={version}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    found = sorted(into.glob("*.tar.gz"))
    if done.returncode != 0 or not found:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["pip said nothing"]
        raise FetchError(f"the sdist of tinygrad {version} could not be downloaded: {lines[-1].strip()}")
    return found[0]


def unpack_tests(sdist: Path, into: Path) -> None:
    """Writes the regular files below `<top>/test/` to `into/test/`, those of the other FOLDERS too, and nothing else
    that the archive may hold: no link, no device, no path that leads outside."""
    with tarfile.open(sdist) as archive:
        for member in archive:
            parts = PurePosixPath(member.name).parts[1:]
            if not member.isfile() or not parts or parts[0] not in FOLDERS or ".." in parts:
                continue
            source = archive.extractfile(member)
            assert source is not None, f"{member.name} is a regular file"
            target = into.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, target.open("wb") as stream:
                shutil.copyfileobj(source, stream)
    if not (into / "test").is_dir():
        raise FetchError(f"{sdist.name} holds no test folder")
    # without an ini file here pytest would take the options and the root of this repository
    (into / "pytest.ini").write_text("[pytest]\n")
