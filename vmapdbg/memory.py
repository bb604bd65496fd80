"""Remembers the last snippet and its options in `.vmapdbg/` under the working directory."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from vmapdbg.capture.launcher import Job
from vmapdbg.patches import format_patches
from vmapdbg.store import StoreError, write_atomically

FOLDER = Path(".vmapdbg")


def remember_job(job: Job) -> None:
    """Writes the job's snippet, arguments and options. A directory that cannot be written is no reason to stop."""
    data = {
        "snippet": job.snippet,
        "arguments": list(job.arguments),
        "target": job.target,
        "patches": format_patches(job.patches),
        "timeout": job.timeout,
    }
    with contextlib.suppress(OSError, StoreError):
        FOLDER.mkdir(exist_ok=True)
        ignore = FOLDER / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        write_atomically(FOLDER / "last.json", json.dumps(data, indent=1) + "\n")
