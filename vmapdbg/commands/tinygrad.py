"""Decides which tinygrad a job runs on, and how it is looked at: with the overlay and its patches, or observed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click

from vmapdbg.commands.progress import show_progress
from vmapdbg.install.job import Job
from vmapdbg.install.overlay import TINYGRAD_SOURCE, TINYGRAD_VERSION, find_editable
from vmapdbg.install.patches import Patches
from vmapdbg.install.trees import (
    Tree,
    check_version,
    find_imported,
    find_tree,
    is_checkout,
    is_editable_release,
    is_release,
    parse_name,
)
from vmapdbg.model.failure import Failure

_OLDEST_PYTHON = (3, 11)
# what is asked of an interpreter before a child is started with it
_PROBE = """import importlib.util, sys
spec = importlib.util.find_spec('tinygrad')
print(*sys.version_info[:2], spec is not None and spec.origin is not None)"""


def settle_job(job: Job, asked: Patches | None) -> Job:
    """Returns the job with its tree, and without patches where it is observed: the overlay patches one installed
    release. What was decided without being asked for is said on stderr.

    `asked` are the patches that the command line names. Raises Failure where there is no such tinygrad, or where it
    cannot have them.
    """
    job, found = choose_tinygrad(job)
    if found is None:
        return job
    if asked:
        raise Failure(f"the patches need tinygrad {TINYGRAD_VERSION} beside vmapdbg: {found} is observed as it is")
    return replace(job, patches=None)


def choose_tinygrad(job: Job) -> tuple[Job, str | None]:
    """Returns the job with the tree that it is to run on, and what that is called; None where it is the release that
    the overlay patches."""
    if job.python:
        check_python(job)
    if job.tree:
        tree = fetch_tree(job.tree)
        return job, f"tinygrad {tree.title}"
    if job.python:
        return job, f"the tinygrad of {job.python}"
    # as `python snippet.py` takes it in a checkout that is on its path; so does everybody who works there
    if is_checkout(Path.cwd()):
        if is_editable_release(Path.cwd(), TINYGRAD_SOURCE):
            return replace(job, tree="."), None
        job = replace(job, tree=".")
        found = f"the tinygrad of this folder, {fetch_tree('.').title}"
    else:
        installed = find_installed(job.folder)
        if is_release(installed, TINYGRAD_VERSION):
            return job, None
        if installed.folder == find_editable():
            # named, because a folder of that name without an __init__.py would come first in the child
            job = replace(job, tree=str(installed.folder))
        if is_editable_release(installed.folder, TINYGRAD_SOURCE):
            return job, None
        check_version(installed.version, str(installed.folder))
        found = f"tinygrad {installed.title} in {installed.folder}"
        if installed.version == TINYGRAD_VERSION:
            found += ", whose code is not that of the release"
    _say_observed(found)
    return job, found


@functools.cache
def _say_observed(found: str) -> None:
    """Says it once, however many jobs a command has."""
    click.echo(f"vmapdbg: observing {found}; the patches need the release {TINYGRAD_VERSION}", err=True)


def find_installed(folder: Path) -> Tree:
    """Returns the tinygrad that a snippet imports: from the folder that it imports from first, else from where the
    tool's Python finds it. Raises Failure where there is none."""
    # a child's path has the snippet's folder in the place of the working directory
    others = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != Path.cwd()]
    tree = find_imported([str(folder), *others])
    if tree is None:
        raise Failure(
            f"tinygrad is not installed: pip install tinygrad=={TINYGRAD_VERSION} for the patches; to look at another"
            " one, --tinygrad 0.14.0 (a release or a folder) or --python PATH"
        )
    package = tree.folder / "tinygrad"
    if not (package / "tensor.py").is_file():
        raise Failure(f"{package} would be imported as tinygrad, and is none: it has no tensor.py")
    return tree


def fetch_tree(name: str) -> Tree:
    """Returns a tree by its name. The first use of a release or of a revision takes a while. Raises TreeError."""
    if parse_name(name).release is None:
        return find_tree(name)
    with show_progress(f"looking for tinygrad {name}"):
        return find_tree(name)


def check_python(job: Job) -> None:
    """Raises Failure unless the job's interpreter can run it."""
    python = shutil.which(job.python)
    if python is None:
        raise Failure(f"--python: there is no program {job.python}")
    try:
        done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False)
        major, minor, has_tinygrad = done.stdout.split()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise Failure(f"--python: {job.python} is no Python interpreter") from None
    if (int(major), int(minor)) < _OLDEST_PYTHON:
        oldest = ".".join(map(str, _OLDEST_PYTHON))
        raise Failure(f"--python: {job.python} is Python {major}.{minor}, and vmapdbg needs {oldest} or later")
    if has_tinygrad == "False" and not job.tree:
        raise Failure(f"--python: {job.python} has no tinygrad (--tinygrad names one)")
