"""The folder `.vmapdbg/` under the working directory: the last job, and code from -c or stdin."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from vmapdbg.install.job import Job, dump_record, load_job
from vmapdbg.model.failure import Failure
from vmapdbg.model.store import StoreError, write_atomically

FOLDER = Path(".vmapdbg")
_STDIN = "-"
_MOST_CODE_FILES = 50
"""How many files with code are kept, the newest."""


def make_folder() -> Path:
    """Creates the folder `.vmapdbg` if necessary, and returns it. Raises OSError."""
    FOLDER.mkdir(exist_ok=True)
    # the folder ignores itself, so that git never offers it for a commit
    ignore = FOLDER / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return FOLDER


# *** the last job


class NothingRemembered(Failure):
    """No command with a snippet was given in this directory yet."""


def remember_job(job: Job) -> None:
    """Saves the job, unless the directory cannot be written."""
    with contextlib.suppress(OSError, StoreError):
        write_atomically(make_folder() / "last.json", dump_record(job, indent=1) + "\n")


def recall_job() -> Job:
    """Returns the job that was saved last. Raises NothingRemembered."""
    try:
        return load_job((FOLDER / "last.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        raise NothingRemembered(
            "no SNIPPET given, and none is remembered here: run vmapdbg show SNIPPET first"
        ) from None


# *** code from -c or stdin

# used if the working directory cannot be written; removed when the tool ends
_temporary: list[tempfile.TemporaryDirectory[str]] = []


def file_of_code(snippet: str | None, code: str | None) -> tuple[str | None, str]:
    """Returns the file of the snippet, and `-c` or `-` if its code was typed or read from stdin, else "".

    `snippet` is the SNIPPET of the command line, `code` the text after -c. Code is written to a file, so that its lines
    have names and a later command without SNIPPET can use it. Raises Failure.
    """
    if code is not None:
        if snippet is not None:
            raise Failure(f"-c CODE is the snippet, and {snippet} is another one: give one of them")
        return keep_code(code.encode()), "-c"
    if snippet == _STDIN:
        if sys.stdin is None:
            raise Failure("- is stdin, and stdin is closed")
        return keep_code(sys.stdin.buffer.read()), _STDIN
    return snippet, ""


def keep_code(code: bytes) -> str:
    """Writes code to a file and returns its name. The name depends on the code, so that two runs at the same time do
    not overwrite each other's code."""
    # imported here because most commands get a file
    import hashlib

    name = f"code-{hashlib.sha256(code).hexdigest()[:8]}.py"
    try:
        file = make_folder() / name
        write_atomically(file, code)
        files = sorted(file.parent.glob("code-*.py"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in files[_MOST_CODE_FILES:]:
            # another run may delete the same file
            old.unlink(missing_ok=True)
    except (OSError, StoreError):
        _temporary.append(tempfile.TemporaryDirectory(prefix="vmapdbg-"))
        file = Path(_temporary[-1].name) / name
        write_atomically(file, code)
    return str(file)
