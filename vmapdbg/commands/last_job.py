"""Remembers the last snippet and its options in `.vmapdbg/` under the working directory."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from vmapdbg.install.job import Job, dump_record, load_job
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, write_atomically

FOLDER = Path(".vmapdbg")
_NAMES = "names.json"
_MOST_NAMES = 1000


class NothingRemembered(Failure):
    """No command with a snippet was given in this directory yet."""


def remember_job(job: Job) -> None:
    """Writes the job. A directory that cannot be written is no reason to stop."""
    with contextlib.suppress(OSError, StoreError):
        write_atomically(make_folder() / "last.json", dump_record(job, indent=1) + "\n")


def make_folder() -> Path:
    """Returns the folder `.vmapdbg`, which is there then. Raises OSError."""
    FOLDER.mkdir(exist_ok=True)
    # the folder ignores itself, so that git never offers it for a commit
    ignore = FOLDER / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return FOLDER


def recall_job() -> Job:
    """Returns the job that was remembered last. Raises NothingRemembered."""
    try:
        return load_job((FOLDER / "last.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        raise NothingRemembered(
            "no SNIPPET given, and none is remembered here: run vmapdbg show SNIPPET first"
        ) from None


def remember_names(names: dict[str, list[str]]) -> None:
    """Writes what the shell can offer after this run: lists of names, by what they name."""
    with contextlib.suppress(OSError, StoreError):
        write_atomically(make_folder() / _NAMES, json.dumps({kind: names[kind][:_MOST_NAMES] for kind in names}))


def recall_names() -> dict[str, list[str]]:
    """Returns what was written last; empty lists where nothing was, or something else is there."""
    known: dict[str, list[str]] = {"kernels": [], "lines": []}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        found = json.loads((FOLDER / _NAMES).read_text(encoding="utf-8"))
        known = {kind: [str(name) for name in found.get(kind, ())] for kind in known}
    return known
