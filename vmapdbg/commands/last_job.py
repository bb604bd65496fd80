"""Remembers the last snippet and its options in `.vmapdbg/` under the working directory."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from vmapdbg.commands.launcher import Job
from vmapdbg.patches import format_patches, parse_patches
from vmapdbg.store import StoreError, write_atomically

FOLDER = Path(".vmapdbg")


class NothingRemembered(Exception):
    """No command with a snippet was given in this directory yet; the message is one line for the user."""


def remember_job(job: Job) -> None:
    """Writes the job's snippet, arguments and options. A directory that cannot be written is no reason to stop."""
    data = {
        "snippet": job.snippet,
        "arguments": list(job.arguments),
        "target": job.target,
        "patches": None if job.patches is None else format_patches(job.patches),
        "timeout": job.timeout,
    }
    with contextlib.suppress(OSError, StoreError):
        FOLDER.mkdir(exist_ok=True)
        ignore = FOLDER / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        write_atomically(FOLDER / "last.json", json.dumps(data, indent=1) + "\n")


def recall_job() -> Job:
    """Returns the job that was remembered last. Raises NothingRemembered."""
    try:
        data = json.loads((FOLDER / "last.json").read_text(encoding="utf-8"))
        patches = None if data["patches"] is None else parse_patches(data["patches"] or "none")
        return Job(str(data["snippet"]), tuple(data["arguments"]), str(data["target"]), patches, data["timeout"])
    except (OSError, ValueError, KeyError, TypeError):
        raise NothingRemembered(
            "no SNIPPET given, and none is remembered here: run vmapdbg show SNIPPET first"
        ) from None
